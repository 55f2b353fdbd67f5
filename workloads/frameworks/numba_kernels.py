#!/usr/bin/env python3
"""The usual kinds of Numba kernels against NumPy.

usage: numba_kernels.py [NAME ...] [--digest FILE]
"""
import hashlib
import math
import sys
import warnings

import numpy as np
from numba import cuda, float32, int32, vectorize
from numba.cuda.random import create_xoroshiro128p_states, xoroshiro128p_uniform_float32

warnings.filterwarnings("ignore", message="Grid size")
RNG = np.random.default_rng(11)
TILE = 16


def values(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@cuda.jit
def axpy_kernel(a, x, y, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = a * x[i] + y[i]


def axpy():
    x, y = values(10007), values(10007)
    out = cuda.device_array_like(x)
    axpy_kernel[(x.size + 255) // 256, 256](np.float32(2.5), cuda.to_device(x), cuda.to_device(y), out)
    return out.copy_to_host(), np.float32(2.5) * x + y, 1e-6


@cuda.jit
def matmul_kernel(a, b, c):
    left = cuda.shared.array((TILE, TILE), float32)
    right = cuda.shared.array((TILE, TILE), float32)
    column, row = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for at in range((a.shape[1] + TILE - 1) // TILE):
        left[ty, tx] = a[row, at * TILE + tx] if row < a.shape[0] and at * TILE + tx < a.shape[1] else 0
        right[ty, tx] = b[at * TILE + ty, column] if column < b.shape[1] and at * TILE + ty < b.shape[0] else 0
        cuda.syncthreads()
        for k in range(TILE):
            total += left[ty, k] * right[k, tx]
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = total


def matmul():
    a, b = values(70, 45), values(45, 51)
    c = cuda.device_array((70, 51), np.float32)
    matmul_kernel[(4, 5), (TILE, TILE)](cuda.to_device(a), cuda.to_device(b), c)
    return c.copy_to_host(), a @ b, 1e-4


@cuda.jit
def histogram_kernel(x, bins):
    local = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    if t < 32:
        local[t] = 0
    cuda.syncthreads()
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        cuda.atomic.add(local, x[i], 1)
    cuda.syncthreads()
    if t < 32:
        cuda.atomic.add(bins, t, local[t])


def histogram():
    x = RNG.integers(0, 32, 20000).astype(np.int32)
    bins = cuda.to_device(np.zeros(32, np.int32))
    histogram_kernel[12, 128](cuda.to_device(x), bins)
    return bins.copy_to_host(), np.bincount(x, minlength=32).astype(np.int32), 0


@cuda.jit
def warp_sum_kernel(x, out):
    i = cuda.grid(1)
    v = x[i]
    for step in (16, 8, 4, 2, 1):
        v += cuda.shfl_down_sync(0xFFFFFFFF, v, step)
    if cuda.laneid == 0:
        out[i // 32] = v


def warp_sum():
    x = RNG.integers(-99, 99, 4096).astype(np.int32)
    out = cuda.device_array(128, np.int32)
    warp_sum_kernel[32, 128](cuda.to_device(x), out)
    return out.copy_to_host(), x.reshape(128, 32).sum(1).astype(np.int32), 0


@cuda.jit(device=True)
def black_scholes_side(d):
    return 0.5 * (1.0 + math.erf(d / math.sqrt(2.0)))


@cuda.jit
def options_kernel(price, strike, years, out):
    i = cuda.grid(1)
    if i < price.size:
        root = math.sqrt(years[i])
        d1 = (math.log(price[i] / strike[i]) + (0.02 + 0.5 * 0.09) * years[i]) / (0.3 * root)
        out[i] = price[i] * black_scholes_side(d1) - strike[i] * math.exp(-0.02 * years[i]) * black_scholes_side(d1 - 0.3 * root)


def options():
    price, strike, years = (RNG.uniform(low, high, 3000) for low, high in ((5, 30), (1, 100), (0.25, 10)))
    out = cuda.device_array(3000)
    options_kernel[24, 128](*(cuda.to_device(v) for v in (price, strike, years)), out)
    d1 = (np.log(price / strike) + (0.02 + 0.5 * 0.09) * years) / (0.3 * np.sqrt(years))
    side = np.vectorize(lambda d: 0.5 * (1 + math.erf(d / math.sqrt(2))))
    return out.copy_to_host(), price * side(d1) - strike * np.exp(-0.02 * years) * side(d1 - 0.3 * np.sqrt(years)), 1e-11


@cuda.reduce
def total(a, b):
    return a + b


def reduction():
    x = RNG.integers(0, 1000, 30011).astype(np.int64)
    return np.array([total(cuda.to_device(x))]), np.array([x.sum()]), 0


@vectorize([float32(float32, float32)], target="cuda")
def hypotenuse(a, b):
    return math.sqrt(a * a + b * b)


def ufunc():
    a, b = values(50, 33), values(50, 33)
    return np.asarray(hypotenuse(a, b)), np.hypot(a, b), 1e-6


@cuda.jit
def pi_kernel(states, inside, turns):
    i = cuda.grid(1)
    n = 0
    for _ in range(turns):
        x = xoroshiro128p_uniform_float32(states, i)
        y = xoroshiro128p_uniform_float32(states, i)
        n += 1 if x * x + y * y <= 1 else 0
    inside[i] = n


def monte_carlo():
    threads = 512
    inside = cuda.device_array(threads, np.int32)
    pi_kernel[4, 128](create_xoroshiro128p_states(threads, seed=1), inside, 200)
    return np.array([4 * inside.copy_to_host().sum() / (threads * 200)]), np.array([math.pi]), 0.01


def streams():
    out = []
    for k in range(4):
        stream = cuda.stream()
        x = cuda.to_device(np.full(1000, k, np.float32), stream)
        y = cuda.device_array_like(x, stream)
        axpy_kernel[8, 128, stream](np.float32(3), x, x, y)
        out.append(y.copy_to_host(stream=stream))
        stream.synchronize()
    return np.concatenate(out), np.repeat(np.arange(4, dtype=np.float32) * 4, 1000), 0


KERNELS = {f.__name__: f for f in (axpy, matmul, histogram, warp_sum, options, reduction, ufunc, monte_carlo, streams)}


def main():
    arguments = [a for a in sys.argv[1:] if not a.startswith("--")]
    digest = open(arguments.pop(), "w", encoding="utf-8") if "--digest" in sys.argv else None
    if not cuda.is_available():
        print("numba_kernels: Numba sees no GPU", file=sys.stderr)
        return 1
    wrong, ran = 0, 0
    for name, run in KERNELS.items():
        if arguments and name not in arguments:
            continue
        ran += 1
        try:
            got, want, tolerance = run()
            why = None if np.allclose(got, want, rtol=tolerance, atol=tolerance) else \
                f"largest difference {np.max(np.abs(got - want)):.3g}"
            if digest is not None:
                digest.write(f"{name} {hashlib.sha256(np.ascontiguousarray(got).tobytes()).hexdigest()}\n")
        except Exception as e:  # noqa: BLE001: one kernel must not hide the others
            why = f"{type(e).__name__}: {str(e).splitlines()[0][:300]}"
        print(f"FAIL {name}: {why}" if why else f"ok   {name}", flush=True)
        wrong += why is not None
    print(f"numba_kernels: {ran - wrong} of {ran} agree with NumPy")
    return 1 if wrong or ran == 0 else 0


if __name__ == "__main__":
    sys.exit(main())

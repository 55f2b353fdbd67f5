#!/usr/bin/env python3
"""Operations of CuPy on the first GPU against NumPy, one by one: its own kernels, those that it compiles, NVIDIA's libraries.

usage: cupy_ops.py [NAME ...] [--digest FILE]
"""
import hashlib
import sys

import cupy as cp
import numpy as np

RNG = np.random.default_rng(21)


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def i32(low, high, *shape):
    return RNG.integers(low, high, shape).astype(np.int32)


def spread(n):
    """A matrix that is far from singular."""
    return f32(n, n) + 4 * np.eye(n, dtype=np.float32)


squared_difference = cp.ElementwiseKernel("float32 x, float32 y", "float32 z", "z = (x - y) * (x - y)", "squared_difference")
length = cp.ReductionKernel("float32 x", "float32 y", "x * x", "a + b", "y = sqrt(a)", "0", "length")
raw_add = cp.RawKernel(r"""
extern "C" __global__ void raw_add(const float *x, const float *y, float *z, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        z[i] = x[i] + y[i];
}
""", "raw_add")


def call_raw(x, y):
    z = cp.empty_like(x)
    raw_add(((x.size + 127) // 128,), (128,), (x, y, z, np.int32(x.size)))
    return z


@cp.fuse()
def fused(x, y):
    return cp.sqrt(x * x + y * y) + 1


def both(name):
    """The same function of CuPy and of NumPy."""
    def find(module):
        for part in name.split("."):
            module = getattr(module, part)
        return module
    return find(cp), find(np)


# Name, function on the GPU, function on the CPU, inputs, tolerance.
def suite():
    for name in ("exp", "sin", "tanh", "sqrt", "floor", "abs", "log1p", "sign"):
        gpu, cpu = both(name)
        yield name, gpu, cpu, [np.abs(f32(37, 53))], 1e-5
    for name in ("add", "multiply", "maximum", "arctan2", "less", "hypot"):
        gpu, cpu = both(name)
        yield name, gpu, cpu, [f32(40, 30), f32(30)], 1e-5
    for name in ("sum", "mean", "max", "argmax", "std", "prod", "cumsum", "sort", "argsort"):
        gpu, cpu = both(name)
        yield f"{name}_rows", lambda x, f=gpu: f(x, axis=1), lambda x, f=cpu: f(x, axis=1), [f32(20, 64)], 1e-4
    for name in ("transpose", "ravel", "flip", "unique", "nonzero"):
        gpu, cpu = both(name)
        yield name, gpu, cpu, [i32(0, 9, 12, 11)], 0
    yield "take", cp.take, np.take, [f32(100), i32(0, 100, 33)], 0
    yield "where", cp.where, np.where, [f32(50) > 0, f32(50), f32(50)], 0
    yield "bincount", cp.bincount, np.bincount, [i32(0, 12, 500)], 0
    yield "concatenate", lambda a, b: cp.concatenate((a, b)), lambda a, b: np.concatenate((a, b)), [f32(9, 4), f32(5, 4)], 0
    yield "boolean_index", lambda a: a[a > 0], lambda a: a[a > 0], [f32(300)], 0
    yield "elementwise", squared_difference, lambda x, y: (x - y) ** 2, [f32(70), f32(70)], 1e-6
    yield "reduction", length, lambda x: np.sqrt((x * x).sum()), [f32(999)], 1e-5
    yield "raw", call_raw, np.add, [f32(1000), f32(1000)], 0
    yield "fuse", fused, lambda x, y: np.sqrt(x * x + y * y) + 1, [f32(64), f32(64)], 1e-6
    yield "matmul", cp.matmul, np.matmul, [f32(50, 40), f32(40, 30)], 1e-4
    yield "matmul_f64", cp.matmul, np.matmul, [f32(20, 30).astype(np.float64), f32(30, 10).astype(np.float64)], 1e-12
    yield "einsum", lambda a, b: cp.einsum("bij,bjk->bik", a, b), lambda a, b: np.einsum("bij,bjk->bik", a, b), \
        [f32(3, 8, 9), f32(3, 9, 7)], 1e-4
    yield "fft", cp.fft.fft, np.fft.fft, [f32(4, 64)], 1e-4
    yield "rfft2", cp.fft.rfft2, np.fft.rfft2, [f32(16, 24)], 1e-4
    yield "solve", cp.linalg.solve, np.linalg.solve, [spread(12), f32(12, 2)], 1e-4
    yield "qr", lambda a: cp.abs(cp.linalg.qr(a)[1]), lambda a: np.abs(np.linalg.qr(a)[1]), [f32(12, 8)], 1e-4
    yield "singular_values", lambda a: cp.linalg.svd(a, compute_uv=False), lambda a: np.linalg.svd(a, compute_uv=False), \
        [f32(10, 7)], 1e-4
    yield "cholesky", lambda a: cp.linalg.cholesky(a @ a.T), lambda a: np.linalg.cholesky(a @ a.T), [spread(9)], 1e-3
    yield "eigenvalues", lambda a: cp.linalg.eigvalsh(a + a.T), lambda a: np.linalg.eigvalsh(a + a.T), [f32(9, 9)], 1e-4
    yield "sparse", sparse_times, lambda a, x: np.where(a > 0.5, a, 0) @ x, [f32(30, 20), f32(20)], 1e-4
    yield "random", random_moments, lambda x: np.array([0.5, 1 / 12]), [f32(1)], 0.02


def sparse_times(a, x):
    from cupyx.scipy import sparse
    return sparse.csr_matrix(cp.where(a > 0.5, a, 0)) @ x


def random_moments(x):
    values = cp.random.default_rng(5).random(20000)
    return cp.stack((values.mean(), values.var()))


def main():
    arguments = [a for a in sys.argv[1:] if not a.startswith("--")]
    digest = open(arguments.pop(), "w", encoding="utf-8") if "--digest" in sys.argv else None
    wrong, ran = 0, 0
    for name, gpu, cpu, inputs, tolerance in suite():
        if arguments and name not in arguments:
            continue
        ran += 1
        why = None
        try:
            got, want = gpu(*(cp.asarray(x) for x in inputs)), cpu(*inputs)
            got, want = ([*v] if isinstance(v, tuple) else [v] for v in (got, want))
            got = [cp.asnumpy(g) for g in got]
            for g, w in zip(got, want, strict=True):
                if not np.allclose(g, w, rtol=tolerance, atol=tolerance):
                    why = f"largest difference {np.max(np.abs(g - w)):.3g}"
            if digest is not None:
                digest.write(f"{name} {hashlib.sha256(b''.join(np.ascontiguousarray(g).tobytes() for g in got)).hexdigest()}\n")
        except Exception as e:  # noqa: BLE001: one operation must not hide the others
            why = f"{type(e).__name__}: {' '.join(str(e).split())[:300]}"
        if why is not None:
            wrong += 1
            print(f"FAIL {name}: {why}", flush=True)
    print(f"cupy_ops: {ran - wrong} of {ran} operations agree with NumPy")
    return 1 if wrong or ran == 0 else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""JAX on the first GPU and on the CPU: single functions, and a small transformer block trained with jit and grad; results are compared.

usage: jax_train.py [--steps=30]
"""
import argparse
import sys

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_default_matmul_precision", "highest")  # the CPU does not round its inputs either
RNG = np.random.default_rng(13)


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


FUNCTIONS = {
    "elementwise": (lambda x: jnp.tanh(x) * jnp.exp(-x * x) + jnp.sin(x), [f32(33, 70)], 1e-5),
    "softmax": (lambda x: jax.nn.softmax(x, 1), [f32(32, 100)], 1e-5),
    "reduce": (lambda x: (x.sum(0), x.max(1), jnp.argmin(x, 1)), [f32(40, 60)], 1e-4),
    "matmul": (lambda a, b: a @ b, [f32(50, 70), f32(70, 30)], 1e-4),
    "sort": (lambda x: jnp.sort(x, 1), [f32(10, 77)], 0),
    "scan": (lambda x: jnp.cumsum(x, 1), [f32(10, 77)], 1e-4),
    "gather": (lambda x, i: x[i], [f32(40, 8), RNG.integers(0, 40, 25)], 0),
    "vmap": (jax.vmap(lambda a, b: jnp.dot(a, b)), [f32(20, 16), f32(20, 16)], 1e-5),
    "convolution": (lambda x, w: jax.lax.conv(x, w, (1, 1), "SAME"), [f32(2, 4, 12, 12), f32(8, 4, 3, 3)], 1e-3),
    "random": (lambda key: jax.random.normal(jax.random.wrap_key_data(key), (100,)), [np.array([1, 2], np.uint32)], 1e-5),
    "while": (lambda x: jax.lax.fori_loop(0, 9, lambda i, v: v * 0.5 + i, x), [f32(50)], 1e-5),
}


def block(p, x):
    def norm(v):
        return (v - v.mean(-1, keepdims=True)) * jax.lax.rsqrt(v.var(-1, keepdims=True) + 1e-5)

    q, k, v = jnp.split(norm(x) @ p["qkv"], 3, -1)
    x = x + jax.nn.softmax(q @ k.swapaxes(1, 2) / 4.0, -1) @ v @ p["out"]
    return x + jax.nn.gelu(norm(x) @ p["up"]) @ p["down"]


def loss_of(p, x, y):
    logits = block(p, p["token"][x]).mean(1) @ p["head"]
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean()


def train(device, steps):
    rng = np.random.default_rng(3)
    shapes = {"token": (50, 16), "qkv": (16, 48), "out": (16, 16), "up": (16, 64), "down": (64, 16), "head": (16, 10)}
    with jax.default_device(device):
        p = {k: jnp.asarray(rng.standard_normal(s).astype(np.float32) / s[0] ** 0.5) for k, s in shapes.items()}
        x, y = jnp.asarray(rng.integers(0, 50, (4, 16, 12))), jnp.asarray(rng.integers(0, 10, (4, 16)))

        @jax.jit
        def step(p, x, y):
            loss, g = jax.value_and_grad(loss_of)(p, x, y)
            return jax.tree.map(lambda a, b: a - 0.2 * b, p, g), loss

        losses = []
        for i in range(steps):
            p, loss = step(p, x[i % 4], y[i % 4])
            losses.append(float(loss))
        return np.array(losses)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30)
    o = parser.parse_args()
    gpu, cpu = jax.devices()[0], jax.devices("cpu")[0]
    if gpu.platform != "gpu":
        print("jax_train: JAX sees no GPU", file=sys.stderr)
        return 1
    wrong = 0
    for name, (function, inputs, tolerance) in FUNCTIONS.items():
        try:
            got, want = (jax.tree.leaves(jax.jit(function)(*(jax.device_put(x, d) for x in inputs))) for d in (gpu, cpu))
            why = None if all(np.allclose(g, w, rtol=tolerance, atol=tolerance) for g, w in zip(got, want)) else "values differ"
        except Exception as e:  # noqa: BLE001: one function must not hide the others
            why = f"{type(e).__name__}: {' '.join(str(e).split())[:300]}"
        wrong += why is not None
        if why:
            print(f"FAIL {name}: {why}", flush=True)
    print(f"jax_train: {len(FUNCTIONS) - wrong} of {len(FUNCTIONS)} functions agree with the CPU", flush=True)
    a, b = train(gpu, o.steps), train(cpu, o.steps)
    far = np.max(np.abs(a - b))
    good = np.isfinite(a).all() and far < 1e-3 and a[-4:].mean() < a[:4].mean()
    print(f"{'ok  ' if good else 'FAIL'} transformer: loss {a[0]:.4f} -> {a[-1]:.4f}, CPU {b[-1]:.4f}, largest difference {far:.2g}")
    return 0 if good and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())

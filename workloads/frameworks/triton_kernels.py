#!/usr/bin/env python3
"""The usual kinds of Triton kernels against PyTorch on the CPU.

usage: triton_kernels.py [NAME ...] [--digest FILE]
"""
import hashlib
import sys

import torch
import triton
import triton.language as tl

GENERATOR = torch.Generator().manual_seed(3)


def values(*shape):
    return torch.randn(*shape, generator=GENERATOR)


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(out + i, tl.load(x + i, inside) + tl.load(y + i, inside), inside)


def vector_add(device):
    x, y = values(98432), values(98432)
    out = torch.empty_like(x, device=device)
    add_kernel[(triton.cdiv(x.numel(), 1024),)](x.to(device), y.to(device), out, x.numel(), BLOCK=1024)
    return out, x + y, 0


@triton.jit
def softmax_kernel(out, x, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + i, i < columns, -float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * stride + i, e / tl.sum(e, 0), i < columns)


def fused_softmax(device):
    x = values(181, 781)
    out = torch.empty_like(x, device=device)
    softmax_kernel[(x.shape[0],)](out, x.to(device), x.stride(0), x.shape[1], BLOCK=1024)
    return out, torch.softmax(x, 1), 1e-6


@triton.jit
def matmul_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for at in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (at + k)[None, :], (m[:, None] < M) & ((at + k)[None, :] < K), 0.0)
        y = tl.load(b + (at + k)[:, None] * N + n[None, :], ((at + k)[:, None] < K) & (n[None, :] < N), 0.0)
        total += tl.dot(x, y)
    tl.store(c + m[:, None] * N + n[None, :], total.to(c.dtype.element_ty), (m[:, None] < M) & (n[None, :] < N))


def matmul(device):
    a, b = values(200, 96).half(), values(96, 160).half()
    c = torch.empty(200, 160, device=device, dtype=torch.float16)
    matmul_kernel[(triton.cdiv(200, 64), triton.cdiv(160, 64))](a.to(device), b.to(device), c, 200, 160, 96, BM=64, BN=64, BK=32)
    return c, (a.double() @ b.double()), 2e-2


@triton.jit
def layer_norm_kernel(x, y, w, b, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    inside = i < columns
    v = tl.load(x + row * columns + i, inside, 0.0)
    mean = tl.sum(v, 0) / columns
    d = tl.where(inside, v - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(d * d, 0) / columns + eps)
    tl.store(y + row * columns + i, d * scale * tl.load(w + i, inside) + tl.load(b + i, inside), inside)


def layer_norm(device):
    x, w, b = values(151, 700), values(700), values(700)
    y = torch.empty_like(x, device=device)
    layer_norm_kernel[(151,)](x.to(device), y, w.to(device), b.to(device), 700, 1e-5, BLOCK=1024)
    return y, torch.nn.functional.layer_norm(x, (700,), w, b, 1e-5), 1e-5


@triton.jit
def attention_kernel(q, k, v, out, scale, LENGTH, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    head = tl.program_id(1) * LENGTH * D
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    x = tl.load(q + head + m[:, None] * D + d[None, :])
    high = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    mixed = tl.zeros((BM, D), tl.float32)
    for at in range(0, LENGTH, BN):
        n = at + tl.arange(0, BN)
        s = tl.dot(x, tl.load(k + head + n[None, :] * D + d[:, None])) * scale
        higher = tl.maximum(high, tl.max(s, 1))
        p = tl.exp(s - higher[:, None])
        old = tl.exp(high - higher)
        total = total * old + tl.sum(p, 1)
        mixed = mixed * old[:, None] + tl.dot(p.to(tl.float16), tl.load(v + head + n[:, None] * D + d[None, :]))
        high = higher
    tl.store(out + head + m[:, None] * D + d[None, :], (mixed / total[:, None]).to(tl.float16))


def flash_attention(device):
    q, k, v = (values(4, 128, 32).half() for _ in range(3))
    out = torch.empty_like(q, device=device)
    attention_kernel[(128 // 64, 4)](q.to(device), k.to(device), v.to(device), out, 32**-0.5, 128, D=32, BM=64, BN=32)
    want = torch.softmax(q.double() @ k.double().transpose(1, 2) * 32**-0.5, -1) @ v.double()
    return out, want, 5e-3


@triton.jit
def dropout_kernel(x, out, n, p, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    kept = tl.rand(seed, i) > p
    tl.store(out + i, tl.where(kept, tl.load(x + i, i < n) / (1 - p), 0.0), i < n)


def dropout(device):
    x = values(10000).abs() + 1
    got = [torch.empty_like(x, device=device) for _ in range(2)]
    for out in got:
        dropout_kernel[(triton.cdiv(10000, 1024),)](x.to(device), out, 10000, 0.5, 123, BLOCK=1024)
    first, second = (g.cpu() for g in got)
    assert torch.equal(first, second), "the same seed gave another mask"
    share = (first == 0).float().mean().item()
    assert 0.45 < share < 0.55, f"{share:.3f} of the values were dropped, not half"
    return first, torch.where(first == 0, torch.zeros(()), x * 2), 1e-6


KERNELS = {f.__name__: f for f in (vector_add, fused_softmax, matmul, layer_norm, flash_attention, dropout)}


def main():
    if "--help" in sys.argv:
        print(__doc__)
        return 0
    names = [a for a in sys.argv[1:] if not a.startswith("--")]
    digest = open(names.pop(), "w", encoding="utf-8") if "--digest" in sys.argv else None
    wrong = 0
    for name in names or KERNELS:
        try:
            got, want, tolerance = KERNELS[name]("cuda")
            got = got.cpu()
            if digest:
                digest.write(f"{name} {hashlib.sha256(got.numpy().tobytes()).hexdigest()}\n")
            error = (got.double() - want.double()).abs().max().item()
            good = error <= tolerance
            print(f"{'ok  ' if good else 'FAIL'} {name}: largest difference {error:.3g}", flush=True)
        except Exception as e:  # noqa: BLE001: one kernel must not hide the others
            good = False
            print(f"FAIL {name}: {type(e).__name__}: {str(e)[:400]}", flush=True)
        wrong += not good
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Whether torch_ops.py, which judges PyTorch's operators, finds what is wrong: mistakes are planted in what the GPU returns.

usage: torch_ops_judge.py

Where a result is not determined, another right one is planted as well, which has to pass, as free.
"""
import hashlib
import sys

import torch

import torch_ops as judge

OPS = {judge.name_of(op): op for op in judge.op_db}


class Planted:
    """An operator whose results on the GPU are changed."""

    def __init__(self, op, change):
        self.op, self.change = op, change

    def __getattr__(self, name):
        return getattr(self.op, name)

    def __call__(self, value, *args, **kwargs):
        got = self.op(value, *args, **kwargs)
        return self.change(value, got) if value.is_cuda else got


def same(_, got):
    return got


def first_changed(by):
    """One element of the result is larger."""
    def change(_, got):
        more = torch.zeros_like(got)
        more.view(-1)[0] = by
        return got + more
    return change


def gradient_changed(by):
    """The result is the same, the gradient of one element is larger."""
    def change(value, got):
        one = value.reshape(-1)[0].float() * by
        return (got.float() + (one - one.detach())).to(got.dtype)
    return change


def gradients_moved(value, got):
    """Each element has the gradient of another."""
    moved = value.roll(1, 0)
    return got.detach() + (moved.sort(0).values - moved.sort(0).values.detach()) * torch.arange(len(value), device=value.device).view(
        -1, *[1] * (value.dim() - 1))


def places_moved(value, got):
    return type(got)((got[0], got[1].roll(1, -1)))


def one_place_for_all(value, got):
    return type(got)((got[0], got[1][..., :1].expand_as(got[1]).contiguous()))


def equals_reversed(value, got):
    """The other order of equal elements: sorted backwards, read backwards."""
    return type(got)((got[0], value.flip(-1).sort(dim=-1, stable=True).indices.neg().add(value.shape[-1] - 1)))


def rarer(value, got):
    """What is not the most frequent one, where there is something else."""
    least, places = value.min(-1)
    return type(got)((least, places))


def signs_changed(_, got):
    return type(got)((-got[0], got[1], -got[2]))


def columns_exchanged(_, got):
    return type(got)((got[0].flip(-1), got[1], got[2]))


SIDE = 12  # of what is sorted; integers from -9 to 8, so that some are equal

CASES = [
    ("mm", torch.float32, same, "ok"),
    ("mm", torch.float32, first_changed(0.1), "wrong"),
    ("exp", torch.float32, gradient_changed(3), "wrong"),
    ("exp", torch.bfloat16, first_changed(900), "wrong"),
    ("logcumsumexp", torch.float32, same, "ok"),
    ("logcumsumexp", torch.float32, gradient_changed(3), "wrong"),
    ("grid_sampler_2d", torch.float16, first_changed(0.5), "wrong"),
    ("sort", torch.int64, same, "free"),
    ("sort", torch.int64, equals_reversed, "free"),
    ("sort", torch.int64, places_moved, "wrong"),
    ("sort", torch.int64, one_place_for_all, "wrong"),
    ("msort", torch.float32, same, "ok"),
    ("msort", torch.float32, gradients_moved, "wrong"),
    ("msort", torch.int64, same, "ok"),
    ("msort", torch.int64, first_changed(1), "wrong"),
    ("mode", torch.int64, same, "ok"),
    ("mode", torch.int64, rarer, "wrong"),
    ("linalg.svd", torch.float32, signs_changed, "free"),
    ("linalg.svd", torch.float32, columns_exchanged, "wrong"),
]


def sample_of(name, dtype):
    """One that the change means something for."""
    generator = torch.Generator().manual_seed(3)
    kind = judge.some_of(OPS[name], dtype, 2, dtype.is_floating_point)[0]
    if dtype == torch.int64:
        value = torch.randint(-9, 9, (3, SIDE), generator=generator)
        return type(kind)(value)
    if name in ("msort", "logcumsumexp"):
        value = torch.randn(3, SIDE, generator=generator).requires_grad_()
        return type(kind)(value) if name == "msort" else type(kind)((value * 1e4).detach().requires_grad_(), args=(1,))
    if name == "linalg.svd":
        return next(s for s in judge.some_of(OPS[name], dtype, 8, True) if s.input.numel() > 9)
    return kind


def main():
    if not torch.cuda.is_available():
        print("torch_ops_judge: PyTorch sees no GPU", file=sys.stderr)
        return 1
    bad = 0
    for name, dtype, change, want in CASES:
        status, why, _ = judge.judge(Planted(OPS[name], change), sample_of(name, dtype), dtype, False, hashlib.sha256())
        status = "free" if status == "ok" and why == "free" else status
        bad += status != want
        if status != want:
            print(f"FAIL {name} {dtype}, {change.__qualname__.split('.')[0]}: {status} ({why}), not {want}")
    print(f"{'FAIL' if bad else 'ok  '} torch_ops_judge: {len(CASES) - bad} of {len(CASES)} judged as they should be")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

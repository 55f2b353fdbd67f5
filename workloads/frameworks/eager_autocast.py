#!/usr/bin/env python3
"""Trains in mixed precision with eager PyTorch and compares with the same on the CPU.

usage: eager_autocast.py fp16|bf16

fp16 is with a GradScaler, whose scale makes the first step overflow on purpose, so that one is skipped.  Half precision has 11 bits and
bf16 8, so losses agree to that.
"""
import sys

import torch
from torch import nn

import eager


def prepare(device, kind):
    generator = eager.seeded(device)
    dtype = torch.float16 if kind == "fp16" else torch.bfloat16
    model = nn.Sequential(nn.Linear(64, 128), nn.LayerNorm(128), nn.GELU(), nn.Linear(128, 10)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler(device, init_scale=2.0**24, growth_interval=4, enabled=kind == "fp16")
    x, y = torch.randn(64, 64, generator=generator).to(device), torch.randint(0, 10, (64,), generator=generator).to(device)

    def step(_):
        optimizer.zero_grad()
        with torch.autocast(device, dtype=dtype):
            loss = nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss.item()

    return step, lambda: {"scale": scaler.get_scale()}


if __name__ == "__main__":
    sys.exit(eager.train(__doc__, prepare, tolerance=2e-3, kind=["fp16", "bf16"]))

#!/usr/bin/env python3
"""Trains a multi-layer perceptron with eager PyTorch and compares with the CPU: GELU, LayerNorm, AdamW, clipping, a cosine schedule."""
import sys

import torch
from torch import nn

import eager


def prepare(device):
    generator = eager.seeded(device)
    model = nn.Sequential(nn.Linear(64, 128), nn.LayerNorm(128), nn.GELU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 10)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
    x, y = torch.randn(64, 64, generator=generator).to(device), torch.randint(0, 10, (64,), generator=generator).to(device)

    def step(_):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y, label_smoothing=0.1)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        return loss.item()

    return step, lambda: eager.weights_of(model)


if __name__ == "__main__":
    sys.exit(eager.train(__doc__, prepare))

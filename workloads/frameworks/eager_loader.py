#!/usr/bin/env python3
"""Trains from a DataLoader with two worker processes and pinned memory, copied without waiting, with eager PyTorch; compares
with the CPU."""
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import eager


class Noise(Dataset):
    """Made where it is asked for, so the workers have something to do."""

    def __len__(self):
        return 64

    def __getitem__(self, i):
        generator = torch.Generator().manual_seed(i)
        return torch.randn(32, generator=generator), i % 5


def prepare(device):
    generator = eager.seeded(device)
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 5)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(Noise(), batch_size=16, shuffle=True, num_workers=2, pin_memory=device == "cuda", generator=generator,
                        persistent_workers=True)
    state = {"batches": iter(loader)}

    def step(_):
        try:
            x, y = next(state["batches"])
        except StopIteration:
            state["batches"] = iter(loader)
            x, y = next(state["batches"])
        if device == "cuda" and not x.is_pinned():
            raise RuntimeError("the loader's batches are not pinned")
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step, lambda: eager.weights_of(model)


if __name__ == "__main__":
    sys.exit(eager.train(__doc__, prepare))

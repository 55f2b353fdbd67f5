#!/usr/bin/env python3
"""torch.profiler around steps of eager PyTorch: the CPU's side names the operators, and the results are those without it."""
import sys

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

import eager


def results(device):
    generator = eager.seeded(device)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).to(device)
    x = torch.randn(8, 16, generator=generator).to(device)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        with record_function("my step"):
            y = model(x)
            y.sum().backward()
    calls = {event.key: event.count for event in profiler.key_averages()}
    return {"result": y, "gradient": model[0].weight.grad, "addmm": float(calls.get("aten::addmm", 0)),
            "relu": float(calls.get("aten::relu", 0)), "range": float(calls.get("my step", 0))}


if __name__ == "__main__":
    sys.exit(eager.compare(__doc__, results))

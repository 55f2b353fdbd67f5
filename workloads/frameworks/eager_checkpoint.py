#!/usr/bin/env python3
"""Gradient checkpointing with eager PyTorch: activations are computed twice, dropout has the same mask both times, and gradients are
the CPU's."""
import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import eager


def gradients(device, how):
    generator = eager.seeded(device)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(32, 32), nn.GELU()) for _ in range(6))).to(device)
    x = torch.randn(16, 32, generator=generator).to(device).requires_grad_()
    if how == "plain":
        y = model(x)
    elif how == "sequential":
        y = checkpoint_sequential(model, 3, x, use_reentrant=False)
    else:
        y = x
        for part in model:
            y = checkpoint(part, y, use_reentrant=how == "reentrant")
    y.square().sum().backward()
    return torch.cat([x.grad.flatten(), *(p.grad.flatten() for p in model.parameters())])


def dropout_agrees(device):
    """With a mask of its own the second time, the gradient would not be that of the result: y = x * mask, so x.grad * x = y."""
    torch.manual_seed(9)
    x = torch.ones(4096, device=device, requires_grad=True)
    y = checkpoint(lambda v: nn.functional.dropout(v * 1.0, 0.5), x, use_reentrant=False)
    y.sum().backward()
    return float(torch.equal(x.grad, y.detach()))


def results(device):
    found = {how: gradients(device, how) for how in ("plain", "sequential", "each", "reentrant")}
    return {**found, "dropout": dropout_agrees(device)}


if __name__ == "__main__":
    sys.exit(eager.compare(__doc__, results))

#!/usr/bin/env python3
"""Trains a ResNet with eager PyTorch and compares with the CPU.

usage: eager_resnet.py 18|50

Images are 64 x 64: at 32 x 32 batch norm sees four values per channel at the end, and even two versions of the CPU's library part.
Blocks begin as nothing: the scale of their last batch norm is 0, as in most recipes for training these networks.  With 1 the network of 50
layers is so sensitive that float32 and float64 on the CPU are 0.06 apart after one step; eager_layers.py compares each layer alone.
"""
import sys

import torch
from torch import nn

import eager

LAYERS = {"18": (2, 2, 2, 2), "50": (3, 4, 6, 3)}


def unit(into, out, kernel, stride=1):
    return nn.Sequential(nn.Conv2d(into, out, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(out))


class Block(nn.Module):
    """Two convolutions of 3 x 3, or one between two of 1 x 1 with four times the channels."""

    def __init__(self, into, wide, stride, is_deep):
        super().__init__()
        out = wide * 4 if is_deep else wide
        if is_deep:
            parts = [unit(into, wide, 1), nn.ReLU(), unit(wide, wide, 3, stride), nn.ReLU(), unit(wide, out, 1)]
        else:
            parts = [unit(into, wide, 3, stride), nn.ReLU(), unit(wide, out, 3)]
        self.body = nn.Sequential(*parts)
        nn.init.zeros_(self.body[-1][1].weight)
        self.past = nn.Identity() if stride == 1 and into == out else unit(into, out, 1, stride)

    def forward(self, x):
        return torch.relu(self.body(x) + self.past(x))


def resnet(depth, wide=16):
    """A quarter of the usual channels."""
    is_deep, into = depth == "50", wide
    parts = [unit(3, wide, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    for i, n in enumerate(LAYERS[depth]):
        for j in range(n):
            parts.append(Block(into, wide << i, 2 if i > 0 and j == 0 else 1, is_deep))
            into = (wide << i) * (4 if is_deep else 1)
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(into, 10))


def prepare(device, depth):
    generator = eager.seeded(device)
    model = resnet(depth).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    batches = [(torch.randn(8, 3, 64, 64, generator=generator), torch.randint(0, 10, (8,), generator=generator))]
    return eager.classifier(model, batches, optimizer, device), lambda: {}


if __name__ == "__main__":
    sys.exit(eager.train(__doc__, prepare, steps=5, tolerance=1e-3, depth=["18", "50"]))

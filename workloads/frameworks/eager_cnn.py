#!/usr/bin/env python3
"""Trains a convolutional network with eager PyTorch and compares with the CPU: batch norm, pooling, SGD with Nesterov's momentum."""
import sys

import torch
from torch import nn

import eager


def prepare(device):
    generator = eager.seeded(device)
    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
                          nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
                          nn.Linear(256, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True, weight_decay=1e-4)
    batches = [(torch.randn(16, 1, 28, 28, generator=generator), torch.randint(0, 10, (16,), generator=generator)) for _ in range(2)]
    return eager.classifier(model, batches, optimizer, device), lambda: eager.weights_of(model)


if __name__ == "__main__":
    sys.exit(eager.train(__doc__, prepare))

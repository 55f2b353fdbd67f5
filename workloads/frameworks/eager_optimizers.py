#!/usr/bin/env python3
"""Every kind of optimizer that PyTorch has, one by one, in its plain, foreach and fused form, with eager PyTorch; compares with the CPU."""
import sys

import torch
from torch import nn
from torch import optim

import eager

PLAIN = {"SGD": {"momentum": 0.9}, "Adam": {}, "AdamW": {"amsgrad": True}, "NAdam": {}, "RAdam": {}, "Adamax": {}, "Adadelta": {},
         "Adagrad": {}, "RMSprop": {"momentum": 0.5}, "ASGD": {}, "Rprop": {}, "LBFGS": {"max_iter": 3}}
FUSED = ("SGD", "Adam", "AdamW", "Adagrad")


def train(device, name, options, steps=3):
    generator = eager.seeded(device)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4)).to(device)
    optimizer = getattr(optim, name)(model.parameters(), lr=1e-2, **options)
    x, y = torch.randn(8, 16, generator=generator).to(device), torch.randn(8, 4, generator=generator).to(device)

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        return loss

    for _ in range(steps):
        optimizer.step(closure)
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def results(device):
    found = {}
    for name, options in PLAIN.items():
        ways = ["plain"] + (["foreach"] if name != "LBFGS" else []) + (["fused"] if name in FUSED else [])
        for way in ways:
            choice = {} if name == "LBFGS" else {"foreach": way == "foreach"}
            # On the CPU the plain form is the reference of all.
            if device == "cuda" and way == "fused":
                if name == "Adagrad":  # the CPU only
                    continue
                choice = {"fused": True}
            elif device == "cpu":
                choice = {}
            found[f"{name}-{way}"] = train(device, name, {**options, **choice})
    return {k: v for k, v in found.items() if k != "Adagrad-fused"}


if __name__ == "__main__":
    sys.exit(eager.compare(__doc__, results, tolerance=1e-4))

#!/usr/bin/env python3
"""Trains a recommender like DLRM with eager PyTorch and compares with the CPU: bags of embeddings, pairwise products, sparse gradients."""
import sys

import torch
from torch import nn

import eager

TABLES, ROWS, WIDE = 3, 200, 16


class Dlrm(nn.Module):
    def __init__(self):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(ROWS, WIDE, mode="sum", sparse=True) for _ in range(TABLES))
        self.bottom = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, WIDE))
        pairs = (TABLES + 1) * TABLES // 2
        self.top = nn.Sequential(nn.Linear(WIDE + pairs, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, dense, items, starts):
        x = self.bottom(dense)
        all_ = torch.stack([x, *(bag(i, s) for bag, i, s in zip(self.bags, items, starts))], 1)
        below = torch.tril_indices(TABLES + 1, TABLES + 1, -1, device=x.device)
        return self.top(torch.cat([x, (all_ @ all_.transpose(1, 2))[:, below[0], below[1]]], 1)).squeeze(1)


def prepare(device):
    generator = eager.seeded(device)
    model = Dlrm().to(device)
    sparse = torch.optim.SparseAdam(list(model.bags.parameters()), lr=1e-2)
    dense = torch.optim.Adagrad([*model.bottom.parameters(), *model.top.parameters()], lr=1e-2)
    x = torch.randn(32, 8, generator=generator).to(device)
    items = [torch.randint(0, ROWS, (96,), generator=generator).to(device) for _ in range(TABLES)]
    starts = [torch.arange(0, 96, 3).to(device)] * TABLES
    y = (torch.rand(32, generator=generator) < 0.3).float().to(device)

    def step(_):
        sparse.zero_grad()
        dense.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(model(x, items, starts), y)
        loss.backward()
        sparse.step()
        dense.step()
        return loss.item()

    return step, lambda: eager.weights_of(model)


if __name__ == "__main__":
    sys.exit(eager.train(__doc__, prepare))

#!/usr/bin/env python3
"""Trains an encoder like BERT with eager PyTorch to fill in masked words, and compares with the CPU: padding masks, fused attention."""
import sys

import torch
from torch import nn

import eager

VOCABULARY, WIDE, LENGTH = 100, 64, 24


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.word, self.place, self.side = nn.Embedding(VOCABULARY, WIDE, padding_idx=0), nn.Embedding(LENGTH, WIDE), nn.Embedding(2, WIDE)
        self.norm = nn.LayerNorm(WIDE)
        layer = nn.TransformerEncoderLayer(WIDE, 4, 128, dropout=0.0, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(WIDE, VOCABULARY)

    def forward(self, text, side):
        x = self.word(text) + self.place.weight + self.side(side)
        return self.out(self.encoder(self.norm(x), src_key_padding_mask=text == 0))


def prepare(device):
    generator = eager.seeded(device)
    model = Bert().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    text = torch.randint(2, VOCABULARY, (8, LENGTH), generator=generator)
    text[:, 18:] = torch.where(torch.arange(8)[:, None] % 2 == 0, 0, text[:, 18:])
    is_masked = (torch.rand(8, LENGTH, generator=generator) < 0.2) & (text != 0)
    goal = torch.where(is_masked, text, -100).to(device)
    text = torch.where(is_masked, 1, text).to(device)
    side = (torch.arange(LENGTH) >= 10).long().expand(8, -1).to(device)

    def step(_):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(text, side).flatten(0, 1), goal.flatten(), ignore_index=-100)
        loss.backward()
        optimizer.step()
        return loss.item()

    def rest():
        with torch.inference_mode():
            return {"scores": model.eval()(text, side)}

    return step, rest


if __name__ == "__main__":
    sys.exit(eager.train(__doc__, prepare))

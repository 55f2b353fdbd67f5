#!/usr/bin/env python3
"""Trains a small GPT with eager PyTorch, then generates with a cache of keys and values; losses and the text are
compared with the CPU's."""
import sys

import torch
from torch import nn
from torch.nn import functional as F

import eager

VOCABULARY, WIDE, LENGTH, HEADS = 64, 64, 32, 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDE), nn.LayerNorm(WIDE)
        self.qkv, self.out = nn.Linear(WIDE, 3 * WIDE), nn.Linear(WIDE, WIDE)
        self.up, self.down = nn.Linear(WIDE, 4 * WIDE), nn.Linear(4 * WIDE, WIDE)

    def forward(self, x, past):
        """`past` is what was seen before, keys and values, or None; so is the second result."""
        batch, length, _ = x.shape
        q, k, v = (t.view(batch, length, HEADS, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, 2))
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDE))
        return x + self.down(F.gelu(self.up(self.norm2(x)))), (k, v)


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(VOCABULARY, WIDE), nn.Embedding(2 * LENGTH, WIDE)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDE), nn.Linear(WIDE, VOCABULARY)

    def forward(self, text, past=(None, None)):
        begin = 0 if past[0] is None else past[0][0].shape[2]
        x = self.token(text) + self.place(torch.arange(begin, begin + text.shape[1], device=text.device))
        cache = []
        for block, old in zip(self.blocks, past):
            x, new = block(x, old)
            cache.append(new)
        return self.head(self.norm(x)), cache


@torch.inference_mode()
def generate(model, text, n):
    scores, cache = model(text)
    for _ in range(n):
        last = scores[:, -1].argmax(1, keepdim=True)
        text = torch.cat([text, last], 1)
        scores, cache = model(last, cache)
    return text, scores


def prepare(device):
    generator = eager.seeded(device)
    model = Gpt().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    text = torch.randint(0, VOCABULARY, (8, LENGTH + 1), generator=generator).to(device)

    def step(_):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(text[:, :-1])[0].flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    def rest():
        words, scores = generate(model, text[:2, :8], 16)
        return {"text": words, "scores": scores}

    return step, rest


if __name__ == "__main__":
    sys.exit(eager.train(__doc__, prepare))

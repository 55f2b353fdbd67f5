#!/usr/bin/env python3
"""Trains a small model with torch.compile on the GPU and on the CPU, from equal weights on equal data, and compares the loss.

usage: torch_train.py mlp|cnn|gpt [--steps=50] [--gpu-only] [--digest FILE]
       torch_train.py MODEL --seconds=S    trains on the GPU for that long, and prints how fast

Forward, backward and optimizer are compiled; data are made on the CPU and moved.  Folding of constants and
padding of shapes are off, because they run PyTorch's own kernels while compiling, and the wheel has those as machine code only.
--digest writes a hash of the losses and of each weight after the last step, for comparing runs bit by bit.
"""
import argparse
import hashlib
import itertools
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import load

OPTIONS = {"joint_graph_constant_folding": False, "shape_padding": False}


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 10))

    def forward(self, x):
        return self.layers(x)

    @staticmethod
    def data(generator):
        return torch.randn(64, 64, generator=generator), torch.randint(0, 10, (64,), generator=generator)


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(1, 8, 3, padding=1)
        self.b = nn.Conv2d(8, 16, 3, padding=1)
        self.out = nn.Linear(16 * 7 * 7, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.a(x)), 2)
        x = F.max_pool2d(F.relu(self.b(x)), 2)
        return self.out(x.flatten(1))

    @staticmethod
    def data(generator):
        return torch.randn(16, 1, 28, 28, generator=generator), torch.randint(0, 10, (16,), generator=generator)


class Block(nn.Module):
    def __init__(self, wide, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(wide), nn.LayerNorm(wide)
        self.qkv, self.proj = nn.Linear(wide, 3 * wide), nn.Linear(wide, wide)
        self.up, self.down = nn.Linear(wide, 4 * wide), nn.Linear(4 * wide, wide)

    def forward(self, x):
        batch, length, wide = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(wide, 2))
        scores = q @ k.transpose(2, 3) / (wide // self.heads) ** 0.5
        after = torch.arange(length, device=x.device)[None, :] > torch.arange(length, device=x.device)[:, None]
        mixed = torch.softmax(scores.masked_fill(after, float("-inf")), 3) @ v
        x = x + self.proj(mixed.transpose(1, 2).reshape(batch, length, wide))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    VOCABULARY, WIDE, LENGTH = 64, 64, 32

    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(self.VOCABULARY, self.WIDE)
        self.place = nn.Parameter(torch.randn(self.LENGTH, self.WIDE) * 0.02)
        self.blocks = nn.ModuleList(Block(self.WIDE, 4) for _ in range(2))
        self.norm, self.out = nn.LayerNorm(self.WIDE), nn.Linear(self.WIDE, self.VOCABULARY)

    def forward(self, x):
        x = self.token(x) + self.place
        for block in self.blocks:
            x = block(x)
        return self.out(self.norm(x)).flatten(0, 1)

    @classmethod
    def data(cls, generator):
        text = torch.randint(0, cls.VOCABULARY, (8, cls.LENGTH + 1), generator=generator)
        return text[:, :-1].contiguous(), text[:, 1:].flatten().contiguous()


MODELS = {"mlp": Mlp, "cnn": Cnn, "gpt": Gpt}


def prepare(name, device):
    """A function that does step number i and returns its loss, and one that returns the weights."""
    torch.manual_seed(5)
    generator = torch.Generator().manual_seed(6)
    model = MODELS[name]()
    batches = [tuple(t.to(device) for t in model.data(generator)) for _ in range(4)]
    one = torch.ones(()).to(device)
    model = model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loss_of = torch.compile(lambda x, y: -torch.log_softmax(model(x), 1).gather(1, y[:, None]).mean(), options=OPTIONS)
    update = torch.compile(optimizer.step, options=OPTIONS)

    def step(i):
        x, y = batches[i % 4]
        loss = loss_of(x, y)
        loss.backward(one)
        update()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach().cpu().item()

    return step, lambda: [p.detach().cpu().numpy() for p in model.parameters()]


def train(name, device, steps):
    step, weights = prepare(name, device)
    losses, begin = [], 0.0
    for i in range(steps):
        losses.append(step(i))
        if i == 1:
            begin = time.perf_counter()
    seconds = (time.perf_counter() - begin) / max(1, steps - 2)
    return np.array(losses), seconds, weights()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--gpu-only", action="store_true")
    parser.add_argument("--digest")
    load.add_trainer_arguments(parser)
    o = parser.parse_args()
    if not torch.cuda.is_available():
        print("torch_train: PyTorch sees no GPU", file=sys.stderr)
        return 1
    if o.seconds:
        trainer, (step, _), numbers = load.Trainer(), prepare(o.model, "cuda"), itertools.count()
        return trainer.run(f"torch-{o.model}", lambda: step(next(numbers)), o.seconds)
    gpu, gpu_s, weights = train(o.model, "cuda", o.steps)
    if o.digest:
        with open(o.digest, "w", encoding="utf-8") as f:
            for name, values in [("losses", gpu), *((f"weight{i}", w) for i, w in enumerate(weights))]:
                f.write(f"{name} {hashlib.sha256(np.ascontiguousarray(values)).hexdigest()}\n")
    if o.gpu_only:
        print(f"torch_train: {o.model}: loss {gpu[0]:.4f} -> {gpu[-1]:.4f}, {gpu_s * 1e3:.1f} ms a step")
        return 0
    cpu, cpu_s, _ = train(o.model, "cpu", o.steps)
    start, all_ = np.max(np.abs(gpu[:5] - cpu[:5])), np.max(np.abs(gpu - cpu))
    good = np.isfinite(gpu).all() and start < 1e-3 and all_ < 0.05 and gpu[-4:].mean() < gpu[:4].mean()
    print(f"{'ok  ' if good else 'FAIL'} {o.model}: loss {gpu[0]:.4f} -> {gpu[-1]:.4f}, CPU {cpu[-1]:.4f}, "
          f"largest difference {all_:.2g}, {gpu_s * 1e3:.1f} ms a step, CPU {cpu_s * 1e3:.1f} ms")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

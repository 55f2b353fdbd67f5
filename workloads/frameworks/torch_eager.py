#!/usr/bin/env python3
"""Trains a small model with PyTorch in eager mode on the GPU and tells its pace: streams, the caching allocator, pinned copies, a
CUDA graph.

usage: torch_eager.py [--steps=10] [--compare] [--digest FILE]

--compare trains on the CPU as well and compares the loss; --digest writes a hash of losses, weights and what the graph left.
"""
import argparse
import hashlib
import sys
import time

import torch
from torch import nn


def train(device, steps):
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.0), nn.Linear(128, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(6)
    x, y = torch.randn(64, 64, generator=generator), torch.randint(0, 10, (64,), generator=generator)
    if device == "cuda":
        x, y = x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)
    losses, begin = [], time.perf_counter()
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().to("cpu").item())
    weights = torch.cat([p.detach().cpu().flatten() for p in model.parameters()])
    return losses, (time.perf_counter() - begin) / steps, weights


def beside_and_captured():
    """Work on a second stream that waits for an event of the first, and a graph that is replayed."""
    stream, event = torch.cuda.Stream(), torch.cuda.Event()
    x = torch.ones(1000).to("cuda")
    event.record()
    with torch.cuda.stream(stream):
        stream.wait_event(event)
        y = x * 2 + 1
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        z = y * y
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    return z.to("cpu")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--digest")
    o = parser.parse_args()
    if not torch.cuda.is_available():
        print("torch_eager: PyTorch sees no GPU", file=sys.stderr)
        return 1
    losses, pace, weights = train("cuda", o.steps)
    left = beside_and_captured()
    if o.digest:
        with open(o.digest, "w", encoding="utf-8") as f:
            for name, value in (("losses", torch.tensor(losses)), ("weights", weights), ("left", left)):
                f.write(f"{name} {hashlib.sha256(value.numpy().tobytes()).hexdigest()}\n")
    print(f"torch_eager: {o.steps} steps, {pace * 1e3:.1f} ms each, {torch.cuda.max_memory_allocated() >> 10} KiB at most")
    if o.compare:
        far = max(abs(a - b) for a, b in zip(losses, train("cpu", o.steps)[0]))
        print(f"{'ok  ' if far < 1e-3 else 'FAIL'} eager: largest difference {far:.2g}")
        return 0 if far < 1e-3 else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

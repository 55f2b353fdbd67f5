#!/usr/bin/env python3
"""CUDA graphs with eager PyTorch: a whole training step is captured and replayed with other data; losses and weights are the CPU's."""
import sys

import torch
from torch import nn

import eager


def prepare(device):
    generator = eager.seeded(device)
    model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 8)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    batches = [(torch.randn(16, 32, generator=generator), torch.randn(16, 8, generator=generator)) for _ in range(4)]
    x, y = torch.zeros(16, 32, device=device), torch.zeros(16, 8, device=device)

    def once():
        optimizer.zero_grad(set_to_none=False)
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def fill(i):
        x.copy_(batches[i % 4][0])
        y.copy_(batches[i % 4][1])

    # Before a capture everything has to have run once, on a stream of its own; the CPU does these steps as well.
    fill(0)
    if device == "cpu":
        for _ in range(3):
            once()
        again = once
    else:
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(3):
                once()
        torch.cuda.current_stream().wait_stream(beside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kept = once()

        def again():
            graph.replay()
            return kept

    def step(i):
        fill(i)
        return again().item()

    return step, lambda: eager.weights_of(model)


if __name__ == "__main__":
    sys.exit(eager.train(__doc__, prepare))

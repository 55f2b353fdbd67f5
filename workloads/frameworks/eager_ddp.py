#!/usr/bin/env python3
"""DistributedDataParallel with eager PyTorch: two processes train on one GPU, each on half of a batch (gloo);
compared with one process on the CPU that has all of it."""
import os
import socket
import sys

import torch
from torch import distributed, multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel

import eager

STEPS = 5


def build(device):
    generator = eager.seeded(device)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4)).to(device)
    return model, torch.randn(16, 32, generator=generator).to(device), torch.randn(16, 4, generator=generator).to(device)


def steps(model, x, y):
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def work(rank, port, answers):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    distributed.init_process_group("gloo", rank=rank, world_size=2)
    model, x, y = build("cuda")
    losses = steps(DistributedDataParallel(model), x[rank * 8:rank * 8 + 8], y[rank * 8:rank * 8 + 8])
    total = torch.tensor(losses).to("cuda")
    distributed.all_reduce(total)
    answers.put((rank, (total / 2).cpu().tolist(), [p.detach().cpu().tolist() for p in model.parameters()]))
    distributed.barrier()
    distributed.destroy_process_group()


def results(device):
    if device == "cpu":
        model, x, y = build(device)
        losses, weights = steps(model, x, y), list(model.parameters())
        return {"losses": torch.tensor(losses), **{f"rank{r}_weight{i}": p for r in (0, 1) for i, p in enumerate(weights)}}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    processes = multiprocessing.spawn(work, (port, answers), nprocs=2, join=False)
    got = dict((rank, (losses, weights)) for rank, losses, weights in (answers.get(), answers.get()))
    while not processes.join():
        pass
    return {"losses": torch.tensor(got[0][0]),
            **{f"rank{r}_weight{i}": torch.tensor(p) for r in (0, 1) for i, p in enumerate(got[r][1])}}


if __name__ == "__main__":
    sys.exit(eager.compare(__doc__, results, tolerance=1e-5))

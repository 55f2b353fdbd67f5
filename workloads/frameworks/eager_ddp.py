#!/usr/bin/env python3
"""DistributedDataParallel with eager PyTorch: processes train, each on its part of a batch; compared with one process on the CPU that has
all of it.

usage: eager_ddp.py gloo|nccl

gloo is with two processes on one GPU.  NCCL wants a GPU for each of them: there are as many as there are GPUs, two at most.
"""
import sys
import tempfile

import torch
from torch import distributed, multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel

import eager

STEPS = 5


def processes_with(backend):
    return 2 if backend == "gloo" else min(2, torch.cuda.device_count())


def build(device):
    generator = eager.seeded(device.partition(":")[0])
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


def work(rank, n, backend, meeting, answers):
    device = f"cuda:{rank if backend == 'nccl' else 0}"
    torch.cuda.set_device(device)
    # By a file: the way by a port takes libuv, which Debian's PyTorch is built without.
    distributed.init_process_group(backend, init_method=f"file://{meeting}", rank=rank, world_size=n)
    model, x, y = build(device)
    part = slice(rank * len(x) // n, (rank + 1) * len(x) // n)
    losses = steps(DistributedDataParallel(model), x[part], y[part])
    total = torch.tensor(losses).to(device)
    distributed.all_reduce(total)
    answers.put((rank, (total / n).cpu().tolist(), [p.detach().cpu().tolist() for p in model.parameters()]))
    distributed.barrier()
    distributed.destroy_process_group()


def results(device, backend):
    n = processes_with(backend)
    if device == "cpu":
        model, x, y = build(device)
        losses, weights = steps(model, x, y), list(model.parameters())
        return {"losses": torch.tensor(losses), **{f"rank{r}_weight{i}": p for r in range(n) for i, p in enumerate(weights)}}
    context = multiprocessing.get_context("spawn")
    answers, got, are_done = context.SimpleQueue(), {}, False
    with tempfile.TemporaryDirectory() as folder:
        processes = multiprocessing.spawn(work, (n, backend, f"{folder}/meeting", answers), nprocs=n, join=False)
        while not are_done or not answers.empty():
            while not answers.empty():
                rank, losses, weights = answers.get()
                got[rank] = losses, weights
            are_done = processes.join(timeout=1)  # raises what one of them raised
    return {"losses": torch.tensor(got[0][0]),
            **{f"rank{r}_weight{i}": torch.tensor(p) for r in range(n) for i, p in enumerate(got[r][1])}}


if __name__ == "__main__":
    sys.exit(eager.compare(__doc__, results, tolerance=1e-5, backend=["gloo", "nccl"]))

#!/usr/bin/env python3
"""DistributedDataParallel with eager PyTorch: two processes train on one GPU, each on half of a batch (gloo);
compared with one process on the CPU that has all of it."""
import sys
import tempfile

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


def work(rank, meeting, answers):
    # By a file: the way by a port takes libuv, which Debian's PyTorch is built without.
    distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
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
    context = multiprocessing.get_context("spawn")
    answers, got, are_done = context.SimpleQueue(), {}, False
    with tempfile.TemporaryDirectory() as folder:
        processes = multiprocessing.spawn(work, (f"{folder}/meeting", answers), nprocs=2, join=False)
        while not are_done or not answers.empty():
            while not answers.empty():
                rank, losses, weights = answers.get()
                got[rank] = losses, weights
            are_done = processes.join(timeout=1)  # raises what one of them raised
    return {"losses": torch.tensor(got[0][0]),
            **{f"rank{r}_weight{i}": torch.tensor(p) for r in (0, 1) for i, p in enumerate(got[r][1])}}


if __name__ == "__main__":
    sys.exit(eager.compare(__doc__, results, tolerance=1e-5))

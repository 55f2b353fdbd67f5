"""What the scripts eager_*.py have in common: they run something with eager PyTorch on the GPU and on the CPU, and compare.

A training gives prepare(device), which returns a function that does step i and returns its loss, and one that returns tensors to
compare besides; anything else gives results(device), a dict of tensors or numbers.  Options of all of them:

  --steps=N      steps of a training
  --gpu-only     nothing is run on the CPU
  --digest FILE  a hash of each result, for comparing runs bit by bit
  --seconds=S    trains on the GPU for that long, and prints how fast
"""
import argparse
import hashlib
import itertools
import sys
import time

import torch
from torch import nn

import load


def seeded(device):
    """The same weights and data everywhere: they are made on the CPU."""
    torch.manual_seed(5)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    if device == "cuda":
        torch.backends.cudnn.deterministic = True
    return torch.Generator().manual_seed(6)


def classifier(model, batches, optimizer, device):
    """step(i) of a model that tells classes; batches are on the CPU."""
    batches = [tuple(t.to(device) for t in b) for b in batches]

    def step(i):
        x, y = batches[i % len(batches)]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def weights_of(model):
    return {name: p.detach() for name, p in model.state_dict().items() if p.is_floating_point()}


def _options(doc, steps, more):
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, choices in more.items():
        parser.add_argument(name, choices=choices, nargs="?", default=choices[0])
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--gpu-only", action="store_true")
    parser.add_argument("--digest")
    load.add_trainer_arguments(parser)
    return parser.parse_args()


def _digest(path, results):
    with open(path, "w", encoding="utf-8") as f:
        for name, value in results.items():
            data = torch.as_tensor(value).detach().cpu().contiguous()
            f.write(f"{name} {hashlib.sha256(data.reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()}\n")


def _far(got, want):
    """The largest difference, over the larger of 1 and the largest value; and whose it is."""
    worst, whose = 0.0, "nothing"
    for name, value in want.items():
        a, b = (torch.as_tensor(v).detach().cpu().double() for v in (got[name], value))
        if a.shape != b.shape or not torch.equal(torch.isfinite(a), torch.isfinite(b)):
            return float("inf"), name
        apart = ((a - b).abs().max() / max(1.0, b.abs().max().item())).item() if a.numel() else 0.0
        if apart > worst:
            worst, whose = apart, name
    return worst, whose


def _judge(name, gpu, cpu, tolerance, text):
    apart, whose = _far(gpu, cpu)
    good = apart <= tolerance
    print(f"{'ok  ' if good else 'FAIL'} {name}: {text}largest difference {apart:.2g} ({whose}), {tolerance:g} allowed")
    return 0 if good else 1


def train(doc, prepare, steps=10, tolerance=1e-4, **more):
    """Main function of a training; `more` are arguments of prepare by position, each with what it may be.  Returns the exit status."""
    o = _options(doc, steps, more)
    arguments = [getattr(o, name) for name in more]
    name = " ".join([sys.argv[0].rpartition("/")[2].removesuffix(".py"), *arguments])
    if not torch.cuda.is_available():
        print(f"{name}: PyTorch sees no GPU", file=sys.stderr)
        return 1
    if o.seconds:
        trainer, (step, _), numbers = load.Trainer(), prepare("cuda", *arguments), itertools.count()
        return trainer.run(name, lambda: step(next(numbers)), o.seconds)

    def run(device):
        step, rest = prepare(device, *arguments)
        begin, losses = time.perf_counter(), [step(i) for i in range(o.steps)]
        return {"losses": torch.tensor(losses, dtype=torch.float64), **rest()}, (time.perf_counter() - begin) / o.steps

    gpu, seconds = run("cuda")
    if o.digest:
        _digest(o.digest, gpu)
    losses = gpu["losses"]
    text = f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, {seconds * 1e3:.0f} ms a step, "
    if o.gpu_only:
        print(f"{name}: {text}")
        return 0
    return _judge(name, gpu, run("cpu")[0], tolerance, text)


def compare(doc, results, tolerance=1e-5, **more):
    """Main function of anything else.  Returns the exit status."""
    o = _options(doc, 0, more)
    arguments = [getattr(o, name) for name in more]
    name = " ".join([sys.argv[0].rpartition("/")[2].removesuffix(".py"), *arguments])
    if not torch.cuda.is_available():
        print(f"{name}: PyTorch sees no GPU", file=sys.stderr)
        return 1
    gpu = results("cuda", *arguments)
    if o.digest:
        _digest(o.digest, gpu)
    if o.gpu_only:
        print(f"{name}: {len(gpu)} results")
        return 0
    return _judge(name, gpu, results("cpu", *arguments), tolerance, f"{len(gpu)} results, ")

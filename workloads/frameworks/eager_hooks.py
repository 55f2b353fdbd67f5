#!/usr/bin/env python3
"""Hooks of modules, tensors and saved values with eager PyTorch, a function with a gradient of its own, and second
derivatives; compares with the CPU."""
import sys

import torch
from torch import nn

import eager


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * gradient


def results(device):
    generator, found = eager.seeded(device), {}
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 16)).to(device)
    model[0].register_forward_hook(lambda _, given, got: found.update(forward=got.detach()))
    model[1].register_full_backward_hook(lambda _, given, got: found.update(backward=got[0].detach()))
    model[2].weight.register_post_accumulate_grad_hook(lambda p: found.update(gathered=p.grad.detach().clone()))
    x = torch.randn(128, 64, generator=generator).to(device).requires_grad_()
    x.register_hook(lambda g: found.update(tensor=g.detach()) or g * 2)
    with torch.autograd.graph.save_on_cpu(pin_memory=device == "cuda"):
        y = Cube.apply(model(x))
    y.sum().backward()
    found["doubled"] = x.grad
    z = torch.randn(5, generator=generator).to(device).requires_grad_()
    (first,) = torch.autograd.grad((z.sin() * z).sum(), z, create_graph=True)
    found["second"] = torch.autograd.grad(first.square().sum(), z)[0]
    found["jacobian"] = torch.func.jacrev(lambda v: v.softmax(0))(z.detach())
    found["mapped"] = torch.func.vmap(lambda v: v @ v.flip(0))(x.detach())
    return found


if __name__ == "__main__":
    sys.exit(eager.compare(__doc__, results))

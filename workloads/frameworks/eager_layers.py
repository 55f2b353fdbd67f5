#!/usr/bin/env python3
"""Each layer of a ResNet-50 alone, forward and backward, with eager PyTorch in float32, compared with float64 on the CPU.

Inputs and gradients are those of one step in float64 with weights as PyTorch makes them; as a whole that network is too sensitive to be
compared (see eager_resnet.py), while a layer by itself is right to the last bits or wrong.  Each tensor is compared in units of its
own largest value.
"""
import copy
import sys

import torch
from torch import nn

import eager
import eager_resnet


def a_step():
    """By name: layer, input, and gradient of the output, of all layers in one step, rounded to what float32 can hold."""
    generator, seen = eager.seeded("cpu"), {}
    model = eager_resnet.resnet("50")
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
    layers = {name: copy.deepcopy(m) for name, m in model.named_modules() if not list(m.children()) and not isinstance(m, nn.Identity)}

    def watch(name):
        def hook(_, given, got):
            seen[name] = [layers[name], given[0].detach().float()]
            got.register_hook(lambda gradient: seen[name].append(gradient.detach().float()))
        return hook

    for name, module in model.double().named_modules():
        if name in layers:
            module.register_forward_hook(watch(name))
    x, y = torch.randn(8, 3, 64, 64, generator=generator).double(), torch.randint(0, 10, (8,), generator=generator)
    nn.functional.cross_entropy(model(x), y).backward()
    return seen


def alone(layer, given, gradient, dtype, device):
    """Output and gradients of one layer, on the CPU, in float64."""
    layer, given = copy.deepcopy(layer).to(device, dtype), given.to(device, dtype).requires_grad_()
    got = layer(given)
    found = [got, *torch.autograd.grad(got, [given, *layer.parameters()], gradient.to(device, dtype))]
    return [t.detach().cpu().double() for t in found]


def results(device):
    found = {}
    for name, (layer, given, gradient) in a_step().items():
        right = alone(layer, given, gradient, torch.float64, "cpu")
        got = right if device == "cpu" else alone(layer, given, gradient, torch.float32, device)
        for what, a, b in zip(["output", "input", *(n for n, _ in layer.named_parameters())], got, right):
            found[f"{name}-{what}"] = a / b.abs().max().clamp(min=1e-30)
    return found


if __name__ == "__main__":
    sys.exit(eager.compare(__doc__, results, tolerance=2e-5))

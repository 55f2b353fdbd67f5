#!/usr/bin/env python3
"""An inference server in one process: requests come at random times and run in a model that torch.compile has compiled; answers are
compared with the CPU's.

usage: torch_serve.py [--seconds=10] [--wide=128] [--load=0.5 | --rate=R] [--seed=1] [--requests FILE]

Folding of constants and padding of shapes are off, because they run PyTorch's own kernels while compiling, and the wheel has those as
machine code only.
"""
import argparse
import sys

import torch
from torch import nn

import load

OPTIONS = {"joint_graph_constant_folding": False, "shape_padding": False}
BATCH = 8


def network(wide):
    torch.manual_seed(17)
    return nn.Sequential(nn.Linear(64, wide), nn.ReLU(), nn.Linear(wide, wide // 2), nn.GELU(), nn.Linear(wide // 2, 10), nn.Softmax(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=0, help="a second; if not said, what --load makes of it")
    parser.add_argument("--wide", type=int, default=128, help="of the first layer")
    load.add_server_arguments(parser)
    parser.set_defaults(seconds=10)
    o = parser.parse_args()
    if not torch.cuda.is_available():
        print("torch_serve: PyTorch sees no GPU", file=sys.stderr)
        return 1
    x = torch.randn(BATCH, 64, generator=torch.Generator().manual_seed(2))
    with torch.inference_mode():
        want = network(o.wide)(x)
        infer = torch.compile(network(o.wide).to("cuda"), options=OPTIONS)
        return load.serve("torch", lambda: infer(x.to("cuda")).cpu(), lambda got: (got - want).abs().max().item() < 1e-5, o, o.rate)


if __name__ == "__main__":
    sys.exit(main())

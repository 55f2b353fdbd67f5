#!/usr/bin/env python3
"""An inference server in one process with eager PyTorch: requests come at random times and run in a transformer encoder; each answer is
compared with the CPU's.

usage: torch_serve_eager.py [--seconds=10] [--wide=64] [--load=0.5 | --rate=R] [--seed=1] [--requests FILE] [--digest FILE]

--digest writes a hash of what the answers were: each different one once, so that it does not matter how many there are.
"""
import argparse
import hashlib
import sys

import torch
from torch import nn

import load


def network(wide):
    torch.manual_seed(17)
    layer = nn.TransformerEncoderLayer(wide, 4, 2 * wide, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Linear(32, wide), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
                         nn.Linear(wide, 10), nn.Softmax(2)).eval()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=0, help="a second; if not said, what --load makes of it")
    parser.add_argument("--wide", type=int, default=64, help="of the model")
    parser.add_argument("--digest")
    load.add_server_arguments(parser)
    parser.set_defaults(seconds=10)
    o = parser.parse_args()
    if not torch.cuda.is_available():
        print("torch_serve_eager: PyTorch sees no GPU", file=sys.stderr)
        return 1
    x = torch.randn(2, 16, 32, generator=torch.Generator().manual_seed(2))
    with torch.inference_mode():
        want, model = network(o.wide)(x), network(o.wide).to("cuda")
        answers = set()

        def is_right(got):
            if o.digest:
                answers.add(got.numpy().tobytes())
            return (got - want).abs().max().item() < 1e-5

        status = load.serve("torch-eager", lambda: model(x.to("cuda")).cpu(), is_right, o, o.rate)
    if o.digest:
        with open(o.digest, "w", encoding="utf-8") as f:
            f.write(f"answers {hashlib.sha256(b''.join(sorted(answers))).hexdigest()}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())

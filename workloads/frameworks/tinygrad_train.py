#!/usr/bin/env python3
"""Trains a small convolutional network with tinygrad on the GPU and on the CPU, from equal weights on equal data, and compares the loss.

usage: tinygrad_train.py [--steps=20]
"""
import argparse
import sys

import numpy as np
from tinygrad import Context, Tensor, nn
from tinygrad.nn.optim import SGD


class Net:
    def __init__(self, device):
        rng = np.random.default_rng(4)

        def weight(*shape):
            values = rng.standard_normal(shape).astype(np.float32) / np.sqrt(np.prod(shape[1:])).astype(np.float32)
            return Tensor(values, device=device).is_param_()

        self.a, self.b, self.c = weight(8, 1, 3, 3), weight(16, 8, 3, 3), weight(10, 16 * 5 * 5)

    def __call__(self, x):
        x = x.conv2d(self.a).relu().max_pool2d()
        x = x.conv2d(self.b).relu().max_pool2d()
        return x.flatten(1) @ self.c.T


def train(device, steps):
    rng = np.random.default_rng(8)
    x = rng.standard_normal((4, 16, 1, 28, 28)).astype(np.float32)
    y = rng.integers(0, 10, (4, 16)).astype(np.int32)
    net = Net(device)
    optimizer = SGD(nn.state.get_parameters(net), lr=0.05)
    losses = []
    with Context(TRAINING=1):
        for i in range(steps):
            optimizer.zero_grad()
            loss = net(Tensor(x[i % 4], device=device)).sparse_categorical_crossentropy(Tensor(y[i % 4], device=device)).backward()
            optimizer.step()
            losses.append(float(loss.item()))
    return np.array(losses)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    o = parser.parse_args()
    gpu = train("CUDA", o.steps)
    cpu = train("CPU", o.steps)
    far = np.max(np.abs(gpu - cpu))
    good = np.isfinite(gpu).all() and far < 1e-3 and gpu[-4:].mean() < gpu[:4].mean()
    print(f"{'ok  ' if good else 'FAIL'} tinygrad: loss {gpu[0]:.4f} -> {gpu[-1]:.4f}, CPU {cpu[-1]:.4f}, largest difference {far:.2g}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Streams and events with eager PyTorch: work beside work, in the order that events give it, with memory that streams share."""
import sys

import torch

import eager


def chain(device, x, n):
    """x -> (x W) / |x W|, n times; the GPU takes turns between two streams, each waiting for the other by an event."""
    w = torch.randn(64, 64, generator=torch.Generator().manual_seed(3)).to(device)
    if device == "cpu":
        for _ in range(n):
            x = x @ w
            x = x / x.norm()
        return x
    streams = [torch.cuda.Stream(), torch.cuda.Stream(priority=-1)]
    done = torch.cuda.Event()
    done.record()
    for i in range(n):
        stream = streams[i % 2]
        stream.wait_event(done)
        with torch.cuda.stream(stream):
            x.record_stream(stream)
            x = x @ w
            x = x / x.norm()
            done = torch.cuda.Event()
            done.record()
    done.synchronize()
    return x


def copies(device):
    """Down to pinned memory and up again, without waiting, on a stream."""
    x = torch.arange(100000, dtype=torch.float32).to(device)
    if device == "cpu":
        return x * 2 + 1
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        there = torch.empty(100000, pin_memory=True)
        there.copy_(x * 2, non_blocking=True)
        back = there.to(device, non_blocking=True) + 1
    torch.cuda.current_stream().wait_stream(stream)
    return back


def results(device):
    x = torch.randn(128, 64, generator=eager.seeded(device)).to(device)
    found = {"chain": chain(device, x, 20), "copies": copies(device)}
    if device == "cuda":
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        chain(device, x, 4)
        last.record()
        last.synchronize()
        found["time"] = float(first.elapsed_time(last) > 0)
    return {**found, "time": found.get("time", 1.0)}


if __name__ == "__main__":
    sys.exit(eager.compare(__doc__, results, tolerance=1e-4))

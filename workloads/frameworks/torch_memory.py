#!/usr/bin/env python3
"""Looks at the GPU's memory with PyTorch's own eyes while `tally-run --memory=SIZE` limits it: its properties, what is free, its
allocator, its error.  No kernel runs, so PyTorch wheels without PTX do as well.

usage: torch_memory.py --limit=SIZE_IN_MIB [--allocator=native|expandable|async]
"""
import argparse
import os
import sys

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--limit", type=int, required=True)
parser.add_argument("--allocator", choices=("native", "expandable", "async"), default="native")
o = parser.parse_args()
CHOICE = {"native": "backend:native", "expandable": "expandable_segments:True", "async": "backend:cudaMallocAsync"}
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = CHOICE[o.allocator]
import torch  # noqa: E402

MIB = 1 << 20
LIMIT = o.limit * MIB
failures = 0


def check(what, is_so, found=""):
    global failures
    failures += not is_so
    if not is_so:
        print(f"FAIL  {what}: {found}")


def copy_there_and_back(mib):
    """Data through the device, by copies alone."""
    there = torch.arange(mib * MIB // 4, dtype=torch.int32)
    here = torch.empty_like(there, device="cuda")
    here.copy_(there)
    return torch.equal(here.cpu(), there)


def fill():
    """Tensors of 16 MiB until PyTorch says that there is no more; they, and what it said."""
    held = []
    try:
        for _ in range(4 * LIMIT // (16 * MIB)):
            held.append(torch.empty(16 * MIB, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError as e:
        return held, e
    return held, None


def main():
    total = torch.cuda.get_device_properties(0).total_memory
    check("get_device_properties", total == LIMIT, total)
    free, total = torch.cuda.mem_get_info()
    check("mem_get_info", total == LIMIT and 0.8 * LIMIT < free <= LIMIT, (free, total))
    check("a copy", copy_there_and_back(4))

    # More than there is, at once: PyTorch's own error, with the size of that GPU in it.
    try:
        torch.empty(LIMIT + MIB, dtype=torch.uint8, device="cuda")
        check("one tensor beyond the limit", False, "was allocated")
    except torch.OutOfMemoryError as e:
        shown = f"{o.limit / 1024:.2f} GiB" if o.limit >= 1024 else f"{o.limit:.2f} MiB"
        check("the error", shown in str(e) or o.allocator == "async", str(e)[:300])
    check("a copy after the error", copy_there_and_back(4))

    # Bit by bit: all of it can be had, and no more.
    held, error = fill()
    got = 16 * MIB * len(held)
    check("the last tensor", error is not None, f"{got >> 20} MiB were allocated")
    check("what was allocated", 0.8 * LIMIT < got <= LIMIT, f"{got >> 20} MiB")
    free, _ = torch.cuda.mem_get_info()
    check("what is free then", free < LIMIT - got + 64 * MIB, free >> 20)
    del held[len(held) // 2:]
    check("a copy with half of it held", copy_there_and_back(16))
    held.clear()
    torch.cuda.empty_cache()
    check("a copy with nothing held", copy_there_and_back(16))
    again, _ = fill()
    check("as much again", 16 * MIB * len(again) >= got - 32 * MIB, f"{16 * len(again)} MiB")
    again.clear()
    torch.cuda.empty_cache()

    if o.allocator == "native":  # the others refuse the call or round it
        torch.cuda.set_per_process_memory_fraction(0.5)
        held, _ = fill()
        half = 16 * MIB * len(held)
        check("half by set_per_process_memory_fraction", 0.4 * LIMIT < half <= 0.5 * LIMIT, f"{half >> 20} MiB")
    print(f"{'FAIL' if failures else 'ok  '}  torch {torch.__version__}, {o.allocator}: a GPU of {o.limit} MiB, {got >> 20} MiB in tensors, "
          f"then OutOfMemoryError, and on")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

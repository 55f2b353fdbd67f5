#!/usr/bin/env python3
"""Looks at the GPU's memory with TensorFlow's own eyes while `tally-run --memory=SIZE` limits it: what its allocator takes for the size of
the GPU, its error, and that it goes on.

usage: tf_memory.py --limit=SIZE_IN_MIB [--growth]      --growth: memory growth, else TensorFlow takes it all at the start
"""
import argparse
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from tensorflow.python.client import device_lib  # noqa: E402

MIB = 1 << 20
failures = 0


def check(what, is_so, found=""):
    global failures
    failures += not is_so
    if not is_so:
        print(f"FAIL  {what}: {found}")


def driver_memory():
    """Free and total as the driver tells this process."""
    import ctypes
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    status = ctypes.CDLL("libcuda.so.1").cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    return (free.value, total.value) if status == 0 else (0, 0)


tf.config.experimental.enable_tensor_float_32_execution(False)


def product_is_right():
    a = np.random.default_rng(3).standard_normal((128, 128)).astype(np.float32)
    with tf.device("/GPU:0"):
        got = tf.linalg.matmul(tf.constant(a), tf.constant(a)).numpy()
    return float(np.max(np.abs(got - a @ a))) < 1e-3


def fill(limit):
    """Variables of 32 MiB until TensorFlow says that there is no more."""
    held = []
    try:
        with tf.device("/GPU:0"):
            for _ in range(4 * limit // (32 * MIB)):
                held.append(tf.Variable(tf.zeros((32 * MIB // 4,), tf.float32)))
    except tf.errors.ResourceExhaustedError as e:
        return held, e
    return held, None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, required=True)
    parser.add_argument("--growth", action="store_true")
    o = parser.parse_args()
    limit = o.limit * MIB
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        print("FAIL  tf_memory: TensorFlow sees no GPU")
        return 1
    if o.growth:
        tf.config.experimental.set_memory_growth(gpus[0], True)
    check("a product", product_is_right())
    (bfc,) = [d.memory_limit for d in device_lib.list_local_devices() if d.device_type == "GPU"]
    check("the allocator's limit", 0.5 * limit < bfc <= limit, f"{bfc >> 20} MiB")
    free, total = driver_memory()
    check("the driver's total", total == limit, total)
    taken = total - free
    check("what is taken at the start", taken < limit / 2 if o.growth else taken > limit / 2, f"{taken >> 20} MiB")

    held, error = fill(limit)
    got = 32 * MIB * len(held)
    check("the last variable", error is not None, f"{got >> 20} MiB were allocated")
    check("what was allocated", 0.4 * limit < got <= limit, f"{got >> 20} MiB")
    used = tf.config.experimental.get_memory_info("GPU:0")["current"]
    check("get_memory_info", got <= used <= limit, f"{used >> 20} MiB")
    check("what the driver says then", driver_memory()[0] < limit - got + 64 * MIB, driver_memory())
    del held[len(held) // 2:]
    check("a product with half of it held", product_is_right())
    held.clear()
    again, _ = fill(limit)
    check("as much again", 32 * MIB * len(again) >= got - 64 * MIB, f"{32 * len(again)} MiB")
    again.clear()
    check("a product at the end", product_is_right())
    print(f"{'FAIL' if failures else 'ok  '}  TensorFlow {tf.__version__}{', growth' if o.growth else ''}: a GPU of {o.limit} MiB, allocator's limit "
          f"{bfc >> 20} MiB, {got >> 20} MiB in variables, then ResourceExhaustedError, and on")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

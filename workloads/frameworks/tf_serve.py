#!/usr/bin/env python3
"""An inference server in one process: requests come at random times, are batched, and run in a TensorFlow graph on the GPU; answers are
compared with the CPU's.

usage: tf_serve.py [--count=100] [--rate=20] [--digest FILE]
       tf_serve.py --seconds=S [--wide=128] [--load=0.5 | --rate=R]    one request at a time, and prints what was measured
"""
import argparse
import hashlib
import os
import queue
import sys
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from tensorflow import keras  # noqa: E402

import load  # noqa: E402

BATCH = 8


def network(wide):
    keras.utils.set_random_seed(17)
    return keras.Sequential([keras.Input((64,)), keras.layers.Dense(wide, activation="relu"),
                             keras.layers.Dense(wide // 2, activation="gelu"), keras.layers.Dense(10, activation="softmax")])


def serve(requests, answers, latencies, infer):
    """Takes what is there, up to a batch, pads it, and answers; None ends it."""
    while True:
        batch = [requests.get()]
        while len(batch) < BATCH and not requests.empty() and batch[-1] is not None:
            batch.append(requests.get_nowait())
        work = [r for r in batch if r is not None]
        if work:
            x = np.zeros((BATCH, 64), np.float32)
            x[: len(work)] = [r[1] for r in work]
            out = infer(tf.constant(x)).numpy()
            for i, (number, _, since) in enumerate(work):
                answers[number] = out[i]
                latencies.append(time.perf_counter() - since)
        if batch[-1] is None:
            return


def serve_for_seconds(infer, reference, o):
    x = np.random.default_rng(2).standard_normal((BATCH, 64)).astype(np.float32)
    with tf.device("/CPU:0"):
        want = reference(tf.constant(x)).numpy()
    return load.serve("tf", lambda: infer(tf.constant(x)).numpy(), lambda got: np.max(np.abs(got - want)) < 1e-5, o, o.rate)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100, help="of requests, where there are no --seconds")
    parser.add_argument("--rate", type=float, default=0, help="a second; 20 if not said, or what --load makes of it")
    parser.add_argument("--wide", type=int, default=128, help="of the first layer")
    parser.add_argument("--digest")
    load.add_server_arguments(parser)
    o = parser.parse_args()
    if not tf.config.list_physical_devices("GPU"):
        print("tf_serve: TensorFlow sees no GPU", file=sys.stderr)
        return 1
    tf.config.experimental.enable_tensor_float_32_execution(False)  # the CPU does not round its inputs either
    with tf.device("/GPU:0"):
        model = network(o.wide)

        @tf.function
        def infer(x):
            with tf.device("/GPU:0"):
                return model(x)

        infer(tf.zeros((BATCH, 64)))  # traced and loaded before the first request
    with tf.device("/CPU:0"):
        reference = network(o.wide)
    if o.seconds:
        return serve_for_seconds(infer, reference, o)
    rng = np.random.default_rng(2)
    inputs = rng.standard_normal((o.count, 64)).astype(np.float32)
    requests, answers, latencies = queue.Queue(), {}, []
    server = threading.Thread(target=serve, args=(requests, answers, latencies, infer))
    server.start()
    for number in range(o.count):
        time.sleep(rng.exponential(1 / (o.rate or 20)))
        requests.put((number, inputs[number], time.perf_counter()))
    requests.put(None)
    server.join()
    with tf.device("/CPU:0"):
        want = reference(tf.constant(inputs)).numpy()
    got = np.stack([answers[i] for i in range(o.count)]) if len(answers) == o.count else np.zeros_like(want)
    if o.digest:
        with open(o.digest, "w", encoding="utf-8") as f:
            f.write(f"answers {hashlib.sha256(got.tobytes()).hexdigest()}\n")
    far = float(np.max(np.abs(got - want)))
    p50, p99 = np.percentile(np.array(latencies or [0]) * 1e3, [50, 99])
    print(f"{'ok  ' if far < 1e-5 else 'FAIL'} serve: {len(answers)} of {o.count} answers, largest difference {far:.2g}, "
          f"P50 {p50:.1f} ms, P99 {p99:.1f} ms")
    return 0 if far < 1e-5 else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""How long TensorFlow takes to start: import, and first operations.  Prints a line of JSON.

usage: tf_start.py
"""
import json
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")


def main():
    begin = time.perf_counter()
    import tensorflow as tf  # pylint: disable=import-outside-toplevel

    imported = time.perf_counter()
    x = tf.random.uniform((64, 64))
    value = float(tf.reduce_sum(tf.nn.relu(tf.matmul(x, x))))
    done = time.perf_counter()
    print(json.dumps({"import_s": imported - begin, "first_s": done - imported, "gpus": len(tf.config.list_physical_devices("GPU")),
                      "value": value}), flush=True)
    return 0 if value > 0 else 1


if __name__ == "__main__":
    sys.exit(main())

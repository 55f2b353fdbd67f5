#!/usr/bin/env python3
"""Trains a small Keras model on the GPU in graph mode and on the CPU, from equal weights on equal data, and compares the loss.

usage: tf_train.py cnn|mlp|resnet|transformer [--steps=50] [--xla] [--gpu-only] [--digest FILE]
       tf_train.py MODEL --seconds=S    trains on the GPU for that long, and prints how fast

--digest writes a hash of the losses and of each weight after the last step, for comparing runs bit by bit.
"""
import argparse
import hashlib
import itertools
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
# Else convolutions are done by whichever algorithm was fastest in this run, and one that rounds otherwise may turn a ReLU over that
# is 1e-7 from zero: from there on the losses part.
os.environ.setdefault("TF_CUDNN_USE_AUTOTUNE", "0")
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from tensorflow import keras  # noqa: E402
from tensorflow.keras import layers  # noqa: E402

import load  # noqa: E402


def cnn():
    inputs = keras.Input((28, 28, 1))
    x = layers.Conv2D(16, 3, activation="relu")(inputs)
    x = layers.MaxPooling2D()(x)
    x = layers.Conv2D(32, 3, activation="relu")(x)
    x = layers.MaxPooling2D()(x)
    x = layers.Flatten()(x)
    x = layers.Dense(64, activation="relu")(x)
    return keras.Model(inputs, layers.Dense(10)(x)), (28, 28, 1), None


def resnet():
    def block(x, n, stride):
        y = layers.Conv2D(n, 3, strides=stride, padding="same", use_bias=False)(x)
        y = layers.ReLU()(layers.BatchNormalization()(y))
        y = layers.BatchNormalization()(layers.Conv2D(n, 3, padding="same", use_bias=False)(y))
        if stride != 1 or x.shape[-1] != n:
            x = layers.Conv2D(n, 1, strides=stride, use_bias=False)(x)
        return layers.ReLU()(layers.Add()([x, y]))

    inputs = keras.Input((16, 16, 3))
    x = layers.Conv2D(16, 3, padding="same")(inputs)
    for n, stride in ((16, 1), (32, 2), (64, 2)):
        x = block(x, n, stride)
    return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(x))), (16, 16, 3), None


def transformer():
    inputs = keras.Input((32,), dtype="int32")
    x = layers.Embedding(100, 32)(inputs)
    for _ in range(2):
        y = layers.MultiHeadAttention(4, 8)(x, x)
        x = layers.LayerNormalization()(layers.Add()([x, y]))
        y = layers.Dense(32)(layers.Dense(64, activation="gelu")(x))
        x = layers.LayerNormalization()(layers.Add()([x, y]))
    return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling1D()(x))), (32,), 100


def mlp():
    inputs = keras.Input((1024,))
    x = layers.Dense(1024, activation="relu")(inputs)
    x = layers.Dense(1024, activation="relu")(x)
    return keras.Model(inputs, layers.Dense(10)(x)), (1024,), None


MODELS = {"cnn": cnn, "mlp": mlp, "resnet": resnet, "transformer": transformer}
# With 0.05 the network amplifies rounding from step 30 on: on the CPU, with XLA and without, losses differ by 0.08 at step 45.
RATES = {"cnn": 0.02, "mlp": 0.002, "resnet": 0.05, "transformer": 0.05}


# Products of matrices are all that counts in the mlp, and only if they are not thin.
BATCHES = {"mlp": 256}


def prepare(name, device, use_xla):
    """A function that does step number i and returns its loss, and one that returns the weights."""
    batch = BATCHES.get(name, 32)
    keras.utils.set_random_seed(7)
    rng = np.random.default_rng(7)
    with tf.device(device):
        model, shape, vocabulary = MODELS[name]()
        optimizer = keras.optimizers.SGD(RATES[name], momentum=0.9)
        loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        optimizer.build(model.trainable_variables)

        @tf.function(jit_compile=use_xla)
        def step(x, y):
            with tf.GradientTape() as tape:
                loss = loss_of(y, model(x, training=True))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            return loss

    labels = rng.integers(0, 10, (4, batch))
    data = [rng.integers(0, vocabulary, (batch, *shape)).astype(np.int32) if vocabulary else
            (rng.standard_normal((batch, *shape)) + labels[i].reshape(-1, *([1] * len(shape))) * 0.1).astype(np.float32)
            for i in range(4)]

    def numbered(i):
        with tf.device(device):
            return float(step(tf.constant(data[i % 4]), tf.constant(labels[i % 4])))

    return numbered, lambda: [v.numpy() for v in model.variables]


def train(name, device, steps, use_xla):
    step, weights = prepare(name, device, use_xla)
    losses, begin = [], 0.0
    for i in range(steps):
        losses.append(step(i))
        if i == 1:
            begin = time.perf_counter()
    return np.array(losses), (time.perf_counter() - begin) / max(1, steps - 2), weights()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--xla", action="store_true")
    parser.add_argument("--gpu-only", action="store_true")
    parser.add_argument("--digest")
    load.add_trainer_arguments(parser)
    o = parser.parse_args()
    if not tf.config.list_physical_devices("GPU"):
        print("tf_train: TensorFlow sees no GPU", file=sys.stderr)
        return 1
    tf.config.experimental.enable_tensor_float_32_execution(False)  # the CPU does not round its inputs either
    if o.seconds:
        trainer, (step, _), numbers = load.Trainer(), prepare(o.model, "/GPU:0", o.xla), itertools.count()
        return trainer.run(f"tf-{o.model}", lambda: step(next(numbers)), o.seconds)
    gpu, gpu_s, weights = train(o.model, "/GPU:0", o.steps, o.xla)
    if o.digest:
        with open(o.digest, "w", encoding="utf-8") as f:
            for name, values in [("losses", gpu), *((f"weight{i}", w) for i, w in enumerate(weights))]:
                f.write(f"{name} {hashlib.sha256(np.ascontiguousarray(values)).hexdigest()}\n")
    if o.gpu_only:
        print(f"tf_train: {o.model}: loss {gpu[0]:.4f} -> {gpu[-1]:.4f}, {gpu_s * 1e3:.1f} ms a step")
        return 0
    cpu, cpu_s, _ = train(o.model, "/CPU:0", o.steps, o.xla)
    # Rounding differs from the first step on and grows with each: what holds at the start must be exact, the rest near.
    start, all_ = np.max(np.abs(gpu[:5] - cpu[:5])), np.max(np.abs(gpu - cpu))
    good = np.isfinite(gpu).all() and start < 1e-3 and all_ < 0.05 and gpu[-4:].mean() < gpu[:4].mean()
    print(f"{'ok  ' if good else 'FAIL'} {o.model}{' (xla)' if o.xla else ''}: loss {gpu[0]:.4f} -> {gpu[-1]:.4f}, CPU {cpu[-1]:.4f}, "
          f"largest difference {all_:.2g}, {gpu_s * 1e3:.1f} ms a step, CPU {cpu_s * 1e3:.1f} ms")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

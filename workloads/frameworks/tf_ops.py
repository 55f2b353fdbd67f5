#!/usr/bin/env python3
"""Operations of TensorFlow on the first GPU against its own CPU kernels, one by one.

usage: tf_ops.py [NAME ...] [--list] [--digest FILE]

Each operation runs on equal inputs on both devices; values must agree within the tolerance of its type.  --digest writes a line
per operation with a hash of the GPU's result, for comparing runs bit by bit.  Exit status 1 if any is wrong.
"""
import hashlib
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

RNG = np.random.default_rng(42)


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def pos(*shape):
    return (RNG.random(shape) + 0.1).astype(np.float32)


def unit(*shape):
    return (RNG.random(shape) * 1.8 - 0.9).astype(np.float32)


def i32(low, high, *shape):
    return RNG.integers(low, high, shape).astype(np.int32)


def boolean(*shape):
    return RNG.random(shape) < 0.5


class Op:
    """A function of tensors, its inputs, and how near the two devices must be."""

    def __init__(self, name, function, inputs, tolerance=2e-5, gradient=False):
        self.name, self.function, self.inputs, self.tolerance, self.gradient = name, function, inputs, tolerance, gradient

    def run(self, device):
        with tf.device(device):
            inputs = [tf.constant(x) for x in self.inputs]
            if not self.gradient:
                out = self.function(*inputs)
            else:
                with tf.GradientTape() as tape:
                    for x in inputs:
                        tape.watch(x)
                    y = self.function(*inputs)
                    total = tf.reduce_sum(y * tf.cos(tf.cast(tf.range(tf.size(y)), y.dtype) * 0.1 + 0.5)[: tf.size(y)]
                                          if y.shape.rank == 1 else y * y)
                out = tape.gradient(total, inputs)
            return [x.numpy() for x in tf.nest.flatten(out)]


def unary():
    table = {
        "abs": (tf.abs, f32), "neg": (tf.negative, f32), "sign": (tf.sign, f32), "square": (tf.square, f32),
        "sqrt": (tf.sqrt, pos), "rsqrt": (tf.math.rsqrt, pos), "exp": (tf.exp, f32), "expm1": (tf.math.expm1, f32),
        "log": (tf.math.log, pos), "log1p": (tf.math.log1p, pos), "sin": (tf.sin, f32), "cos": (tf.cos, f32),
        "tan": (tf.tan, unit), "asin": (tf.asin, unit), "acos": (tf.acos, unit), "atan": (tf.atan, f32),
        "sinh": (tf.sinh, f32), "cosh": (tf.cosh, f32), "tanh": (tf.tanh, f32), "asinh": (tf.asinh, f32),
        "atanh": (tf.atanh, unit), "sigmoid": (tf.sigmoid, f32), "softplus": (tf.nn.softplus, f32),
        "softsign": (tf.nn.softsign, f32), "relu": (tf.nn.relu, f32), "relu6": (tf.nn.relu6, f32), "elu": (tf.nn.elu, f32),
        "selu": (tf.nn.selu, f32), "gelu": (tf.nn.gelu, f32), "swish": (tf.nn.swish, f32),
        "leaky_relu": (tf.nn.leaky_relu, f32), "erf": (tf.math.erf, f32), "erfc": (tf.math.erfc, f32),
        "lgamma": (tf.math.lgamma, pos), "digamma": (tf.math.digamma, pos), "floor": (tf.floor, f32),
        "ceil": (tf.math.ceil, f32), "round": (tf.round, f32), "rint": (tf.math.rint, f32),
        "reciprocal": (tf.math.reciprocal, pos), "isnan": (tf.math.is_nan, f32), "isinf": (tf.math.is_inf, f32),
        "isfinite": (tf.math.is_finite, f32), "zeros_like": (tf.zeros_like, f32), "ones_like": (tf.ones_like, f32),
    }
    for name, (f, values) in table.items():
        yield Op(name, f, [values(37, 53)], 2e-4 if name in ("lgamma", "digamma", "tan") else 2e-5)


def binary():
    table = {
        "add": tf.add, "sub": tf.subtract, "mul": tf.multiply, "maximum": tf.maximum, "minimum": tf.minimum,
        "squared_difference": tf.math.squared_difference, "atan2": tf.atan2, "less": tf.less, "greater": tf.greater,
        "less_equal": tf.less_equal, "greater_equal": tf.greater_equal, "equal": tf.equal, "not_equal": tf.not_equal,
    }
    for name, f in table.items():
        yield Op(name, f, [f32(64, 33), f32(64, 33)])
    yield Op("add_broadcast", tf.add, [f32(8, 1, 17), f32(5, 17)])
    yield Op("div", tf.divide, [f32(64, 33), pos(64, 33)])
    yield Op("floordiv", tf.math.floordiv, [i32(-50, 50, 100), i32(1, 9, 100)])
    yield Op("floormod", tf.math.floormod, [i32(-50, 50, 100), i32(1, 9, 100)])
    yield Op("pow", tf.pow, [pos(40, 20), f32(40, 20)], 1e-4)
    yield Op("logical_and", tf.logical_and, [boolean(99), boolean(99)])
    yield Op("logical_or", tf.logical_or, [boolean(99), boolean(99)])
    yield Op("logical_not", tf.logical_not, [boolean(99)])
    yield Op("select", tf.where, [boolean(31, 7), f32(31, 7), f32(31, 7)])
    yield Op("add_f16", lambda a, b: a + b, [f32(50, 9).astype(np.float16), f32(50, 9).astype(np.float16)], 1e-3)
    yield Op("mul_f64", lambda a, b: a * b, [f32(50, 9).astype(np.float64), f32(50, 9).astype(np.float64)], 1e-12)
    yield Op("add_i64", lambda a, b: a + b, [i32(0, 9, 70).astype(np.int64), i32(0, 9, 70).astype(np.int64)])
    yield Op("bias_add", tf.nn.bias_add, [f32(16, 24), f32(24)])
    yield Op("bitwise_and", tf.bitwise.bitwise_and, [i32(0, 1 << 30, 64), i32(0, 1 << 30, 64)])
    yield Op("left_shift", tf.bitwise.left_shift, [i32(0, 1 << 10, 64), i32(0, 9, 64)])


def reductions():
    for name, f in {"sum": tf.reduce_sum, "mean": tf.reduce_mean, "max": tf.reduce_max, "min": tf.reduce_min,
                    "prod": tf.reduce_prod, "logsumexp": tf.reduce_logsumexp, "norm": tf.norm,
                    "std": tf.math.reduce_std, "variance": tf.math.reduce_variance}.items():
        values = pos if name == "prod" else f32
        yield Op(f"reduce_{name}_rows", lambda x, f=f: f(x, axis=1), [values(33, 65)], 1e-4)
        yield Op(f"reduce_{name}_columns", lambda x, f=f: f(x, axis=0), [values(33, 65)], 1e-4)
        yield Op(f"reduce_{name}_all", f, [values(11, 13)], 1e-4)
    yield Op("reduce_any", lambda x: tf.reduce_any(x, axis=1), [boolean(20, 30)])
    yield Op("reduce_all", lambda x: tf.reduce_all(x, axis=1), [boolean(20, 3)])
    yield Op("argmax", lambda x: tf.argmax(x, axis=1), [f32(40, 50)])
    yield Op("argmin", lambda x: tf.argmin(x, axis=0), [f32(40, 50)])
    yield Op("cumsum", lambda x: tf.cumsum(x, axis=1), [f32(12, 100)], 1e-4)
    yield Op("cumprod", lambda x: tf.math.cumprod(x, axis=0), [pos(12, 10)], 1e-4)
    yield Op("softmax", tf.nn.softmax, [f32(32, 100)])
    yield Op("log_softmax", tf.nn.log_softmax, [f32(32, 100)])
    yield Op("l2_normalize", lambda x: tf.math.l2_normalize(x, axis=1), [f32(32, 100)])
    yield Op("cross_entropy", lambda x: tf.nn.softmax_cross_entropy_with_logits(tf.nn.softmax(x * 2), x), [f32(16, 10)])
    yield Op("sparse_cross_entropy", lambda y, x: tf.nn.sparse_softmax_cross_entropy_with_logits(y, x),
             [i32(0, 10, 16), f32(16, 10)])
    yield Op("segment_sum", lambda x, s: tf.math.unsorted_segment_sum(x, s, 7), [f32(50, 6), i32(0, 7, 50)], 1e-4)
    yield Op("segment_max", lambda x, s: tf.math.unsorted_segment_max(x, s, 7), [f32(50, 6), i32(0, 7, 50)])
    yield Op("bincount", lambda x: tf.math.bincount(x, minlength=10, maxlength=10), [i32(0, 10, 300)])
    yield Op("top_k", lambda x: tf.math.top_k(x, 5).values, [f32(8, 100)])
    yield Op("sort", lambda x: tf.sort(x, axis=1), [f32(8, 100)])


def shapes():
    yield Op("concat", lambda a, b: tf.concat([a, b], 1), [f32(10, 7), f32(10, 9)])
    yield Op("stack", lambda a, b: tf.stack([a, b]), [f32(10, 7), f32(10, 7)])
    yield Op("split", lambda a: tf.split(a, 3, axis=1), [f32(10, 9)])
    yield Op("unstack", lambda a: tf.unstack(a, axis=1), [f32(10, 3)])
    yield Op("transpose", lambda a: tf.transpose(a), [f32(70, 45)])
    yield Op("transpose_4d", lambda a: tf.transpose(a, [0, 3, 1, 2]), [f32(2, 9, 8, 5)])
    yield Op("reshape", lambda a: tf.reshape(a, [-1, 6]), [f32(9, 4)])
    yield Op("slice", lambda a: a[2:7, 1::3], [f32(10, 20)])
    yield Op("reverse", lambda a: tf.reverse(a, [1]), [f32(10, 20)])
    yield Op("roll", lambda a: tf.roll(a, 3, 1), [f32(10, 20)])
    yield Op("tile", lambda a: tf.tile(a, [3, 2]), [f32(5, 7)])
    yield Op("pad", lambda a: tf.pad(a, [[1, 2], [3, 0]]), [f32(5, 7)])
    yield Op("pad_reflect", lambda a: tf.pad(a, [[1, 2], [3, 0]], "REFLECT"), [f32(5, 7)])
    yield Op("gather", tf.gather, [f32(30, 8), i32(0, 30, 12)])
    yield Op("gather_nd", tf.gather_nd, [f32(30, 8), i32(0, 8, 12, 2)])
    yield Op("scatter_nd", lambda i, x: tf.scatter_nd(i, x, [20, 4]),
             [np.arange(10, dtype=np.int32)[:, None] * 2, f32(10, 4)])
    yield Op("scatter_update", tf.tensor_scatter_nd_update, [f32(20, 4), np.array([[3], [7]], np.int32), f32(2, 4)])
    yield Op("one_hot", lambda i: tf.one_hot(i, 12), [i32(0, 12, 30)])
    yield Op("range_fill", lambda a: tf.fill([7, 5], a[0]), [f32(1)])
    yield Op("cast_i32", lambda a: tf.cast(a, tf.int32), [f32(50) * 100])
    yield Op("cast_f16", lambda a: tf.cast(a, tf.float16), [f32(50)])
    yield Op("cast_bf16", lambda a: tf.cast(tf.cast(a, tf.bfloat16), tf.float32), [f32(50)])
    yield Op("clip", lambda a: tf.clip_by_value(a, -0.5, 0.5), [f32(50)])
    yield Op("matrix_diag", tf.linalg.diag, [f32(4, 6)])
    yield Op("band_part", lambda a: tf.linalg.band_part(a, 1, 2), [f32(9, 9)])
    yield Op("space_to_depth", lambda a: tf.nn.space_to_depth(a, 2), [f32(2, 8, 8, 3)])
    yield Op("depth_to_space", lambda a: tf.nn.depth_to_space(a, 2), [f32(2, 4, 4, 12)])
    yield Op("broadcast_to", lambda a: tf.broadcast_to(a, [6, 5, 4]), [f32(5, 1)])
    yield Op("where_index", lambda a: tf.where(a), [boolean(9, 9)])
    yield Op("boolean_mask", tf.boolean_mask, [f32(30, 3), boolean(30)])
    yield Op("resize_bilinear", lambda a: tf.image.resize(a, [13, 9]), [f32(1, 7, 8, 3)])
    yield Op("resize_nearest", lambda a: tf.image.resize(a, [13, 9], "nearest"), [f32(1, 7, 8, 3)])


def products():
    yield Op("matmul", tf.matmul, [f32(70, 90), f32(90, 50)], 1e-4)
    yield Op("matmul_transposed", lambda a, b: tf.matmul(a, b, transpose_a=True, transpose_b=True), [f32(90, 70), f32(50, 90)], 1e-4)
    yield Op("matmul_batch", tf.matmul, [f32(6, 20, 30), f32(6, 30, 10)], 1e-4)
    yield Op("matmul_f64", tf.matmul, [f32(30, 40).astype(np.float64), f32(40, 20).astype(np.float64)], 1e-10)
    yield Op("matmul_f16", tf.matmul, [f32(32, 48).astype(np.float16), f32(48, 16).astype(np.float16)], 2e-2)
    yield Op("matvec", tf.linalg.matvec, [f32(60, 40), f32(40)], 1e-4)
    yield Op("einsum", lambda a, b: tf.einsum("bij,bkj->bik", a, b), [f32(3, 10, 20), f32(3, 15, 20)], 1e-4)
    yield Op("tensordot", lambda a, b: tf.tensordot(a, b, 1), [f32(5, 6, 7), f32(7, 8)], 1e-4)


def networks():
    yield Op("conv2d", lambda x, w: tf.nn.conv2d(x, w, 1, "SAME"), [f32(2, 14, 14, 8), f32(3, 3, 8, 16)], 1e-3)
    yield Op("conv2d_stride", lambda x, w: tf.nn.conv2d(x, w, 2, "VALID"), [f32(2, 15, 15, 8), f32(3, 3, 8, 16)], 1e-3)
    yield Op("conv2d_1x1", lambda x, w: tf.nn.conv2d(x, w, 1, "SAME"), [f32(2, 8, 8, 16), f32(1, 1, 16, 8)], 1e-3)
    yield Op("depthwise_conv", lambda x, w: tf.nn.depthwise_conv2d(x, w, [1, 1, 1, 1], "SAME"),
             [f32(2, 10, 10, 6), f32(3, 3, 6, 1)], 1e-4)
    yield Op("max_pool", lambda x: tf.nn.max_pool2d(x, 2, 2, "VALID"), [f32(2, 8, 8, 5)])
    yield Op("avg_pool", lambda x: tf.nn.avg_pool2d(x, 2, 2, "VALID"), [f32(2, 8, 8, 5)])
    yield Op("batch_norm", lambda x, g, b: tf.compat.v1.nn.fused_batch_norm(x, g, b)[0],
             [f32(4, 6, 6, 8), pos(8), f32(8)], 1e-3)
    yield Op("layer_norm", lambda x: (x - tf.reduce_mean(x, -1, keepdims=True)) * tf.math.rsqrt(
        tf.math.reduce_variance(x, -1, keepdims=True) + 1e-5), [f32(20, 64)], 1e-4)
    yield Op("embedding", tf.nn.embedding_lookup, [f32(40, 16), i32(0, 40, 25)])
    yield Op("attention", lambda q, k, v: tf.matmul(tf.nn.softmax(tf.matmul(q, k, transpose_b=True) / 4.0), v),
             [f32(2, 12, 16), f32(2, 12, 16), f32(2, 12, 16)], 1e-4)


def gradients():
    for op in list(products())[:3] + list(networks())[:7]:
        yield Op(f"grad_{op.name}", op.function, op.inputs, max(op.tolerance * 10, 2e-3), gradient=True)
    for name, f in {"tanh": tf.tanh, "sigmoid": tf.sigmoid, "gelu": tf.nn.gelu, "softmax": tf.nn.softmax,
                    "relu": tf.nn.relu, "exp": tf.exp}.items():
        yield Op(f"grad_{name}", f, [f32(13, 21)], 1e-3, gradient=True)


def suite():
    for group in (unary, binary, reductions, shapes, products, networks, gradients):
        yield from group()


def differs(got, want, tolerance):
    """Why two results are not the same, or None."""
    if len(got) != len(want):
        return f"{len(got)} results, not {len(want)}"
    for g, w in zip(got, want):
        if g.shape != w.shape or g.dtype != w.dtype:
            return f"{g.dtype}{g.shape}, not {w.dtype}{w.shape}"
        if g.dtype.kind in "biu":
            if not np.array_equal(g, w):
                return f"{np.count_nonzero(g != w)} of {g.size} values differ"
        elif not np.allclose(g.astype(np.float64), w.astype(np.float64), rtol=tolerance, atol=tolerance, equal_nan=True):
            return f"largest difference {np.nanmax(np.abs(g.astype(np.float64) - w.astype(np.float64))):.3g}"
    return None


def main():
    arguments = [a for a in sys.argv[1:] if not a.startswith("--")]
    digest = None
    if "--help" in sys.argv:
        print(__doc__)
        return 0
    if "--digest" in sys.argv:
        digest = open(arguments.pop(), "w", encoding="utf-8")
    ops = [op for op in suite() if not arguments or op.name in arguments]
    if "--list" in sys.argv:
        print("\n".join(op.name for op in ops))
        return 0
    if not tf.config.list_physical_devices("GPU"):
        print("tf_ops: TensorFlow sees no GPU", file=sys.stderr)
        return 1
    tf.config.set_soft_device_placement(False)
    tf.config.experimental.enable_tensor_float_32_execution(False)  # the CPU does not round its inputs either
    wrong = 0
    for op in ops:
        try:
            got = op.run("/GPU:0")
            why = differs(got, op.run("/CPU:0"), op.tolerance)
            if digest is not None:
                digest.write(f"{op.name} {hashlib.sha256(b''.join(np.ascontiguousarray(g).tobytes() for g in got)).hexdigest()}\n")
        except Exception as e:  # noqa: BLE001: one operation must not hide the others
            why = f"{type(e).__name__}: {str(e).splitlines()[0][:300]}"
        if why is not None:
            wrong += 1
            print(f"FAIL {op.name}: {why}", flush=True)
    print(f"tf_ops: {len(ops) - wrong} of {len(ops)} operations agree with the CPU")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

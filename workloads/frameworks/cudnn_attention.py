#!/usr/bin/env python3
"""Attention through cuDNN's graph API, in half and single precision, with and without a mask, against sums in double.

usage: cudnn_attention.py
"""
import ctypes
import glob
import math
import os
import sys

import numpy as np


def library(pattern):
    """One of NVIDIA's libraries from the packages beside this Python."""
    found = [f for folder in sys.path for f in sorted(glob.glob(os.path.join(folder, "nvidia", "*", "lib", pattern)))]
    return ctypes.CDLL(found[0] if found else pattern, ctypes.RTLD_GLOBAL)


# cuDNN's Python package finds the library if it is there already.
cudart = library("libcudart.so.*")
library("libcublasLt.so.*")
library("libcublas.so.*")
library("libcudnn.so.9")
import cudnn  # noqa: E402

BATCH, HEADS, LENGTH, WIDE = 2, 3, 96, 64
SHAPE, STRIDES = (BATCH, HEADS, LENGTH, WIDE), (HEADS * LENGTH * WIDE, LENGTH * WIDE, WIDE, 1)


def ok(status, what):
    if status != 0:
        raise RuntimeError(f"{what}: CUDA error {status}")


def to_device(array):
    pointer = ctypes.c_void_p()
    ok(cudart.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(max(1, array.nbytes))), "cudaMalloc")
    ok(cudart.cudaMemcpy(pointer, array.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(array.nbytes), 1), "cudaMemcpy")
    return pointer.value


def reference(q, k, v, causal):
    scores = np.einsum("bhid,bhjd->bhij", q.astype(np.float64), k.astype(np.float64)) / math.sqrt(WIDE)
    if causal:
        scores = np.where(np.tril(np.ones((LENGTH, LENGTH), bool)), scores, -np.inf)
    parts = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhij,bhjd->bhid", parts / parts.sum(-1, keepdims=True), v.astype(np.float64))


def attention(handle, q, k, v, kind, causal):
    graph = cudnn.pygraph(io_data_type=kind, intermediate_data_type=cudnn.data_type.FLOAT,
                          compute_data_type=cudnn.data_type.FLOAT, handle=handle)
    tensors = [graph.tensor(name=n, dim=SHAPE, stride=STRIDES, data_type=kind) for n in "qkv"]
    out, _ = graph.sdpa(name="attention", q=tensors[0], k=tensors[1], v=tensors[2], is_inference=True,
                        attn_scale=1 / math.sqrt(WIDE), use_causal_mask=causal)
    out.set_output(True).set_dim(SHAPE).set_stride(STRIDES)
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    graph.check_support()
    graph.build_plans()
    result = np.full(SHAPE, np.nan, q.dtype)
    places = {t: to_device(a) for t, a in zip([*tensors, out], (q, k, v, result))}
    room = to_device(np.zeros(graph.get_workspace_size(), np.uint8))
    graph.execute(places, room, handle=handle)
    ok(cudart.cudaDeviceSynchronize(), "cudaDeviceSynchronize")
    ok(cudart.cudaMemcpy(result.ctypes.data_as(ctypes.c_void_p), ctypes.c_void_p(places[out]), ctypes.c_size_t(result.nbytes), 2),
       "cudaMemcpy")
    return result


def main():
    rng, wrong, handle = np.random.default_rng(21), 0, cudnn.create_handle()
    cases = [(name, kind, numpy_kind, tolerance, causal)
             for name, kind, numpy_kind, tolerance in (("half", cudnn.data_type.HALF, np.float16, 2e-3),
                                                       ("single", cudnn.data_type.FLOAT, np.float32, 1e-5))
             for causal in (False, True)]
    for name, kind, numpy_kind, tolerance, causal in cases:
        q, k, v = ((rng.standard_normal(SHAPE) * 0.7).astype(numpy_kind) for _ in range(3))
        label = f"{name}{', causal' if causal else ''}"
        try:
            far = float(np.max(np.abs(attention(handle, q, k, v, kind, causal) - reference(q, k, v, causal))))
        except Exception as e:  # noqa: BLE001: one case must not hide the others
            print(f"FAIL {label}: {type(e).__name__}: {' '.join(str(e).split())[:300]}", flush=True)
            wrong += 1
            continue
        good = far < tolerance  # false for a NaN
        wrong += not good
        print(f"{'ok  ' if good else 'FAIL'} {label}: largest difference {far:.2g}", flush=True)
    print(f"cudnn_attention: {len(cases) - wrong} of {len(cases)} agree with sums in double")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Inference with ONNX Runtime on the GPU against its CPU provider.

usage: ort_infer.py [products|network]

"products" is a chain of matrix products, which are cuBLAS's; "network" has activations and a softmax, which are ONNX Runtime's own.
"""
import sys

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper


def model(name):
    rng = np.random.default_rng(9)
    weights = [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32) * 0.2, f"w{i}")
               for i, s in enumerate(((32, 48), (48, 24), (24, 10)))]
    nodes, at = [], "x"
    for i in range(3):
        nodes.append(helper.make_node("MatMul", [at, f"w{i}"], [f"p{i}"]))
        at = f"p{i}"
        if name == "network":
            nodes.append(helper.make_node("Softmax" if i == 2 else "Relu", [at], [f"a{i}"]))
            at = f"a{i}"
    graph = helper.make_graph(nodes, name, [helper.make_tensor_value_info("x", TensorProto.FLOAT, [16, 32])],
                              [helper.make_tensor_value_info(at, TensorProto.FLOAT, [16, 10])], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 10
    onnx.checker.check_model(made)
    return made.SerializeToString()


def main():
    wrong = 0
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        print("ort_infer: ONNX Runtime has no CUDA provider", file=sys.stderr)
        return 1
    x = np.random.default_rng(10).standard_normal((16, 32)).astype(np.float32)
    for name in sys.argv[1:] or ("products", "network"):
        try:
            gpu = ort.InferenceSession(model(name), providers=[("CUDAExecutionProvider", {"use_tf32": "0"})])
            if gpu.get_providers()[0] != "CUDAExecutionProvider":
                raise RuntimeError("the CUDA provider cannot be used")
            got, want = (s.run(None, {"x": x})[0] for s in (gpu, ort.InferenceSession(model(name), providers=["CPUExecutionProvider"])))
            far = float(np.max(np.abs(got - want)))
            why = None if far < 1e-4 else f"largest difference {far:.2g}"
        except Exception as e:  # noqa: BLE001: one model must not hide the other
            why = f"{type(e).__name__}: {' '.join(str(e).split())[:400]}"
        print(f"FAIL {name}: {why}" if why else f"ok   {name}", flush=True)
        wrong += why is not None
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Runs operators of PyTorch's own database (op_db) on the GPU and on the CPU, forward and backward, and compares.

usage: torch_ops.py --list [DTYPE ...]
       torch_ops.py [--samples=4] [--times=1] [--gpu-only] [OPERATOR:DTYPE ...]

--list prints OPERATOR:DTYPE lines, for those that a GPU supports (float32, float16, bfloat16, int64, bool if none is said); those that the
database itself runs on the CPU only are none of them.
Otherwise operators come from the command line, or as lines on standard input; each gives a line of JSON: its status, its seconds on
the GPU, a hash of all its results there, and what was wrong.  --gpu-only compares nothing.  --times=N has samples with sides N times as long:
most fit into a block as they are.  A few operators have none then, because their sides do not go together any more.

  ok      all results and gradients agree with the CPU's
  nature  they do not, but neither do two runs on the CPU: with another seed, or with memory filled before it is used; or the operator
          is one that makes tensors without values, and shape and dtype agree
  wrong   they do not
  error   the GPU's run fails and the CPU's does not
  none    it cannot be told: the CPU fails as well, or the database has no samples

Gradients are those of a weighted sum of all results.  Inputs are equal, made on the CPU.  Where the CPU does not have the dtype, or
rounds differently in half precision, it computes in float32.  Operators that a GPU alone has are compared with the database's own reference,
in types with fractions: of scalars in others it makes something else than the GPU's code does.

Some results are not determined, as the signs of singular vectors are not.  Where results differ, what the database itself says of the sample
is compared (output_process_fn_grad, as in PyTorch's own test_compare_cpu), and besides the matrix that a decomposition stands for.  "free" in
the record counts samples that agree in that way only.  Operators that pick elements may pick any of equal ones: values have to be equal, places
must hold them, none twice, and gradients may be exchanged among equal elements of a row.  Of values that are equally frequent any is a mode.

Some results are hardly determined: a gradient of logcumsumexp at 10,000 has the rounding of 10,000 in its exponent.  Where results
differ in float32, and nothing is random, all is computed on the CPU in float64 as well; it is ok if each tensor of the GPU is within four
times the distance that the CPU's own float32 has from that, which must be small itself.  "rough" counts these samples.  The same goes
for halves and float32, where the CPU has halves.
"""
import argparse
import collections
import contextlib
import hashlib
import json
import math
import os
import sys
import time
import warnings

import torch

torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False  # the tests' own helpers freeze these

from torch.testing._internal.common_device_type import onlyCPU, onlyCUDA  # noqa: E402
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402
from torch.utils import _pytree as tree  # noqa: E402

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "int64": torch.int64, "bool": torch.bool}
# relative to the largest value of a result; a GPU's sums are made in another order
TOLERANCE = {torch.float32: 1e-4, torch.complex64: 1e-4, torch.float16: 5e-3, torch.bfloat16: 4e-2, torch.float64: 1e-6,
             torch.complex128: 1e-6, torch.complex32: 1e-2}
WIDER = {torch.float32: torch.float64, torch.float16: torch.float32, torch.bfloat16: torch.float32}
ROUGH, ROUGHEST = 4, 50  # times the CPU's own distance from float64, which is this many tolerances at most
PER_DEVICE = {"linalg.lstsq"}  # whose samples, methods that a GPU does not have, depend on whom they are for
# that pick elements along an axis: where it stands among the arguments, or which it is
PICKS = {"argsort": (0, -1), "sort": (0, -1), "msort": (None, 0), "mode": (0, -1), "kthvalue": (1, -1), "topk": (1, -1),
         "median": (0, None), "nanmedian": (0, None), "min": (0, None), "max": (0, None)}
STAY = {"tensor_split"}  # whose arguments, where to cut, PyTorch wants on the CPU whatever the tensor is on
EMPTY = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
SEED = 11

# What an operator returned (or nothing, if all of that is in the second), gradients, and what of both is determined.
Results = collections.namedtuple("Results", "all gradients determined determined_gradients")


def lengthen(times):
    """Sides of the database's samples, which its parts have by these names."""
    for name, module in sys.modules.items():
        if name.startswith("torch.testing._internal.") and ("opinfo" in name or "common_methods" in name):
            for side in ("XS", "S", "M", "L"):
                if isinstance(getattr(module, side, None), int):
                    setattr(module, side, times * getattr(module, side))


def name_of(op):
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def some_of(op, dtype, limit, needs_grad):
    """Samples of the database, spread over all that it has."""
    torch.manual_seed(SEED)
    every = list(op.sample_inputs("cuda" if op.name in PER_DEVICE else "cpu", dtype, requires_grad=needs_grad))
    if len(every) <= limit:
        return every
    return [every[i * (len(every) - 1) // max(limit - 1, 1)] for i in range(limit)]


def is_part(t):
    """Whether it is a view of something larger, which an operator may look at."""
    return t.layout == torch.strided and not t.is_conj() and t.untyped_storage().nbytes() > t.numel() * t.element_size()


def moved(value, device, dtype=None):
    """The same value there: tensors are copied, with equal strides, and with all that they are a part of; a device that is named is
    replaced, a dtype narrower than `dtype` is widened."""
    def one(v):
        if isinstance(v, torch.Tensor):
            t = v.detach()
            whole = torch.empty(0, dtype=t.dtype, device=t.device).set_(t.untyped_storage()) if is_part(t) else t
            there = (whole.clone() if not v.is_sparse else whole).to(device)
            if dtype is not None and WIDER.get(v.dtype) == dtype:
                there = there.to(dtype)
            if whole is not t:
                there = there.as_strided(t.size(), t.stride(), t.storage_offset()).detach()
            return there.requires_grad_(v.requires_grad)
        if isinstance(v, torch.device) or (isinstance(v, str) and v == "cpu"):
            return torch.device(device)
        return v
    return tree.tree_map(one, value)


def tensors_in(value):
    return [v for v in tree.tree_leaves(value) if isinstance(v, torch.Tensor)]


@contextlib.contextmanager
def seeds_moved(by):
    """The database gives random operators a seed of their own each time; here it is another."""
    plain = torch.manual_seed
    torch.manual_seed = lambda seed: plain(seed + by)
    try:
        yield
    finally:
        torch.manual_seed = plain


def rebuilt(name, got):
    """The matrices that a decomposition stands for, in double precision; nothing of other operators."""
    wide = [t.detach().cpu().to(torch.complex128 if t.is_complex() else torch.float64) for t in tensors_in(got)]
    if name in ("linalg.svd", "svd"):
        u, s, v = wide
        v = v if name == "linalg.svd" else v.mH
        k = s.shape[-1]
        return [(u[..., :k] * s.unsqueeze(-2)) @ v[..., :k, :], u.mH @ u, v @ v.mH]
    if name == "linalg.eigh":
        values, vectors = wide
        return [(vectors * values.unsqueeze(-2)) @ vectors.mH, vectors.mH @ vectors]
    return []


def picked_along(op, sample):
    """The axis along which an operator picks elements of its input, any of equal ones; None if it does not."""
    place, axis = PICKS.get(op.name, (None, None))
    if place is not None:
        axis = sample.kwargs.get("dim", sample.args[place] if len(sample.args) > place else axis)
    is_axis = isinstance(axis, int) and not isinstance(axis, bool)
    return axis if is_axis and sample.input.dim() > 0 and not sample.kwargs.get("stable") else None


def picked(name, values, results, axis):
    """What is determined of results that were picked from `values`: in place of places, what is there and how many come twice."""
    found = []
    for i, t in enumerate(results):
        if i == 0 and name != "argsort":
            found.append(t)
            continue
        places = t if t.dim() == values.dim() else t.unsqueeze(axis)
        ordered = places.sort(axis).values
        found += [values.gather(axis, places), (ordered.diff(dim=axis) == 0).sum()]
    return found


def modes(_, values, results, axis):
    """The same of modes: how frequent each is, and how many places hold something else."""
    value, places = (t if t.dim() == values.dim() else t.unsqueeze(axis) for t in results)
    return [(values == value).sum(axis), (values.gather(axis, places) != value).sum()]


def exchanged(values, gradients, axis):
    """Gradients with those of equal elements in order."""
    by_gradient = gradients.argsort(axis)
    by_value = values.gather(axis, by_gradient).sort(dim=axis, stable=True).indices
    return gradients.gather(axis, by_gradient).gather(axis, by_value)


def here(tensors):
    """Copies, dense and on the CPU."""
    return [t.to_dense().cpu() if t.layout != torch.strided else t.resolve_conj().resolve_neg().cpu() for t in tensors]


def function_of(op, device):
    """The operator itself, or the database's reference where the CPU does not have it."""
    if device != "cpu" or onlyCUDA not in op.decorators or op.ref is None:
        return op

    def checked(value, *args, **kwargs):
        if not value.is_floating_point():
            raise RuntimeError("only a GPU has it")
        return op.ref(value, *args, **kwargs)
    return checked


def run(op, sample, device, dtype=None, backward=True):
    """What it gives there."""
    value, kwargs = (moved(v, device, dtype) for v in (sample.input, sample.kwargs))
    args = moved(sample.args, "cpu" if op.name in STAY else device, dtype)
    torch.manual_seed(SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = function_of(op, device)(value, *args, **kwargs)
    results = tensors_in(got)
    found = here([t.detach().clone() for t in results])
    determined = [] if sample.output_process_fn_grad is None else tensors_in(sample.output_process_fn_grad(got))
    narrow = [t.detach().to(torch.complex64 if t.is_complex() else torch.float32) for t in rebuilt(op.name, got)]
    determined = here([t.detach().clone() for t in determined]) + narrow
    leaves = [t for t in tensors_in([value, args, kwargs]) if t.requires_grad and t.is_leaf]
    ends = [t for t in results if t.requires_grad]
    gradients = []
    if backward and leaves and ends:
        if sample.output_process_fn_grad is not None:
            ends = [t for t in tensors_in(sample.output_process_fn_grad(got)) if t.requires_grad]
        generator = torch.Generator().manual_seed(5)
        weights = [torch.randn(t.shape, generator=generator, dtype=torch.float32).to(device) for t in ends]
        total = sum(((t.abs() if t.is_complex() else t).to(torch.float32) * w).sum() for t, w in zip(ends, weights))
        gradients = here([g for g in torch.autograd.grad(total, leaves, allow_unused=True) if g is not None])
    axis = picked_along(op, sample)
    if axis is None:
        return Results(found, gradients, determined, gradients)
    values = here([value.detach()])[0]
    what = modes if op.name == "mode" else picked
    return Results(found, gradients, what(op.name, values, found, axis), [exchanged(values, g, axis) for g in gradients])


def far(a, b):
    """How far they are apart, over what is allowed; None if they are not of one kind."""
    if a.shape != b.shape or (a.is_floating_point() or a.is_complex()) != (b.is_floating_point() or b.is_complex()):
        return None
    if a.numel() == 0:
        return 0.0
    if not (a.is_floating_point() or a.is_complex()):
        return 0.0 if torch.equal(a, b.to(a.dtype)) else math.inf
    allowed = max(TOLERANCE.get(a.dtype, 1e-4), TOLERANCE.get(b.dtype, 1e-4))
    wide = torch.complex128 if a.is_complex() else torch.float64
    a, b = a.to(wide), b.to(wide)
    same = (a == b) | (torch.isnan(a) & torch.isnan(b))
    if not torch.equal(torch.isfinite(a) | same, torch.isfinite(b) | same):
        return math.inf
    apart = torch.where(same, torch.zeros_like(a), a - b).abs()
    finite = b[torch.isfinite(b)].abs()
    scale = max(1.0, finite.max().item()) if finite.numel() else 1.0
    worst = apart.max().item()
    return math.inf if math.isnan(worst) else worst / (allowed * scale)


def farthest(got, want):
    """Of two lists of tensors; infinity if they are not of one kind."""
    if len(got) != len(want):
        return math.inf
    distances = [far(a, b) for a, b in zip(got, want)]
    return math.inf if None in distances else max(distances, default=0.0)


def between(got, want):
    """How far two runs are apart in everything, and in what is determined."""
    return (max(farthest(got.all, want.all), farthest(got.gradients, want.gradients)),
            max(farthest(got.determined, want.determined), farthest(got.determined_gradients, want.determined_gradients)))


def varies_by_nature(op, sample, dtype):
    """Whether the CPU's own results depend on the seed or on what memory held before; as a word, or None.  Of halves that it does not
    have it is asked in float32."""
    wider = None
    try:
        first = run(op, sample, "cpu")
    except Exception:  # whatever an operator may raise
        wider = WIDER[dtype]
        first = run(op, sample, "cpu", dtype=wider)
    with seeds_moved(1):
        if between(run(op, sample, "cpu", dtype=wider), first)[0] > 1:
            return "random"
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        return "uninitialised" if between(run(op, sample, "cpu", dtype=wider), first)[0] > 1 else None
    finally:
        torch.use_deterministic_algorithms(False)


def on_cpu(op, sample, dtype):
    """What is right: in the dtype itself, and where that is a half, in float32 as well.  An empty list if the CPU cannot do it."""
    found, why = [], None
    for wider in (None, torch.float32) if dtype in (torch.float16, torch.bfloat16) else (None,):
        try:
            found.append(run(op, sample, "cpu", dtype=wider))
        except Exception as e:  # whatever an operator may raise
            why = e
    return found, why


def is_rough(op, sample, dtype, got, wanted):
    """Whether each tensor of the GPU is nearly as close to one of the wider dtype as the CPU's own is, or closer: then no more is
    determined."""
    try:
        wide = run(op, sample, "cpu", dtype=WIDER[dtype])
    except Exception:  # whatever an operator may raise
        return False
    lists = [(r.all + r.gradients) for r in (got, wanted, wide)]
    if len({len(each) for each in lists}) != 1:
        return False
    for a, b, w in zip(*lists):
        mine, its = far(a, w), far(b, w)
        if mine is None or its is None or its > ROUGHEST or mine > max(1, ROUGH * its):
            return False
    return True


def judge(op, sample, dtype, gpu_only, digest):
    """Status and, if it is not ok, a reason; and seconds on the GPU."""
    begin, got, failed = time.perf_counter(), None, None
    try:
        got = run(op, sample, "cuda")
    except Exception as e:
        failed = f"{type(e).__name__}: {e}".splitlines()[0][:300]
    seconds = time.perf_counter() - begin
    for t in got.all + got.gradients if got else []:
        # contiguous() leaves a tensor of one element whatever its strides are, and view() minds them
        flat = t.reshape(-1).clone(memory_format=torch.contiguous_format)
        digest.update(flat.view(torch.uint8).numpy().tobytes() if t.numel() else b"")
    if gpu_only:
        return ("error", failed, seconds) if failed else ("ok", None, seconds)
    wanted, why = on_cpu(op, sample, dtype)
    if not wanted:
        if failed or got is None:
            return "none", f"the CPU fails as well: {why}"[:300], seconds
        return "none", f"the CPU fails: {why}"[:300], seconds
    if failed:
        return "error", failed, seconds
    every, determined = (min(distances) for distances in zip(*(between(got, want) for want in wanted)))
    if every <= 1:
        return "ok", None, seconds
    if determined <= 1 and got.determined:
        return "ok", "free", seconds
    is_empty = op.name in EMPTY and [(t.shape, t.dtype) for t in got.all] == [(t.shape, t.dtype) for t in wanted[0].all]
    nature = "uninitialised" if is_empty else varies_by_nature(op, sample, dtype)
    if nature:
        return "nature", nature, seconds
    if dtype in WIDER and is_rough(op, sample, dtype, got, wanted[0]):
        return "ok", "rough", seconds
    return "wrong", f"{every:.3g} times what is allowed", seconds


def check(op, dtype, limit, gpu_only):
    """The record of an operator: the worst of its samples."""
    order = ["ok", "none", "nature", "error", "wrong"]
    worst, why, seconds, slowest, n, agree, digest = "none", "no samples", 0.0, 0.0, 0, collections.Counter(), hashlib.sha256()
    try:
        samples = some_of(op, dtype, limit, op.supports_autograd and dtype in op.supported_backward_dtypes("cuda"))
    except Exception as e:  # sides that do not go together
        samples, why = [], f"the database fails: {e}"[:300]
    for n, sample in enumerate(samples, 1):
        status, reason, took = judge(op, sample, dtype, gpu_only, digest)
        seconds, slowest = seconds + took, max(slowest, took)
        agree[reason] += status == "ok"
        if n == 1 or order.index(status) > order.index(worst):
            worst, why = status, reason
        if status == "error" and is_broken():
            break
    return {"status": worst, "why": why, "seconds": round(seconds, 3), "slowest": round(slowest, 3), "samples": n,
            "free": agree["free"], "rough": agree["rough"], "digest": digest.hexdigest()}


def is_broken():
    """After some errors nothing works any more in this process."""
    try:
        return (torch.ones(3).to("cuda") + 1).sum().item() != 6
    except RuntimeError:
        return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--gpu-only", action="store_true")
    parser.add_argument("what", nargs="*")
    o = parser.parse_args()
    ops = {name_of(op): op for op in op_db if onlyCPU not in op.decorators}
    if o.list:
        for dtype in o.what or DTYPES:
            print("\n".join(f"{name}:{dtype}" for name, op in ops.items() if DTYPES[dtype] in op.supported_dtypes("cuda")))
        return 0
    if not torch.cuda.is_available():
        print("torch_ops: PyTorch sees no GPU", file=sys.stderr)
        return 1
    lengthen(o.times)
    answers = os.fdopen(os.dup(1), "w")  # operators may print
    os.dup2(2, 1)
    bad = 0
    for line in o.what or (line.strip() for line in sys.stdin):
        name, dtype = line.split(":")
        record = {"op": line, **check(ops[name], DTYPES[dtype], o.samples, o.gpu_only)}
        bad += record["status"] in ("wrong", "error")
        if record["status"] == "error" and is_broken():
            record["broken"] = True
        print(json.dumps(record), file=answers, flush=True)
        if record.get("broken"):
            return 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

"""Loaded into pytest by scripts/suites for suites that bring PyTorch's wheel along: that has machine code only, which the software device cannot
run, and the suites want of it no more than random numbers, fills and sums.  PyTorch's own operations on the device's memory are done
on the CPU then: inputs are copied from the device, results back to it.  Allocations, copies and what a suite's own kernels do are untouched."""
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

NATIVE = {"empty", "empty_strided", "empty_like", "detach", "alias", "set_", "resize_", "is_pinned", "_pin_memory", "record_stream", "lift_fresh"}


def on_cpu(t, storages):
    """A tensor of the CPU with the same bytes, strides and sharing: by its storage, which is copied as bytes."""
    if not isinstance(t, torch.Tensor) or t.device.type != "cuda":
        return t
    storage = t.untyped_storage()
    key = storage._cdata
    if key not in storages:
        copy = torch.empty(storage.nbytes(), dtype=torch.uint8)
        bytes_of(storage, "cuda", copy)
        storages[key] = (storage, copy)
    return torch.empty(0, dtype=t.dtype).set_(storages[key][1].untyped_storage(), t.storage_offset(), t.size(), t.stride())


def bytes_of(storage, device, copy, is_back=False):
    """Copies a whole storage to `copy` or back: bytes side by side, for which PyTorch needs no kernel."""
    if storage.nbytes() == 0:
        return
    there = torch.empty(0, dtype=torch.uint8, device=device).set_(storage)
    if is_back:
        there.copy_(copy)
    else:
        copy.copy_(there)


def to_device(t, device):
    """A result of the CPU as a new tensor of the device, with its strides."""
    if not isinstance(t, torch.Tensor) or t.device.type != "cpu":
        return t
    out = torch.empty_strided(t.size(), t.stride(), dtype=t.dtype, device=device)
    storage = t.untyped_storage()
    n, first = out.untyped_storage().nbytes(), t.storage_offset() * t.element_size()
    bytes_of(out.untyped_storage(), device, torch.empty(0, dtype=torch.uint8).set_(storage, first, (n,), (1,)), is_back=True)
    return out


class OnCpu(TorchDispatchMode):
    """Sends operations to the CPU that PyTorch would launch kernels for."""

    @staticmethod
    def is_plain_copy(func, args):
        """Of the same type, and side by side on both sides."""
        if func._schema.name != "aten::copy_":
            return False
        to, source = args[0], args[1]
        return to.dtype == source.dtype and to.size() == source.size() and to.is_contiguous() and source.is_contiguous()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        tensors = [a for a in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(a, torch.Tensor)]
        wanted = torch.device(kwargs["device"]) if kwargs.get("device") is not None else None
        there = [t.device for t in tensors if t.device.type == "cuda"]
        name = func._schema.name.split("::")[1]
        if (not there and (wanted is None or wanted.type != "cuda")) or name in NATIVE or func.is_view or self.is_plain_copy(func, args):
            return func(*args, **kwargs)
        device = wanted if wanted is not None else there[0]
        storages = {}
        cpu_args, cpu_kwargs = tree_map(lambda t: on_cpu(t, storages), (args, kwargs))
        if wanted is not None:
            cpu_kwargs["device"] = torch.device("cpu")
        generator = cpu_kwargs.get("generator")
        if generator is not None and generator.device.type == "cuda":
            cpu_kwargs["generator"] = None
        result = func(*cpu_args, **cpu_kwargs)
        if func._schema.is_mutable:
            for storage, copy in storages.values():
                bytes_of(storage, "cuda", copy, is_back=True)
        return self.give_back(func, result, args, kwargs, cpu_args, cpu_kwargs, device)

    @staticmethod
    def give_back(func, result, args, kwargs, cpu_args, cpu_kwargs, device):
        """Results for the caller: an argument that was changed in place is given back as it came."""
        flat = torch.utils._pytree.tree_leaves
        same = {id(c): a for c, a in zip(flat((cpu_args, cpu_kwargs)), flat((args, kwargs))) if isinstance(c, torch.Tensor)}
        is_for_cpu = device.type != "cuda"
        return tree_map(lambda t: same[id(t)] if id(t) in same else t if is_for_cpu else to_device(t, device), result)


def pytest_configure(config):
    torch.manual_seed(0)
    OnCpu().__enter__()  # for the whole process; pytest runs cases in this thread

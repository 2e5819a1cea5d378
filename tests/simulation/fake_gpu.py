"""A GPU that is none: CPU tensors that say they are on cuda:0, and refuse what a GPU refuses.

Within `fake_gpu()` whatever is made on cuda:0 or moved there is computed by the CPU, so a run gives the CPU's
numbers; but an operation on tensors of both places is an error, and whatever would make the host wait is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from fedasd_fast.data import device_data, transform
from fedasd_fast.kernels import loader
from fedasd_fast.simulation.client import chain_trainer, cuda_graph

CUDA = torch.device("cuda", 0)
aten = torch.ops.aten
# How many elements there will be, only the device knows.
_UNKNOWN_SIZES = {"nonzero", "bincount", "masked_select", "_unique2", "unique_dim", "equal", "_local_scalar_dense"}
_INDEXED = {"index", "index_put_", "_index_put_impl_"}


class OnDevice(Tensor):
    """Shares its memory with the CPU tensor that it is made of."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, inner: Tensor) -> OnDevice:
        return Tensor._make_subclass(cls, inner)  # type: ignore[no-any-return]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{func} outside fake_gpu()")

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return CUDA

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return True

    def numpy(self, **_: Any) -> Any:  # type: ignore[override]
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    def __reduce_ex__(self, protocol: Any) -> Any:
        """In a file it is a plain tensor, as one of a GPU is when it is read without one."""
        return _inner(self).__reduce_ex__(protocol)

    def cpu(self) -> Tensor:  # type: ignore[override]
        return self.to("cpu")

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        """As it would be: no copy where nothing changes."""
        places = {str(x) for x in (*args, kwargs.get("device")) if isinstance(x, (str, torch.device))}
        if "cpu" in places:
            return super().to(*args, **kwargs | {"copy": True})
        dtype = next((x for x in (*args, kwargs.get("dtype")) if isinstance(x, torch.dtype)), self.dtype)
        return super().to(dtype, copy=kwargs.get("copy", False))


class Watch(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()
        self.tape: list[tuple[Any, Any, Any, Any]] | None = None  # what is recorded, if anything is

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = dict(kwargs or {}), func.overloadpacket.__name__
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        there = [x for x in tensors if isinstance(x, OnDevice)]
        asked = kwargs.get("device")
        result_there = bool(there) if asked is None else asked.type == "cuda"
        if name == "_to_copy" and there and torch._C._current_graph_task_id() >= 0:
            result_there = True  # autograd, which sees through the disguise, undoes a change of type only
        if asked is not None:
            kwargs["device"] = torch.device("cpu")
        if name == "_to_copy" and bool(there) != result_there:
            self._copied("cuda" if result_there else "cpu", kwargs.get("non_blocking"))
        elif name == "copy_" and 0 < len(there) < len(tensors):
            self._copied("cuda" if isinstance(args[0], OnDevice) else "cpu", len(args) > 2 and args[2])
        elif there:
            if any(x.dim() > 0 for x in tensors if not isinstance(x, OnDevice)):
                raise RuntimeError(f"{func}: expected all tensors on one device, found cuda:0 and cpu")
            if name in _UNKNOWN_SIZES or (name in _INDEXED and any(_is_mask(x) for x in args[1])):
                self.waits[name] += 1
        inner = tree_map(_inner, (args, kwargs))
        result = func(*inner[0], **inner[1])
        if self.tape is not None:
            self.tape.append((func, *inner, result))
        return tree_map(_outer, result) if result_there else result

    def _copied(self, to: str, non_blocking: Any) -> None:
        if to == "cpu" or not non_blocking:
            self.waits[f"copy to {to}"] += 1


class TapedGraphs:
    """What CUDA graphs do: the operations of one run again, on the memory and with the numbers of that run."""

    watch: Watch
    captures: int

    def __init__(self, device: torch.device) -> None:
        assert device == CUDA

    def __call__(self, work: Callable[[], None], undo: Callable[[], None]) -> Callable[[], None]:
        watch = self.watch
        work()
        undo()
        waits = watch.waits.copy()
        watch.tape = tape = []
        try:
            work()
        finally:
            watch.tape = None
        assert watch.waits == waits, "a wait cannot be captured"
        undo()
        TapedGraphs.captures += 1
        return lambda: _replay(tape)


def _replay(tape: list[tuple[Any, Any, Any, Any]]) -> None:
    with torch._C._DisableTorchDispatch(), torch.no_grad():
        for func, args, kwargs, recorded in tape:
            for to, x in zip(tree_leaves(recorded), tree_leaves(func(*args, **kwargs)), strict=True):
                if isinstance(to, Tensor) and to.data_ptr() != x.data_ptr():
                    to.copy_(x)


def _is_mask(index: Tensor | None) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)


def _inner(x: Any) -> Any:
    if not isinstance(x, OnDevice):
        return x
    with torch._C._DisableTorchDispatch():
        return Tensor._make_subclass(Tensor, x)


def _outer(x: Any) -> Any:
    return OnDevice(x) if isinstance(x, Tensor) else x


@contextmanager
def fake_gpu(*, kernels: bool = True, free_memory: int = 10**9, shared_memory: int = 99 * 1024) -> Iterator[Watch]:
    """`kernels`: whether the extension was built for it; those of the CPU do the work."""
    convert = torch.__future__.get_overwrite_module_params_on_conversion()
    lift = torch._C._only_lift_cpu_tensors()
    with pytest.MonkeyPatch.context() as patch, Watch() as watch:
        patch.setattr(torch.cuda, "_lazy_init", lambda: None)
        patch.setattr(device_data, "free_memory", lambda device: free_memory)
        patch.setattr(chain_trainer, "shared_memory", lambda device: shared_memory)
        patch.setattr(cuda_graph, "CudaGraphs", TapedGraphs)
        patch.setattr(TapedGraphs, "watch", watch, raising=False)
        patch.setattr(TapedGraphs, "captures", 0, raising=False)
        patch.setattr(Tensor, "pin_memory", lambda self: self)
        patch.setattr(loader, "devices", ("cpu", "cuda") if kernels and loader.available else loader.devices)
        transform._scale_and_shift.cache_clear()  # which may hold tensors of a real GPU; afterwards, of this one
        try:
            torch.__future__.set_overwrite_module_params_on_conversion(True)
            torch._C._set_only_lift_cpu_tensors(True)
            yield watch
        finally:
            transform._scale_and_shift.cache_clear()
            torch.__future__.set_overwrite_module_params_on_conversion(convert)
            torch._C._set_only_lift_cpu_tensors(lift)


def on_cpu(x: OnDevice) -> Tensor:
    """To be looked at afterwards."""
    return _inner(x)  # type: ignore[no-any-return]

"""What a program asks of torch while it runs: traced, poisoned, guarded; and CUDA names on a machine without CUDA."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._library import custom_ops
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from dice_engine.verify.memory import Arena

_UNINITIALISED = frozenset(
    ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "resize_")
)
_ALLOCATING = frozenset(
    ("zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like", "new_full")
)
# Work that every honest wrapper does around its kernels: memory, layout, metadata, conversions, constants.
_PLUMBING = frozenset(
    (
        *_UNINITIALISED,
        *_ALLOCATING,
        "scalar_tensor",
        "arange",
        "eye",
        "clone",
        "copy_",
        "copy",
        "_to_copy",
        "to",
        "contiguous",
        "fill_",
        "zero_",
        "_local_scalar_dense",
        "item",
        "is_same_size",
        "equal",
        "lift_fresh",
        "detach",
        "alias",
        "set_",
        "_reshape_alias",
        "_pin_memory",
        "is_pinned",
        "resize_as_",
        "record_stream",
    )
)
_POISON_FLOATS = (float("nan"), 40503.25)
_POISON_INTEGERS = (-1, 90)
MOST_RESULTS = 24
_MOST_PIECES, _PIECES_ELEMENTS = 256, 1 << 20


_OPERATORS_OF_THE_CODE: Any = getattr(custom_ops, "OPDEFS", {})
"""What ``torch.library.custom_op`` made, by name."""


class HostReads:
    """How many floating numbers the code under test took from its tensors to the host (weights aside)."""

    def __init__(self) -> None:
        self.count = 0

    def note(self, tensor: Any) -> None:
        counts = isinstance(tensor, torch.Tensor) and not isinstance(tensor, torch.nn.Parameter)
        if counts and tensor.dtype.is_floating_point:
            self.count += tensor.numel()


class Pieces:
    """Copies of tensors that may hold parts of an answer, as many as are cheap to look through."""

    def __init__(self) -> None:
        self.kept: list[torch.Tensor] = []
        self._room = _PIECES_ELEMENTS

    def keep(self, tensor: torch.Tensor) -> None:
        worth = tensor.dtype.is_floating_point and tensor.layout == torch.strided and tensor.numel() >= 8
        if worth and tensor.numel() <= self._room and len(self.kept) < _MOST_PIECES:
            self._room -= tensor.numel()
            self.kept.append(tensor.detach().clone())


class Watch(TorchDispatchMode):
    """Records every operator of the code run under it.

    New memory comes from ``arena`` (guard zones) and is filled with one of two poisons, so that what the code never
    wrote is neither right by luck nor right by leftovers. With ``wanted`` shapes, results of computing operators
    that have one of them are kept in ``results``.
    """

    def __init__(
        self,
        arena: Arena | None,
        poison: int = 0,
        wanted: Iterable[tuple[int, ...]] = (),
        reads: HostReads | None = None,
    ):
        super().__init__()
        self.reads = reads or HostReads()
        self.arena = arena
        self.poison = poison
        self.wanted = {tuple(shape) for shape in wanted}
        self.results: list[torch.Tensor] = []
        self.pieces = Pieces()
        """Results of other shapes."""
        self.ops: Counter[str] = Counter()
        """Computing operators and how often each ran: ``{"softmax": 1}``; plumbing is left out."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: torch would import its compiler, a second of work, only to keep it away from this mode."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        own = _OPERATORS_OF_THE_CODE.get(func._schema.name)
        if own is not None:  # an operator of the code's own: what it calls counts, and not its name
            with self:
                return own._init_fn(*args, **(kwargs or {}))
        name = func._schema.name.split("::")[-1]
        grows = name == "resize_" and args[0].numel() == 0
        out = func(*args, **(kwargs or {}))
        if grows:
            fill_poison(out, self.poison)
        if name == "_local_scalar_dense" or (
            name in ("_to_copy", "copy_") and out.device.type == "cpu" and _on_gpu(args)
        ):
            self.reads.note(args[1] if name == "copy_" else args[0])
        if name in _UNINITIALISED or name in _ALLOCATING:
            return self._own(out, name) if isinstance(out, torch.Tensor) and name != "resize_" else out
        if name not in _PLUMBING and not func.is_view:
            self.ops[name.strip("_")] += 1
            if self.wanted:
                self._keep(out)
        return out

    def _own(self, out: torch.Tensor, name: str) -> torch.Tensor:
        if out.layout != torch.strided or out.is_quantized or out.device.type not in ("cpu", "cuda"):
            return out
        fresh = name in _UNINITIALISED
        arena = self.arena
        if arena is not None and arena.device.type == out.device.type and out.numel():
            label = f"a tensor of shape {list(out.shape)}"
            guarded = arena.strided(out.shape, out.stride(), out.dtype, label)
            if not fresh:
                guarded.copy_(out)
            out = guarded
        if fresh:
            fill_poison(out, self.poison)
        return out

    def _keep(self, out: Any) -> None:
        for tensor in out if isinstance(out, list | tuple) else (out,):
            if not isinstance(tensor, torch.Tensor):
                continue
            if tuple(tensor.shape) not in self.wanted:
                self.pieces.keep(tensor)
            elif len(self.results) < MOST_RESULTS:
                self.results.append(tensor.detach().clone())


def _on_gpu(values: tuple[Any, ...]) -> bool:
    return any(isinstance(value, torch.Tensor) and value.device.type == "cuda" for value in values)


def fill_poison(tensor: torch.Tensor, poison: int) -> None:
    """Fill with poison 0 (NaN, -1) or 1 (a large odd number)."""
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        tensor.fill_(_POISON_FLOATS[poison])
    elif tensor.dtype == torch.bool:
        tensor.fill_(bool(poison))
    elif tensor.dtype.is_signed:
        tensor.fill_(_POISON_INTEGERS[poison])
    else:
        tensor.view(torch.int8 if tensor.itemsize == 1 else tensor.dtype).fill_(90 + poison)


def poison_share(tensor: torch.Tensor, poison: int) -> float:
    """Share of the elements that still hold the poison."""
    if not tensor.numel() or tensor.dtype == torch.bool or not tensor.dtype.is_floating_point:
        return 0.0
    held = (
        torch.isnan(tensor)
        if poison == 0
        else tensor == torch.tensor(_POISON_FLOATS[poison]).to(tensor.dtype)
    )
    return float(held.float().mean())


class CudaAsCpu(TorchFunctionMode):
    """Runs code written for ``device="cuda"`` on the CPU: every tensor says that it is on ``cuda:0``."""

    def __init__(self, reads: HostReads | None = None) -> None:
        super().__init__()
        self._reads = reads or HostReads()
        tensor: Any = torch.Tensor
        self._reading = {
            getattr(tensor, name)
            for name in ("cpu", "numpy", "tolist", "__array__", "__dlpack__", "untyped_storage", "storage")
        }
        self._answers: dict[Any, Callable[..., Any]] = {
            tensor.is_cuda.__get__: lambda *_, **__: True,
            tensor.is_cpu.__get__: lambda *_, **__: False,
            tensor.device.__get__: lambda *_, **__: torch.device("cuda", 0),
            tensor.get_device: lambda *_, **__: 0,
            tensor.cuda: lambda self, *_, **__: self,
            tensor.pin_memory: lambda self, *_, **__: self,
            tensor.record_stream: lambda *_, **__: None,
        }

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        answer = self._answers.get(func)
        if answer is not None:
            return answer(*args, **(kwargs or {}))
        if func in self._reading or (
            func is torch.Tensor.to and any(_is_cpu(value) for value in (*args[1:], *(kwargs or {}).values()))
        ):
            self._reads.note(args[0])
        kwargs = {key: _to_cpu(value) for key, value in (kwargs or {}).items() if key != "pin_memory"}
        if func in (torch.Tensor.to, torch.Tensor.new_tensor):
            args = (args[0], *[_to_cpu(argument) for argument in args[1:]])
        return func(*args, **kwargs)


def _is_cpu(value: Any) -> bool:
    return (isinstance(value, str) and value == "cpu") or (
        isinstance(value, torch.device) and value.type == "cpu"
    )


def _to_cpu(value: Any) -> Any:
    if isinstance(value, str) and value.split(":")[0] == "cuda":
        return "cpu"
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    return value


class _Stream:
    """Stands for a CUDA stream where there is none."""

    cuda_stream = 0

    def synchronize(self) -> None: ...

    def wait_stream(self, other: Any) -> None: ...

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: Any) -> None: ...


def pretend_cuda() -> None:
    """Give this process the parts of ``torch.cuda`` that code around kernels calls, doing nothing."""
    cuda: Any = torch.cuda
    # torch's compiler would ask the driver; what it is given runs as it is.
    torch.compile = lambda model=None, **_: model if model is not None else lambda function: function
    cuda.is_available = lambda: True
    cuda.is_initialized = lambda: True
    cuda.device_count = lambda: 1
    cuda.current_device = lambda: 0
    cuda.get_device_capability = lambda *_: (9, 0)
    cuda.get_device_name = lambda *_: "NVIDIA H100 80GB HBM3"
    cuda.current_stream = lambda *_: _Stream()
    cuda.default_stream = lambda *_: _Stream()
    cuda.Stream = lambda *_, **__: _Stream()
    cuda.stream = lambda *_: _Stream()
    cuda.device = lambda *_: _Stream()
    for name in ("synchronize", "empty_cache", "set_device", "init", "reset_peak_memory_stats"):
        # One function for each name: torch's compiler refuses to know one object under two names.
        setattr(cuda, name, lambda *_, **__: None)

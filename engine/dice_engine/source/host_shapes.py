"""A world for rehearsals of host functions that take torch tensors: shapes and types, no contents."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from dice_engine.source.host_types import KINDS, SIZES
from dice_engine.source.host_values import Device, Dtype, HostError, LaunchCall, Pointer, Unsupported
from dice_engine.source.plan_run import PROPERTIES


class WrongType(HostError):
    """The host code reads ``tensor`` as another type than it has."""

    def __init__(self, tensor: str, wanted: str, found: str) -> None:
        super().__init__(f"expected scalar type {wanted} but found {found}")
        self.tensor, self.wanted = tensor, wanted


@dataclass(frozen=True)
class Shaped:
    """A contiguous tensor without contents; ``name`` is the argument's, empty for what the host code makes."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def strides(self) -> list[int]:
        return [math.prod(self.shape[axis + 1 :]) for axis in range(len(self.shape))]

    def axis(self, index: int) -> int:
        """A dimension's number. Raises HostError as torch would."""
        rank = max(1, len(self.shape))
        if not -rank <= index < rank or not self.shape:
            raise HostError(
                f"dimension {index} is out of range: {self.name or 'a tensor'} has {len(self.shape)}"
            )
        return index % rank


class ShapeWorld:
    """A ``Runtime`` that notes launches; whatever needs contents is ``Unsupported``."""

    def __init__(self) -> None:
        self.calls: list[LaunchCall] = []

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, Shaped)

    def launch(self, call: LaunchCall) -> None:
        self.calls.append(call)

    def tensor_method(self, tensor: Shaped, name: str, args: list[Any], template: str | None) -> Any:
        if name == "data_ptr":
            return _pointer(tensor, template)
        method = _METHODS.get(name)
        if method is None:
            raise Unsupported(f"tensor method {name} in a rehearsal")
        return method(tensor, *args)

    def torch_function(self, name: str, args: list[Any], kwargs_options: dict[str, Any]) -> Any:
        if name in ("cuda.memset", "cuda.memcpy"):
            return None
        if name == "cuda.device_property" and args and args[0] in PROPERTIES:
            return PROPERTIES[args[0]]
        if name.endswith("_like") and args and isinstance(args[0], Shaped):
            return replace(args[0], name="", dtype=_dtype(kwargs_options, args[0].dtype))
        if name in ("empty", "zeros", "ones", "full", "rand", "randn") and args:
            return Shaped("", _sizes(args[0]), _dtype(kwargs_options, "float32"))
        raise Unsupported(f"torch function {name} in a rehearsal")


def _pointer(tensor: Shaped, template: str | None) -> Pointer:
    ctype = (template or "void").replace("const ", "").strip()
    wanted = KINDS.get(ctype)
    if wanted is not None and wanted != tensor.dtype:
        raise WrongType(tensor.name, wanted, tensor.dtype)
    return Pointer(tensor, 0, ctype)


def _dtype(options: dict[str, Any], otherwise: str) -> str:
    found = options.get("dtype")
    return found.name if isinstance(found, Dtype) else otherwise


def _sizes(given: Any) -> tuple[int, ...]:
    sizes = given if isinstance(given, list | tuple) else [given]
    if not all(isinstance(size, int) for size in sizes):
        raise Unsupported("sizes that are no numbers in a rehearsal")
    if any(size < 0 for size in sizes):
        raise HostError(f"a tensor of shape {list(sizes)}")
    return tuple(sizes)


def _reshaped(tensor: Shaped, *sizes: Any) -> Shaped:
    shape = list(sizes[0]) if sizes and isinstance(sizes[0], list | tuple) else list(sizes)
    whole = math.prod(tensor.shape)
    if shape.count(-1) == 1:
        rest = math.prod(size for size in shape if size != -1)
        shape[shape.index(-1)] = whole // rest if rest else 0
    if math.prod(shape) != whole:
        raise HostError(f"shape {shape} is invalid for {whole} elements")
    return replace(tensor, shape=tuple(shape))


def _transposed(tensor: Shaped, one: int = 0, other: int = 1) -> Shaped:
    shape = list(tensor.shape)
    a, b = tensor.axis(one), tensor.axis(other)
    shape[a], shape[b] = shape[b], shape[a]
    return replace(tensor, shape=tuple(shape))


def _flattened(tensor: Shaped, start: int = 0, end: int = -1) -> Shaped:
    first, last = tensor.axis(start), tensor.axis(end)
    middle = math.prod(tensor.shape[first : last + 1])
    return replace(tensor, shape=(*tensor.shape[:first], middle, *tensor.shape[last + 1 :]))


def _unsqueezed(tensor: Shaped, axis: int) -> Shaped:
    at = axis % (len(tensor.shape) + 1)
    return replace(tensor, shape=(*tensor.shape[:at], 1, *tensor.shape[at:]))


def _converted(tensor: Shaped, *args: Any) -> Shaped:
    wanted = next((arg.name for arg in args if isinstance(arg, Dtype)), tensor.dtype)
    return replace(tensor, dtype=wanted) if wanted != tensor.dtype else tensor


def _itself(tensor: Shaped, *_: Any) -> Shaped:
    return tensor


_METHODS: dict[str, Callable[..., Any]] = {
    "size": lambda tensor, axis: tensor.shape[tensor.axis(axis)],
    "stride": lambda tensor, axis: tensor.strides[tensor.axis(axis)],
    "sizes": lambda tensor: list(tensor.shape),
    "strides": lambda tensor: tensor.strides,
    "numel": lambda tensor: math.prod(tensor.shape),
    "dim": lambda tensor: len(tensor.shape),
    "scalar_type": lambda tensor: Dtype(tensor.dtype),
    "element_size": lambda tensor: SIZES.get(tensor.dtype, 4),
    "itemsize": lambda tensor: SIZES.get(tensor.dtype, 4),
    "nbytes": lambda tensor: math.prod(tensor.shape) * SIZES.get(tensor.dtype, 4),
    "device": lambda tensor: Device("cuda"),
    "get_device": lambda tensor: 0,
    "is_cuda": lambda tensor: True,
    "is_contiguous": lambda tensor, *_: True,
    "is_floating_point": lambda tensor: "float" in tensor.dtype,
    "defined": lambda tensor: True,
    "view": _reshaped,
    "reshape": _reshaped,
    "transpose": _transposed,
    "t": _transposed,
    "flatten": _flattened,
    "unsqueeze": _unsqueezed,
    "to": _converted,
    "toType": _converted,
    "contiguous": _itself,
    "cuda": _itself,
    "clone": _itself,
    "detach": _itself,
    "zero_": _itself,
    "fill_": _itself,
}
_METHODS |= {
    name: (lambda tensor, wanted=wanted: _converted(tensor, Dtype(wanted)))
    for name, wanted in (("float", "float32"), ("half", "float16"), ("double", "float64"), ("int", "int32"))
}

"""From ATen operators to values: the registry of handlers, and what all handlers share.

A handler takes the traced operator's arguments by the names of its schema (tensors as values) and returns a value, or
a list of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from dice_training.cuke.traced.emit import Emitter, Index, at, literal
from dice_training.cuke.traced.trace import Traced
from dice_training.cuke.traced.values import (
    Buffer,
    Constant,
    Dim,
    Moved,
    Point,
    Shape,
    Size,
    Unwritten,
    Value,
    constant,
    times,
    values,
)

Arguments = Any
"""The operator's arguments by name; ``dtype`` and ``shape`` of the result as ``out_dtype`` and ``out_shape``."""
Handler = Callable[[Arguments], Any]
HANDLERS: dict[str, Handler] = {}


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Register for ATen operators by name (without overload)."""

    def register(handler: Handler) -> Handler:
        for name in names:
            HANDLERS[name] = handler
        return handler

    return register


def base_name(target: Any) -> str:
    """``relu`` for ``aten.relu_.default``."""
    schema = getattr(target, "_schema", None)
    if schema is None:
        return getattr(target, "__name__", str(target))
    name = schema.name.split("::")[-1]
    return name[:-1] if name.endswith("_") and not name.startswith("_") else name


# -- building values


def number(value: float | bool, dtype: torch.dtype, shape: Shape = ()) -> Constant:
    return Constant(shape=shape, dtype=dtype, text=literal(value, dtype))


def cast(value: Value, dtype: torch.dtype) -> Value:
    if value.dtype == dtype:
        return value
    if isinstance(value, Constant):
        text = {"true": "1", "false": "0"}.get(value.text, value.text).rstrip("f")
        return number(float(text.replace("INFINITY", "inf").replace("NAN", "nan")), dtype, value.shape)
    if dtype == torch.bool:
        zero = literal(0, value.dtype)
        return Point(shape=value.shape, dtype=dtype, template=f"{{0}} != {zero}", args=(value,), name="to")
    names = {torch.float32: "float", torch.float64: "double", torch.int64: "int64_t", torch.int32: "int"}
    if dtype not in names:
        raise Unwritten(f"dtype {str(dtype).removeprefix('torch.')}")
    return Point(shape=value.shape, dtype=dtype, template=f"({names[dtype]}){{0}}", args=(value,), name="to")


def common_shape(shapes: Sequence[Shape]) -> Shape:
    rank = max((len(shape) for shape in shapes), default=0)
    out: list[Dim] = []
    for back in range(rank, 0, -1):
        dims = [shape[-back] for shape in shapes if len(shape) >= back]
        out.append(next((dim for dim in dims if dim.value != 1), dims[0]))
    return tuple(out)


def expand(value: Value, shape: Shape) -> Value:
    """``value`` broadcast to ``shape``."""
    if values(value.shape) == values(shape):
        return value
    if isinstance(value, Constant):
        return Constant(shape=shape, dtype=value.dtype, text=value.text)
    if isinstance(value, Size):
        return Size(shape=shape, dtype=value.dtype, args=(), write=value.write)
    lead = len(shape) - len(value.shape)
    small = value.shape

    def place(_: Emitter, index: Index) -> Index:
        return Index(small, None, lambda dim: index.coord(dim + lead))

    return Moved(shape=shape, dtype=value.dtype, args=(value,), place=place, name="expand", still=True)


def point(
    template: str,
    *args: Value | float,
    dtype: torch.dtype,
    like: torch.dtype | None = None,
    name: str = "",
    inline: bool = False,
) -> Value:
    """An elementwise value of type ``dtype``; arguments are broadcast and taken as ``like`` (``dtype`` by default)."""
    like = like or dtype
    made = [cast(a, like) if isinstance(a, Value) else number(a, like) for a in args]
    shape = common_shape([a.shape for a in made])
    spread = tuple(expand(a, shape) for a in made)
    return Point(shape=shape, dtype=dtype, template=template, args=spread, name=name, inline=inline)


def reshape(value: Value, sizes: Sequence[int]) -> Value:
    """A view in another shape."""
    shape = _new_dims(value.shape, [int(size) for size in sizes])
    if values(shape) == values(value.shape):
        return value
    if isinstance(value, Constant):
        return Constant(shape=shape, dtype=value.dtype, text=value.text)
    old = value.shape
    same = [dim for dim in values(old) if dim != 1] == [dim for dim in values(shape) if dim != 1]

    def place(e: Emitter, index: Index) -> Index:
        if index.flat is not None:
            return e.split(index.flat, old)
        if same:
            real = [dim for dim in range(len(shape)) if shape[dim].value != 1]
            mine = [dim for dim in range(len(old)) if old[dim].value != 1]
            return Index(old, None, lambda dim: index.coord(real[mine.index(dim)]))
        text = e.linear(index, shape)
        key = ("flat", text)
        flat = e.block.find(key) or e.declare("int", "j", text)
        e.block.known[key] = flat
        return e.split(flat, old)

    return Moved(shape=shape, dtype=value.dtype, args=(value,), place=place, name="view", still=True)


def _new_dims(old: Shape, sizes: Sequence[int]) -> Shape:
    """``sizes`` with the expressions that they have as products of ``old``."""
    out: list[Dim] = []
    i, j = 0, 0
    while i < len(old) or j < len(sizes):
        have, want = [old[i]] if i < len(old) else [], [sizes[j]] if j < len(sizes) else []
        i, j = i + len(have), j + len(want)
        a, b = times(have).value, _product(want)
        while a != b:
            if a < b and i < len(old):
                have.append(old[i])
                i += 1
            elif j < len(sizes):
                want.append(sizes[j])
                j += 1
            else:
                raise Unwritten("a view")
            a, b = times(have).value, _product(want)
        out += _group(have, want)
    return tuple(out)


def _product(sizes: Sequence[int]) -> int:
    result = 1
    for size in sizes:
        result *= size
    return result


def _group(have: list[Dim], want: list[int]) -> list[Dim]:
    if not want:
        return []
    if [d.value for d in have] == want:
        return have
    if len(want) == 1:
        return [times(have)]
    whole = times(have)
    if whole.literal:
        return [constant(size) for size in want]
    known = [next((d for d in have if d.value == size and size != 1), constant(size)) for size in want]
    open_ = max(range(len(want)), key=lambda k: (known[k].literal, want[k]))
    rest = times([dim for k, dim in enumerate(known) if k != open_])
    left = f"({whole.text})" if " " in whole.text else whole.text
    right = f"({rest.text})" if " " in rest.text else rest.text
    if rest.value == 1:
        known[open_] = whole
    else:
        known[open_] = Dim(want[open_], f"{left} / {right}")
    return known


def moved(
    value: Value, shape: Shape, coords: Callable[[Emitter, Index], Sequence[str]], name: str = "move"
) -> Value:
    """The element of ``value`` at computed coordinates."""
    if isinstance(value, Constant):
        return Constant(shape=shape, dtype=value.dtype, text=value.text)
    return Moved(
        shape=shape,
        dtype=value.dtype,
        args=(value,),
        place=lambda e, index: at(value.shape, list(coords(e, index))),
        name=name,
    )


def axis(dim: int, rank: int) -> int:
    return dim + rank if dim < 0 else dim


def axes(dims: Any, rank: int) -> tuple[int, ...]:
    """Sorted positions; all of them where ``dims`` is None or empty."""
    if dims is None or dims == []:
        return tuple(range(rank))
    listed = dims if isinstance(dims, list | tuple) else [dims]
    return tuple(sorted(axis(dim, rank) for dim in listed)) if rank else ()


def require(condition: object, reason: str) -> None:
    if not condition:
        raise Unwritten(reason)


# -- the walk


class Lowered:
    """The values of a trace: ``inputs`` in the order of the host function's arguments, and ``outputs``."""

    def __init__(self, traced: Traced, argument_names: Sequence[str]) -> None:
        self.inputs: list[Buffer] = []
        self.paths: list[str] = []
        """For each input, the Python expression that gives it in ``forward``."""
        self.found: dict[Node, Any] = {}
        self._names = set(argument_names)
        self._taken: set[str] = set()
        self._roles = [_parts(path)[-1] for path in {path for path, _ in traced.constants.values() if path}]
        places = iter(zip(argument_names, traced.inputs, strict=False))
        for node in traced.graph.nodes:
            if node.op == "placeholder":
                name, given = next(places)
                self.found[node] = (
                    given if not isinstance(given, torch.Tensor) else self._input(name, name, given)
                )
            elif node.op == "get_attr":
                path, tensor = traced.constants[node.target]
                self.found[node] = self._constant(path, tensor)
            elif node.op == "call_function":
                self.found[node] = self._call(node)
            elif node.op == "output":
                self.output = map_arg(node.args[0], lambda n: self.found[n])

    def used(self, buffers: set[int]) -> None:
        """Leave out inputs that no kernel reads."""
        kept = [(b, p) for b, p in zip(self.inputs, self.paths, strict=True) if id(b) in buffers]
        self.inputs, self.paths = [b for b, _ in kept], [p for _, p in kept]

    def _input(self, name: str, path: str, tensor: torch.Tensor) -> Buffer:
        require(tensor.layout == torch.strided, "a sparse input")
        text = _cpp_name(name, self._taken)
        self._taken.add(text)
        shape = tuple(
            Dim(size, f"{text}.size({k})") if size != 1 else constant(1)
            for k, size in enumerate(tensor.shape)
        )
        holds = tensor.dtype.is_floating_point and bool(torch.isnan(tensor).any())
        buffer = Buffer(shape=shape, dtype=tensor.dtype, text=text, name=text, nan=holds)
        self.inputs.append(buffer)
        self.paths.append(path if tensor.is_contiguous() else f"{path}.contiguous()")
        return buffer

    def _constant(self, path: str, tensor: torch.Tensor) -> Value:
        if not path:
            require(tensor.numel() == 1, "a tensor of literals made in forward")
            return number(tensor.item(), tensor.dtype, tuple(constant(1) for _ in tensor.shape))
        for buffer, known in zip(self.inputs, self.paths, strict=True):
            if known in (path, f"{path}.contiguous()"):
                return buffer
        return self._input(self._weight_name(path), path, tensor)

    def _weight_name(self, path: str) -> str:
        """The weight's role where no other has it, with its owner's name before it otherwise."""
        parts = _parts(path)
        role = parts[-1] if not parts[-1].isdigit() else f"p{parts[-1]}"
        if role in self._names or self._roles.count(parts[-1]) > 1:
            return "_".join(parts)
        return role

    def _call(self, node: Node) -> Any:
        name = base_name(node.target)
        if name == "getitem":
            return self.found[node.args[0]][node.args[1]]  # type: ignore[index]
        handler = HANDLERS.get(name)
        if handler is None:
            raise Unwritten(f"operator {name}")
        arguments = self._arguments(node)
        result = handler(arguments)
        self._check(node, result, name)
        return result

    def _arguments(self, node: Node) -> Arguments:
        schema = node.target._schema  # type: ignore[union-attr]
        given = {a.name: a.default_value if a.has_default_value() else None for a in schema.arguments}
        given |= dict(zip((a.name for a in schema.arguments), node.args, strict=False))
        given |= node.kwargs
        given = dict(map_arg(given, lambda n: self.found[n]))
        val = node.meta.get("val")
        first = val[0] if isinstance(val, list | tuple) and val else val
        if isinstance(first, torch.Tensor):
            given["out_dtype"], given["out_shape"] = first.dtype, tuple(first.shape)
        overload = getattr(node.target, "_overloadname", "")
        return SimpleNamespace(
            **{("self_" if k == "self" else k): v for k, v in given.items()},
            overload=overload,
            operator=base_name(node.target),
        )

    def _check(self, node: Node, result: Any, name: str) -> None:
        """Shape and type as traced, and the operator's name on the value."""
        traced = node.meta.get("val")
        many = isinstance(traced, list | tuple)
        pairs = zip(traced if many else [traced], result if many else [result], strict=False)
        for tensor, value in pairs:
            if not isinstance(value, Value) or not isinstance(tensor, torch.Tensor):
                continue
            require(
                values(value.shape) == tuple(tensor.shape) and value.dtype == tensor.dtype,
                f"{name}: shape or type",
            )
            if not isinstance(value, Buffer):
                value.name = name


_CPP_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
        float double int bool char long short unsigned signed void auto const static template class struct union
        new delete this operator default case switch register idx row lane base c n rows cols inner out threads
        blocks v k o m d h w kd kh kw total peak low product best where acc rank
        """,
    )
)


def _parts(path: str) -> list[str]:
    """The names on the way: ``self.layers[0].weight`` -> ``layers``, ``0``, ``weight``."""
    name = path.removeprefix("self").replace('"', "").replace("]", "").replace("[", ".")
    return [part for part in name.split(".") if part]


def _cpp_name(name: str, taken: set[str]) -> str:
    if name in _CPP_WORDS or name in taken:
        name += "_"
    return name

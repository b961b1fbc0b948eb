"""Plans for kernels that a function of torch tensors launches: the function is called with tensors made for it.

Shapes follow from what the function asks of its tensors (``x.size(1)``, ``x.dim() == 2``, ``a.sizes() == b.sizes()``)
and are rehearsed against its own checks. What leaves a doubt is declined with the line that would settle it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from dice_engine.source import host_types as types
from dice_engine.source.annotation import Annotation, AnnotationErrors
from dice_engine.source.expressions import ExpressionError
from dice_engine.source.host import HostError, HostFunction, HostProgram, LaunchCall, Unsupported
from dice_engine.source.host_shapes import Shaped, ShapeWorld, WrongType
from dice_engine.source.plan import Fill, Param, Plan
from dice_engine.source.plan_run import MEASURE
from dice_engine.source.plan_scalars import scalar_fill
from dice_engine.source.plan_sizes import choose

_SIZE = r"\b{}\s*\.\s*(?:size\s*\(\s*(-?\d+)\s*\)|sizes\s*\(\s*\)\s*\[\s*(-?\d+)\s*\])"
_RANK = r"\b{}\s*\.\s*(?:dim|ndimension)\s*\(\s*\)\s*==\s*(\d)"
_NAMED = r"\b(\w+)\s*=\s*(?:\(\w+\)|static_cast\s*<\w+>\s*\()?\s*"
_SAME = r"\b(\w+)\s*\.\s*(?:sizes|numel)\s*\(\s*\)\s*==\s*(\w+)\s*\.\s*(?:sizes|numel)\s*\(\s*\)"
_FLOATS = ("float32", "float16", "bfloat16", "float64")
_MOST_TYPES = 8


class _Doubt(Exception):
    """The shapes or values of the arguments do not follow from the code; the message says for which.

    ``integers``: tensors that hold integers, by their type.
    """

    def __init__(self, message: str, integers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.integers = integers or {}


@dataclass(frozen=True)
class _Extent:
    """One dimension: a symbol, or the largest or the product of several that bound it."""

    symbols: tuple[str, ...]
    how: str = "max"

    def at(self, sizes: Mapping[str, int]) -> int:
        values = [sizes[symbol] for symbol in self.symbols]
        return max(values) if self.how == "max" else functools.reduce(lambda a, b: a * b, values)

    def __str__(self) -> str:
        if len(self.symbols) == 1:
            return self.symbols[0]
        return f"max({', '.join(self.symbols)})" if self.how == "max" else "*".join(self.symbols)


def takes_tensors(function: HostFunction) -> bool:
    return any(is_tensor(param) for param in function.params)


def is_tensor(param: Param) -> bool:
    """Whether a parameter is one torch tensor (no vector of them)."""
    return not param.pointer and re.fullmatch(r"(?:torch::|at::|c10::)?Tensor", param.ctype) is not None


def host_plan(
    program: HostProgram, kernel: str, function: HostFunction, annotation: Annotation | None = None
) -> Plan:
    """The plan that calls ``function``; a ``no_plan`` that says what to write where its arguments do not follow."""
    where = f"{function.name}, line {function.line}"
    if function.template_params:
        return Plan.none(f"{function.name} is a template: {_hint(function)}")
    base = Plan(
        "host",
        kernel=kernel,
        wrapper=function.name,
        params=function.params,
        origin={"host": f"calls {where}"},
    )
    try:
        names = [param.name for param in function.params]
        told = annotation.arguments(names) if annotation is not None else None
    except AnnotationErrors as errors:
        return replace(base, source="no_plan", reason=f"annotation: {errors}")
    if told is not None:
        return replace(base, arguments=told, sizes=({},))
    fills = dict(annotation.fills) if annotation is not None else {}
    try:
        return _derived(program, base, function, fills)
    except _Doubt as doubt:
        return Plan.none(
            f"{kernel} is launched from {function.name}, {doubt}: {_hint(function, doubt.integers)}"
        )
    except (Unsupported, HostError, ExpressionError) as error:
        return Plan.none(f"{function.name} cannot be rehearsed ({error}): {_hint(function)}")


def _hint(function: HostFunction, integers: Mapping[str, str] = MappingProxyType({})) -> str:
    """The annotation that would settle it, to be corrected by its reader."""
    made = []
    for param in function.params:
        if not is_tensor(param):
            made.append(f"{param.name}=1")
        elif param.name in integers:
            made.append(f"{param.name}=randint(0, 64, (1024,), dtype={integers[param.name]})")
        else:
            made.append(f"{param.name}=randn(64, 1024)")
    return f"add // @dice host={function.name} inputs({', '.join(made)})"


def _derived(program: HostProgram, base: Plan, function: HostFunction, fills: dict[str, Fill]) -> Plan:
    shapes, symbols, counts = _shapes(function)
    values = _values(function, counts)
    dtypes = dict.fromkeys(shapes, "float32")

    def rehearse(sizes: dict[str, int]) -> list[LaunchCall]:
        for _ in range(_MOST_TYPES):
            world = ShapeWorld()
            try:
                program.call(function.name, _arguments(function, shapes, dtypes, values, sizes), world)
                return world.calls
            except WrongType as error:
                if error.tensor not in dtypes or dtypes[error.tensor] == error.wanted:
                    raise
                dtypes[error.tensor] = error.wanted
        raise Unsupported("the types of its tensors do not settle")

    chosen = choose(symbols, base.kernel or "", rehearse)
    makers = [
        _maker(param, shapes, dtypes, values, fills) for param in function.params[: len(values) + len(shapes)]
    ]
    shown = [f"{name}[{', '.join(map(str, shape))}]" for name, shape in shapes.items()]
    origin = {
        **base.origin,
        "arguments": f"shapes {', '.join(shown)} from what {function.name} asks of its tensors",
        "sizes": f"not a multiple of the block of {chosen.threads} threads, smaller than one block",
    }
    if chosen.measured:
        origin[MEASURE] = "the last size set is for timing only"
    return replace(base, arguments=tuple(makers), sizes=chosen.sizes, origin=origin)


def _shapes(function: HostFunction) -> tuple[dict[str, tuple[_Extent, ...]], list[str], list[str]]:
    """The shape of every tensor parameter, all size symbols, and those among them that are integer parameters."""
    tensors = [param.name for param in function.params if is_tensor(param)]
    counts = [
        param.name
        for index, param in enumerate(function.params)
        if not is_tensor(param) and scalar_fill(param, {}) == "size" and _default(function, index) is None
    ]
    ranks = {name: rank for name in tensors if (rank := _rank(function.body, name))}
    if counts and ranks:
        raise _Doubt(f"whose parameter {counts[0]} has no value that follows from the code")
    if not ranks:
        symbols = counts or ["n"]
        whole = _Extent(tuple(symbols), "product")
        return {name: (whole,) for name in tensors}, symbols, counts
    names = _symbols(function.body, ranks)
    symbols = list(dict.fromkeys(names.values()))
    if not symbols:
        raise _Doubt("whose tensors' sizes it never asks for")
    bound = _Extent(tuple(symbols))
    whole = _Extent(tuple(symbols), "product")
    shapes = {}
    for name in tensors:
        rank = ranks.get(name)
        axes = [(name, axis) for axis in range(rank or 0)]
        shapes[name] = tuple(_Extent((names[at],)) if at in names else bound for at in axes) or (whole,)
    return shapes, symbols, counts


def _rank(body: str, tensor: str) -> int:
    """The dimensions that the code expects of a tensor; 0 when it says nothing about them."""
    stated = re.search(_RANK.format(re.escape(tensor)), body)
    if stated:
        return int(stated[1])
    axes = _axes(body, tensor)
    return max((axis + 1 if axis >= 0 else max(2, -axis) for axis in axes), default=0)


def _axes(body: str, tensor: str) -> list[int]:
    return [int(a or b) for a, b in re.findall(_SIZE.format(re.escape(tensor)), body)]


def _symbols(body: str, ranks: dict[str, int]) -> dict[tuple[str, int], str]:
    """A symbol for each dimension that the code asks for; dimensions that it compares with each other share one."""
    same: dict[tuple[str, int], tuple[str, int]] = {}
    named: dict[str, tuple[str, int]] = {}

    def root(at: tuple[str, int]) -> tuple[str, int]:
        while same.setdefault(at, at) != at:
            at = same[at]
        return at

    for tensor, rank in ranks.items():
        for axis in _axes(body, tensor):
            root((tensor, axis % rank))
        for match in re.finditer(_NAMED + _SIZE.format(re.escape(tensor)), body):
            named.setdefault(match[1], (tensor, int(match[2] or match[3]) % rank))
    for left, right in re.findall(r"([\w.()\[\]\s-]+?)\s*==\s*([\w.()\[\]\s-]+)", body):
        one, other = (_dimension(side, ranks, named) for side in (left, right))
        if one is not None and other is not None:
            same[root(one)] = root(other)
    for left, right in re.findall(_SAME, body):
        if left in ranks and right in ranks and ranks[left] == ranks[right]:
            for axis in range(ranks[left]):
                same[root((left, axis))] = root((right, axis))
    words = {root(at): name for name, at in reversed(named.items())}
    return {at: words.get(root(at)) or f"{root(at)[0]}_{root(at)[1]}" for at in list(same)}


def _dimension(
    side: str, ranks: Mapping[str, int], named: Mapping[str, tuple[str, int]]
) -> tuple[str, int] | None:
    for tensor, rank in ranks.items():
        found = list(re.finditer(_SIZE.format(re.escape(tensor)), side))
        if found:
            return tensor, int(found[-1][1] or found[-1][2]) % rank
    word = re.search(r"(\w+)\s*\)?\s*$", side.strip())
    return named.get(word[1]) if word else None


def _values(function: HostFunction, counts: Sequence[str]) -> dict[str, Fill | str | None]:
    """What each parameter that is no tensor is given: a fill, the name of a size, ``"None"``; defaults are left out."""
    values: dict[str, Fill | str | None] = {}
    for index, param in enumerate(function.params):
        if is_tensor(param):
            continue
        if _default(function, index) is not None:
            break
        fill = "None" if "optional" in param.ctype else scalar_fill(param, {})
        if fill == "size" and param.name in counts:
            fill = param.name
        if fill is None or fill in ("size", "stream"):
            raise _Doubt(
                f"whose parameter {param.name or index} ({param.ctype}) has no value that follows from the code"
            )
        values[param.name] = fill
    return values


def _default(function: HostFunction, index: int) -> str | None:
    return function.defaults[index] if index < len(function.defaults) else None


def _arguments(
    function: HostFunction,
    shapes: Mapping[str, tuple[_Extent, ...]],
    dtypes: Mapping[str, str],
    values: Mapping[str, Fill | str | None],
    sizes: Mapping[str, int],
) -> list[object]:
    given: list[object] = []
    for param in function.params[: len(values) + len(shapes)]:
        if param.name in shapes:
            shape = tuple(extent.at(sizes) for extent in shapes[param.name])
            given.append(Shaped(param.name, shape, dtypes[param.name]))
            continue
        value = values.get(param.name)
        if isinstance(value, Fill):
            given.append(0.5 if value.kind == "uniform" else 1)
        else:
            given.append(sizes.get(str(value)))
    return given


def _maker(
    param: Param,
    shapes: Mapping[str, tuple[_Extent, ...]],
    dtypes: Mapping[str, str],
    values: Mapping[str, Fill | str | None],
    fills: Mapping[str, Fill],
) -> str:
    """The Python expression, over the size symbols, that makes one argument."""
    if param.name not in shapes:
        value = values.get(param.name)
        if isinstance(value, Fill):
            low, high = value.low, value.high
            if value.kind == "uniform":
                return f"float(torch.empty(()).uniform_({low}, {high}))"
            made = f"int(torch.randint({low}, {high}, ()))"
            return f"bool({made})" if types.KINDS.get(param.ctype) == "bool" else made
        return str(value)
    shape = ", ".join(map(str, shapes[param.name]))
    dtype, fill = dtypes[param.name], fills.get(param.name)
    if fill is not None and fill.kind == "int":
        low, high = (bound.replace("/", "//") for bound in (fill.low, fill.high))
        return f"torch.randint({low}, {high}, [{shape}]).to(torch.{dtype})"
    if fill is not None and fill.kind == "prefix_sum":
        return f"torch.randint(0, 5, [{shape}]).cumsum(-1).to(torch.{dtype})"
    if dtype in _FLOATS:
        return f"torch.randn([{shape}]).to(torch.{dtype})"
    if dtype == "bool":
        return f"torch.rand([{shape}]) < 0.5"
    if dtype in ("int8", "uint8", "int16"):
        return f"torch.randint(0, 100, [{shape}]).to(torch.{dtype})"
    integers = {name: known for name, known in dtypes.items() if known.startswith(("int", "uint"))}
    raise _Doubt(f"whose tensor {param.name} holds indices, which are not made at random", integers)

"""Operators that stay in torch, and how a line of ``forward`` writes them.

A library's product of large matrices is faster than any that is written here, and some operators have no kernel of
ours: both stay, and what surrounds them is fused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn as nn
from torch.fx import Node

from dice_training.cuke.traced.lower import base_name
from dice_training.cuke.traced.trace import Traced
from dice_training.cuke.traced.values import CTYPES, Constant, Line, Unwritten, Value

LEAST_PRODUCT = 1 << 23
"""Multiply-adds from which a product of matrices or a convolution is left to the library."""
LONG_SUM = 256
"""So is one whose elements are sums of so many: a thread that adds them one by one takes too long."""
_SMALL = frozenset(("mv", "dot", "vdot"))
_RECURRENT = frozenset(("lstm", "gru", "rnn_tanh", "rnn_relu"))
_CONVOLUTIONS = re.compile(r"conv(_transpose)?[123]d$")
_MATRICES = {"matmul": 0, "mm": 0, "bmm": 0, "linear": 0, "addmm": 1, "baddbmm": 1}
"""Products, and which argument's last dimension is summed over."""
_FREE = re.compile(
    r"getitem|view|reshape|flatten|permute|transpose|^t$|squeeze|expand|select|slice|narrow|split|chunk|unbind|detach"
    r"|alias|clone|contiguous|dropout|lift_fresh|zeros|ones|full|arange|scalar_tensor|^to$|_to_copy|type_as|eye"
)
"""Operators that are no work to be replaced."""
_VIEWS = {
    name: name
    for name in (
        *("view", "reshape", "flatten", "permute", "transpose", "t", "unsqueeze", "squeeze", "unflatten"),
        *("narrow", "contiguous", "swapaxes", "movedim"),
    )
} | {"_unsafe_view": "view", "mT": "transpose"}
"""Views that ``forward`` writes as methods of a tensor that it holds."""
_MODULES: tuple[type[nn.Module], ...] = (
    nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
    nn.LSTM, nn.GRU, nn.RNN,
)  # fmt: skip
_FUNCTIONAL = frozenset(("linear", "scaled_dot_product_attention"))
_NO_FUNCTION = re.compile(r"rand|bernoulli|multinomial|^_|_$|copy|item|equal|resize|set|storage")
"""Operators that no line of ``forward`` shall call, or that only exist inside torch."""


def left_to_torch(traced: Traced) -> set[Node]:
    """Nodes that are worth keeping: large products beside which there is other work, and recurrent layers."""
    calls = [node for node in traced.graph.nodes if node.op == "call_function"]
    large = {
        node
        for node in calls
        if multiply_adds(node, traced) >= LEAST_PRODUCT or _summed(node, traced) >= LONG_SUM
    }
    recurrent = {node for node in calls if base_name(node.target) in _RECURRENT}
    complex_ = {node for node in calls if not _readable(node)}
    if all(node in large or is_free(node) for node in calls):
        large = set()
    return large | recurrent | complex_


def is_free(node: Node) -> bool:
    return bool(_FREE.search(base_name(node.target)))


def _readable(node: Node) -> bool:
    """Whether kernels can read what the node gives: every tensor of a type that they know."""
    return all(tensor.dtype in CTYPES for tensor in _tensors(node.meta.get("val")))


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)


def multiply_adds(node: Node, traced: Traced) -> int:
    """What a product costs, 0 for other operators."""
    name, out = base_name(node.target), node.meta.get("val")
    if name in _SMALL or not isinstance(out, torch.Tensor):
        return 0
    if name in _MATRICES:
        return out.numel() * _summed(node, traced)
    given = [_meta(argument, traced) for argument in node.args]
    if _CONVOLUTIONS.match(name):
        x, weight = given[0], given[1]
        assert x is not None and weight is not None
        return (x if "transpose" in name else out).numel() * weight[0].numel()
    if name == "scaled_dot_product_attention" and given[0] is not None and given[1] is not None:
        return 2 * given[0].numel() * given[1].shape[-2]
    return 0


def _summed(node: Node, traced: Traced) -> int:
    """How many products an element of a product of matrices is the sum of; 0 for other operators."""
    name = base_name(node.target)
    if name not in _MATRICES:
        return 0
    factor = _meta(node.args[_MATRICES[name]], traced)
    return factor.shape[-1] if factor is not None and factor.dim() else 1


def _meta(argument: Any, traced: Traced) -> torch.Tensor | None:
    if not isinstance(argument, Node):
        return None
    if argument.op == "get_attr":
        return traced.constants[argument.target][1]  # type: ignore[index]
    value = argument.meta.get("val")
    return value if isinstance(value, torch.Tensor) else None


# -- how Python writes them


class Python:
    """Writes operators as Python expressions. ``path_of`` gives a weight's path from ``self``, "" for no weight."""

    def __init__(self, traced: Traced, path_of: Callable[[Value], str]) -> None:
        self.traced, self.path_of = traced, path_of
        short = re.search(
            r"^(import torch\.nn|from torch\.nn import|from torch import nn\b)[^\n]*\bfunctional as F\b",
            traced.text,
            re.MULTILINE,
        )
        self.functional = "F" if short else "torch.nn.functional"

    def view(self, node: Node, given: dict[str, Any]) -> Line | None:
        """A view of the node's first argument; None where it is none that has a method."""
        method = _VIEWS.get(base_name(node.target))
        rest = list(node.args[1:])
        if method is None or node.kwargs or any(isinstance(part, Node) for part in rest):
            return None
        if base_name(node.target) == "mT":
            rest = [-2, -1]
        rest = [part for one in rest for part in (one if isinstance(one, list | tuple) else [one])] if (
            method in ("view", "reshape", "permute")
        ) else rest  # fmt: skip
        return Line(f"{{0}}.{method}({', '.join(map(repr, rest))})", (given["self_"],))

    def operator(self, node: Node, given: dict[str, Any], bias: bool = True) -> Line:
        """The node's operator. ``bias``: whether a convolution adds its bias. Raises Unwritten where no line of Python
        would say the same."""
        name = base_name(node.target)
        if name in _RECURRENT:
            return self._module_call(given["input"], [p for p in given["params"] if isinstance(p, Value)])
        if name == "linear" or _CONVOLUTIONS.match(name):
            weights = [w for w in (given["weight"], given["bias"] if bias else None) if w is not None]
            called = self._owner(weights) if bias or given["bias"] is None else None
            if called is not None:
                return Line(f"{called}({{0}})", (given["input"],))
            given = given | {"bias": given["bias"] if bias else None}
        return self._function(node, given)

    def _module_call(self, x: Value, weights: Sequence[Value]) -> Line:
        called = self._owner(weights)
        if called is None:
            raise Unwritten("a recurrent layer that is no module")
        return Line(f"{called}({{0}})", (x,))

    def _owner(self, weights: Sequence[Value]) -> str | None:
        """The path of the layer that all ``weights`` belong to and that has no others."""
        paths = [self.path_of(weight) for weight in weights]
        owners = {path.rpartition(".")[0] for path in paths}
        if len(owners) != 1 or not all(paths) or owners == {"self"}:
            return None
        owner = owners.pop()
        dotted = re.sub(r"\[\"?(\w+)\"?\]", r".\1", owner).removeprefix("self.")
        try:
            module = self.traced.module.get_submodule(dotted)
        except AttributeError:
            return None
        plain = type(module) in _MODULES and getattr(module, "padding_mode", "zeros") == "zeros"
        return owner if plain and len(list(module.parameters())) == len(paths) else None

    def _function(self, node: Node, given: dict[str, Any]) -> Line:
        name = base_name(node.target)
        sources: list[Value] = []

        def written(value: Any) -> str:
            if isinstance(value, Constant):
                if value.shape:
                    raise Unwritten(f"operator {name}")
                return (
                    value.text.removesuffix("f").capitalize()
                    if value.dtype == torch.bool
                    else value.text.removesuffix("f")
                )
            if isinstance(value, Value):
                sources.append(value)
                return f"{{{len(sources) - 1}}}"
            if isinstance(value, list | tuple):
                texts = ", ".join(map(written, value))
                return f"({texts})" if len(value) > 1 else f"[{texts}]"
            if isinstance(value, bool | int | float | str | torch.dtype) or value is None:
                return repr(value)
            raise Unwritten(f"operator {name}")

        call, arguments, plain = self._called(name), [], True
        for argument in node.target._schema.arguments:  # type: ignore[union-attr]
            key = "self_" if argument.name == "self" else argument.name
            value = given[key]
            default = argument.default_value if argument.has_default_value() else ...
            if argument.name in ("device", "layout", "pin_memory", "memory_format", "generator"):
                continue
            if (value is None and default is None) or _equal(value, default):
                plain = False
                continue
            if (
                isinstance(value, list | tuple)
                and value
                and all(v == value[0] for v in value)
                and _CONVOLUTIONS.match(name)
            ):
                value = value[0]
                if _equal([value], default) or _equal(value, default):
                    plain = False
                    continue
            text = written(value)
            arguments.append(text if plain and argument.name != "dim" else f"{argument.name}={text}")
            plain = plain and isinstance(value, Value)
        return Line(f"{call}({', '.join(arguments)})", tuple(sources))

    def _called(self, name: str) -> str:
        """The function that users call for the operator."""
        if name in _FUNCTIONAL or _CONVOLUTIONS.match(name):
            return f"{self.functional}.{name}"
        group, _, rest = name.partition("_")
        space = getattr(torch, group, None) if group in ("linalg", "fft", "special") else None
        if space is not None and hasattr(space, rest):
            return f"torch.{group}.{rest}"
        if _NO_FUNCTION.search(name) or not hasattr(torch, name):
            raise Unwritten(f"operator {name}")
        return f"torch.{name}"


def _equal(value: Any, default: Any) -> bool:
    if isinstance(value, Value) or default is ...:
        return False
    return (type(value) is type(default) and value == default) or (
        isinstance(value, list | tuple) and isinstance(default, list | tuple) and list(value) == list(default)
    )  # fmt: skip

"""From a trace to values, operator by operator."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch._subclasses import FakeTensor
from torch.fx import Node
from torch.fx.node import map_arg

from dice_training.cuke.traced.convolutions import with_bias
from dice_training.cuke.traced.kept import Python, is_free, left_to_torch
from dice_training.cuke.traced.lower import HANDLERS, Arguments, base_name, number, require
from dice_training.cuke.traced.trace import Traced
from dice_training.cuke.traced.values import (
    Buffer,
    Call,
    Dim,
    Kept,
    Line,
    Shape,
    Unwritten,
    Value,
    constant,
    values,
)


class Lowered:
    """The values of a trace: ``inputs`` in the order of the host function's arguments, and ``output``."""

    def __init__(self, traced: Traced, argument_names: Sequence[str]) -> None:
        self.inputs: list[Buffer] = []
        self.paths: dict[int, str] = {}
        """For each input (by id), the Python expression that gives it in ``forward``."""
        self.found: dict[Node, Any] = {}
        self.calls: list[Call] = []
        """Lines of ``forward`` that stay in torch, in order."""
        self.operators: set[str] = set()
        """Names of the operators of the trace."""
        self._named: set[int] = set()
        self.views: dict[int, Line] = {}
        """Values (by id) that are a view which a method of a tensor gives."""
        self.tensors: dict[str, torch.Tensor] = {}
        """What the inputs are, where their numbers are known, by their C++ names."""
        self.sizes: dict[str, int] = {}
        """Sizes of all tensors by their C++ expressions."""
        self._names = set(argument_names)
        self.taken: set[str] = set()
        self._roles = [_parts(path)[-1] for path in {path for path, _ in traced.constants.values() if path}]
        self._kept = left_to_torch(traced)
        self._python = Python(traced, lambda value: self.paths.get(id(value), ""))
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

    def _input(self, name: str, path: str, tensor: torch.Tensor) -> Buffer:
        require(tensor.layout == torch.strided, "a sparse input")
        text = _cpp_name(name, self.taken)
        self.taken.add(text)
        shape = self._sizes(text, tensor.shape)
        real = tensor.dtype.is_floating_point and not isinstance(tensor, FakeTensor)
        holds = real and bool(torch.isnan(tensor).any())
        buffer = Buffer(shape=shape, dtype=tensor.dtype, text=text, name=text, nan=holds)
        if not isinstance(tensor, FakeTensor):
            self.tensors[text] = tensor
        self.inputs.append(buffer)
        self.paths[id(buffer)] = path if tensor.is_contiguous() else f"{path}.contiguous()"
        return buffer

    def _sizes(self, text: str, sizes: Sequence[int]) -> Shape:
        self.sizes |= {f"{text}.size({k})": size for k, size in enumerate(sizes)}
        return tuple(
            Dim(size, f"{text}.size({k})") if size != 1 else constant(1) for k, size in enumerate(sizes)
        )

    def _constant(self, path: str, tensor: torch.Tensor) -> Value:
        if not path:
            require(tensor.numel() == 1, "a tensor of literals made in forward")
            return number(tensor.item(), tensor.dtype, tuple(constant(1) for _ in tensor.shape))
        for buffer in self.inputs:
            if self.paths[id(buffer)] in (path, f"{path}.contiguous()"):
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
        self.operators.add(name)
        arguments = self._arguments(node)
        if node in self._kept:
            return self._in_torch(node, arguments)
        try:
            handler = HANDLERS.get(name)
            if handler is None:
                raise Unwritten(f"operator {name}")
            given = dict(vars(arguments))
            result = handler(arguments)
            self._check(node, result, name)
        except Unwritten as reason:
            try:
                return self._in_torch(node, self._arguments(node))
            except Unwritten:
                raise reason from None
        if isinstance(result, Value) and result is not given.get("self_"):
            view = self._python.view(node, given)
            if view is not None:
                self.views[id(result)] = view
        return result

    def _in_torch(self, node: Node, a: Arguments) -> Any:
        """The results of a node as a line of ``forward`` gives them."""
        require(not node.target._schema.is_mutable, f"operator {base_name(node.target)}")  # type: ignore[union-attr]
        name, fused, val = base_name(node.target), self._bias_is_fused(node), node.meta.get("val")
        call = Call(self._python.operator(node, vars(a), bias=not fused), name)
        self.calls.append(call)
        if isinstance(val, torch.Tensor):
            result = self._result(call, val)
            call.targets = result.text
            if not fused:
                return result
            return with_bias(result, a.bias, val.dim() - 2)
        require(isinstance(val, list | tuple), f"operator {name}")
        gets = [user for user in node.users if base_name(user.target) == "getitem" and user.users]
        used = [user.args[1] for user in gets]
        parts: list[Any] = list(val)  # type: ignore[arg-type]
        results = [self._result(call, part) if k in used else None for k, part in enumerate(parts)]
        texts = [result.text if result else "_" for result in results]
        call.targets = ", ".join(texts)
        if name == "lstm":
            call.targets = (
                f"{texts[0]}, _" if texts[1:] == ["_", "_"] else f"{texts[0]}, ({', '.join(texts[1:])})"
            )
        return results

    def _result(self, call: Call, tensor: torch.Tensor) -> Kept:
        name = call.operator
        require(isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided, f"operator {name}")
        require(all(isinstance(size, int) for size in tensor.shape), f"operator {name}")
        taken = self.taken | self._names
        text = next(t for t in ("y", *(f"y{k}" for k in range(1, 999))) if t not in taken)
        self.taken.add(text)
        shape = self._sizes(text, tensor.shape)
        kept = Kept(shape=shape, dtype=tensor.dtype, text=text, name=name, call=call)
        if not tensor.is_contiguous():
            self.paths[id(kept)] = f"{text}.contiguous()"
        return kept

    def _bias_is_fused(self, node: Node) -> bool:
        """Whether a kernel comes right behind a convolution: its bias is added there, and not in a pass of its own."""
        if not base_name(node.target).startswith("conv") or len(node.args) < 3 or node.args[2] is None:
            return False
        return all(
            user.op == "call_function" and user not in self._kept and not is_free(user) for user in node.users
        )

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
            if not isinstance(value, Buffer) and id(value) not in self._named:
                value.name = name
                self._named.add(id(value))


_CPP_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
        float double int bool char long short unsigned signed void auto const static template class struct union
        new delete this operator default case switch register idx row lane base c n rows cols inner out threads
        blocks v k o m d h w kd kh kw total peak low product best where acc rank ext
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

"""A PyTorch task as a graph of ATen operators, with the paths by which its weights are reached."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import lru_cache
from io import StringIO
from typing import Any, Literal

import torch
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, Node
from torch.fx.experimental.proxy_tensor import make_fx

from dice_training.cuke.traced.values import Unwritten

MAX_ELEMENTS = 1 << 25
"""Larger inputs are not made: the task is traced by their shapes."""
_MANY = 1 << 18
"""Tasks with more elements are traced by shapes alone: computing them would take too long."""


@dataclass
class Traced:
    text: str
    graph: Graph
    module: torch.nn.Module
    """The task's own, in eval mode."""
    inputs: list[Any]
    constants: dict[str, tuple[str, torch.Tensor]]
    """``get_attr`` target -> its path from ``self`` ("" for a tensor that ``forward`` makes) and its value."""
    output: Any
    """What ``forward`` returned."""


@lru_cache(maxsize=2)
def trace(text: str, class_name: str = "Model") -> Traced:
    """Run the task's text and trace one call. Raises Unwritten where that cannot be done.

    The last traces are kept, since an answer is written several times until its names are chosen: nobody changes one.
    """
    namespace: dict[str, Any] = {"__name__": "task"}
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()), torch.no_grad():
            warnings.simplefilter("ignore")
            exec(compile(text, "task", "exec"), namespace)
            torch.manual_seed(0)
            init = namespace.get("get_init_inputs", list)()
            module = namespace[class_name](*init).eval()
            inputs, large = _inputs(namespace["get_inputs"])
            if any(isinstance(value, list | tuple | dict) for value in inputs):
                raise Unwritten("a list as input")
            outputs: list[Any] = []

            def call(*args: Any) -> Any:
                outputs.append(module(*args))
                return outputs[-1]

            def traced_by(mode: Literal["real", "fake"]) -> torch.fx.GraphModule:
                return make_fx(call, pre_dispatch=True, tracing_mode=mode, _allow_non_fake_inputs=True)(
                    *inputs
                )

            if large:
                traced = traced_by("fake")
            elif _elements(module, inputs) > _MANY:
                try:
                    traced = traced_by("fake")
                except TimeoutError:
                    raise
                except Exception:  # it looks at numbers
                    traced = traced_by("real")
            else:
                traced = traced_by("real")
            output = outputs[-1]
    except (Unwritten, TimeoutError):
        raise
    except Exception as error:
        words = str(error).split("\n")[0][:100]
        raise Unwritten(f"not traceable: {type(error).__name__}: {words}") from error
    paths = _paths(module)
    constants: dict[str, tuple[str, torch.Tensor]] = {}
    for node in traced.graph.nodes:
        if node.op == "get_attr":
            tensor = getattr(traced, node.target)
            constants[node.target] = (_path_of(tensor, paths), tensor)
    _refuse_writes(traced.graph)
    return Traced(text, traced.graph, module, inputs, constants, output)


def _elements(module: torch.nn.Module, inputs: list[Any]) -> int:
    tensors = [*module.state_dict().values(), *inputs]
    return sum(t.numel() for t in tensors if isinstance(t, torch.Tensor))


def _inputs(get_inputs: Callable[[], Any]) -> tuple[list[Any], bool]:
    """The inputs, and whether they are too large to be made: then they are shapes alone."""
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            shapes = list(get_inputs())
    except TimeoutError:
        raise
    except Exception:  # made in a way that needs numbers, so they cannot be many
        return list(get_inputs()), False
    if sum(value.numel() for value in shapes if isinstance(value, torch.Tensor)) > MAX_ELEMENTS:
        return shapes, True
    return list(get_inputs()), False


def _paths(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Every tensor that ``self`` holds, by the Python expression that reaches it."""
    found: list[tuple[str, torch.Tensor]] = []

    def visit(owner: torch.nn.Module, prefix: str) -> None:
        tensors = {**owner._parameters, **owner._buffers}
        tensors |= {k: v for k, v in vars(owner).items() if isinstance(v, torch.Tensor)}
        for name, tensor in tensors.items():
            if tensor is not None:
                found.append((_member(owner, prefix, name), tensor))
        for name, child in owner._modules.items():
            if child is not None:
                visit(child, _member(owner, prefix, name))

    visit(module, "self")
    return found


def _member(owner: torch.nn.Module, prefix: str, name: str) -> str:
    if isinstance(owner, torch.nn.ModuleDict | torch.nn.ParameterDict):
        return f'{prefix}["{name}"]'
    return f"{prefix}[{name}]" if name.isdigit() else f"{prefix}.{name}"


def _path_of(tensor: torch.Tensor, paths: list[tuple[str, torch.Tensor]]) -> str:
    for path, held in paths:
        if held is tensor:
            return path
    for path, held in paths:
        same = held.data_ptr() == tensor.data_ptr() and held.shape == tensor.shape
        if same and held.numel() and held.stride() == tensor.stride() and held.dtype == tensor.dtype:
            return path
    return ""


def _refuse_writes(graph: Graph) -> None:
    """Writing into a view changes a tensor that the trace does not connect with it."""
    for node in graph.nodes:
        target = getattr(node.target, "_schema", None)
        if node.op != "call_function" or target is None or not target.is_mutable:
            continue
        first = node.args[0]
        while isinstance(first, Node) and first.op == "call_function" and _writes(first):
            first = first.args[0]
        if isinstance(first, Node) and (
            first.op != "call_function" or getattr(first.target, "is_view", False)
        ):
            raise Unwritten("writes into a view or an input")


def _writes(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable

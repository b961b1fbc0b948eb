"""The answer to a task: CUDA source, ``load_inline`` call and ``ModelNew``, behind the PyTorch class."""

from __future__ import annotations

import ast
import random
import textwrap
from dataclasses import dataclass

import torch

from dice_training.cuke.traced import (
    activations,
    arithmetic,
    attention,
    comparisons,
    convolutions,
    factories,
    gathers,
    joins,
    lookups,
    losses,
    movement,
    norms,
    orders,
    padding,
    pointwise,
    pools,
    products,
    reductions,
    resizing,
    shuffles,
    triangles,
    views,
)
from dice_training.cuke.traced.stages import Extension, Stages
from dice_training.cuke.traced.trace import Traced, trace
from dice_training.cuke.traced.values import Buffer, Constant, Kept, Unwritten, Value
from dice_training.cuke.traced.walk import Lowered

HANDLED_BY = (
    *(pointwise, activations, arithmetic, comparisons, factories),
    *(views, movement, triangles, padding, joins, gathers, shuffles, lookups),
    *(reductions, norms, losses, orders),
    *(products, attention, convolutions, pools, resizing),
)
"""Importing them registers their handlers."""
FUNCTION = "fused_forward"


@dataclass(frozen=True)
class Answer:
    """A task's class rewritten. ``class_text`` is ``ModelNew`` alone."""

    extension: Extension
    class_text: str
    operators: tuple[str, ...]
    """ATen operators of the trace, in order."""
    kept: tuple[str, ...]
    """Those that stay in torch, each once."""
    inputs: dict[str, torch.Tensor]
    """The task's tensors by the names that they have in C++."""


def write(
    text: str,
    class_name: str,
    function: str = FUNCTION,
    extension: str = "ext",
    twins: random.Random | None = None,
) -> Answer:
    """The answer for the task ``text``; with ``twins`` each kernel has a simple body too.

    Raises Unwritten where the teacher has no way to write it.
    """
    tree = ast.parse(text)
    owner = next(
        (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == class_name), None
    )
    if owner is None:
        raise Unwritten("no class at the top level")
    forward = next((n for n in owner.body if isinstance(n, ast.FunctionDef) and n.name == "forward"), None)
    if forward is None or forward.args.vararg or forward.args.kwarg:
        raise Unwritten("a forward with * arguments")
    names = [a.arg for a in [*forward.args.posonlyargs, *forward.args.args]][1:]
    traced = trace(text, class_name)
    try:
        lowered = Lowered(traced, names)
        outputs, structure = _outputs(lowered.output, traced)
        stages = Stages(lowered, outputs, function, extension, twins)
    except (TypeError, ValueError, LookupError, AttributeError, AssertionError) as error:
        # Operators take their arguments in more ways than the handlers know.
        raise Unwritten(f"an unusual argument: {type(error).__name__}: {str(error)[:80]}") from error
    result = structure.format(stages.results[0]) if stages.whole else _gathered(stages.results, structure)
    class_text = _class_text(text, owner, forward, [*stages.lines, f"return {result}"])
    operators = tuple(
        n.target._schema.name.split("::")[-1]
        for n in traced.graph.nodes
        if n.op == "call_function" and hasattr(n.target, "_schema")
    )
    return Answer(stages.extension, class_text, operators, stages.kept, lowered.tensors)


def _outputs(output: object, traced: Traced) -> tuple[list[Value], str]:
    """The values to compute and the expression of ``forward``'s result around the call ``{}``."""
    real = traced.output
    if isinstance(output, Value) and isinstance(real, torch.Tensor):
        if isinstance(output, Buffer) and not isinstance(output, Kept):
            raise Unwritten("an output that is an input")
        return [_computed(output, real)], "{}"
    if isinstance(output, list | tuple) and isinstance(real, list | tuple) and output:
        if not all(isinstance(o, Value) for o in output):
            raise Unwritten("a result that holds more than tensors")
        values = [_computed(o, r) for o, r in zip(output, real, strict=True)]
        if len({id(v) for v in values}) != len(values):
            raise Unwritten("the same tensor twice in a result")
        kind = "list" if isinstance(real, list) else "tuple"
        if len(values) == 1:
            return values, "[{}]" if kind == "list" else "({},)"
        return values, "{}" if kind == "list" else "tuple({})"
    raise Unwritten("a result that holds more than tensors")


def _gathered(results: list[str], structure: str) -> str:
    """The result of ``forward`` from one expression for each tensor of it."""
    joined = ", ".join(results)
    if structure == "{}" and len(results) > 1:
        return f"[{joined}]"
    return structure.format(joined) if not structure.startswith("tuple(") else joined


def _computed(value: Value, real: torch.Tensor) -> Value:
    if isinstance(value, Constant):
        raise Unwritten("an output that is constant")
    if not isinstance(real, torch.Tensor) or real.layout != torch.strided:
        raise Unwritten("a result that is no plain tensor")
    return value


def _class_text(text: str, owner: ast.ClassDef, forward: ast.FunctionDef, lines: list[str]) -> str:
    """``class ModelNew`` with the constructor as it stands and ``lines`` as its forward."""
    kept = any("self." in line or "self[" in line for line in lines)
    bases = ", ".join(ast.unparse(base) for base in owner.bases)
    if owner.keywords or bases.split(".")[-1] != "Module":
        raise Unwritten("a class of another base")
    parts = [f"class ModelNew({bases}):"]
    for node in owner.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            body = [n for n in node.body if not _is_docstring(n)]
            plain = len(node.args.args) == 1 and len(body) == 1
            if not plain:
                source = textwrap.indent(_segment(text, node), "    ")
                parts.append(source.replace(f"({owner.name},", "(ModelNew,") + "\n")
        elif isinstance(node, ast.FunctionDef) and node.name != "forward" and kept:
            used = any(
                isinstance(n, ast.Attribute) and n.attr == node.name
                for other in owner.body
                if isinstance(other, ast.FunctionDef) and other.name == "__init__"
                for n in ast.walk(other)
            )
            if used:
                parts.append(textwrap.indent(_segment(text, node), "    ") + "\n")
        elif isinstance(node, ast.Assign | ast.AnnAssign) and kept:
            parts.append(textwrap.indent(_segment(text, node), "    "))
    arguments = ast.unparse(forward.args)
    arrow = f" -> {ast.unparse(forward.returns)}" if forward.returns else ""
    body = "\n".join(f"        {line}" for line in lines)
    parts.append(f"    def forward({arguments}){arrow}:\n{body}")
    return "\n".join(parts)


def _segment(text: str, node: ast.stmt) -> str:
    """The source of a member, its own indentation removed, its comments kept but no docstring."""
    lines = text.splitlines()[node.lineno - 1 : node.end_lineno]
    said = node.body[0] if isinstance(node, ast.FunctionDef) and len(node.body) > 1 else None
    if said is not None and _is_docstring(said) and said.lineno > node.lineno and said.end_lineno:
        del lines[said.lineno - node.lineno : said.end_lineno - node.lineno + 1]
    return textwrap.dedent("\n".join(lines))


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def module_core(answer: Answer) -> str:
    """What is inserted behind the class: the house layout of ``module_writer``."""
    extension = answer.extension
    name, functions = extension.names[-1], ", ".join(f'"{name}"' for name in extension.names)
    return "\n\n\n" + "\n\n".join(
        [
            "from torch.utils.cpp_extension import load_inline",
            f'source = """{extension.source()}"""',
            f'cpp_source = "{extension.declaration};"',
            f'ext = load_inline(\n    name="{name}_ext",\n    cpp_sources=cpp_source,\n    cuda_sources=source,\n'
            f"    functions=[{functions}],\n)",
            "\n" + answer.class_text,
        ]
    )

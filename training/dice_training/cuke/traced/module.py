"""The answer to a task: CUDA source, ``load_inline`` call and ``ModelNew``, behind the PyTorch class."""

from __future__ import annotations

import ast
import textwrap
from dataclasses import dataclass

import torch

from dice_training.cuke.traced import (
    gathers,
    joins,
    losses,
    movement,
    norms,
    orders,
    padding,
    pointwise,
    products,
    reductions,
    shuffles,
    windows,
)
from dice_training.cuke.traced.kernels import Program
from dice_training.cuke.traced.lower import Lowered
from dice_training.cuke.traced.trace import Traced, trace
from dice_training.cuke.traced.values import Buffer, Constant, Unwritten, Value, reachable

HANDLED_BY = (
    *(movement, padding, joins, gathers, shuffles),
    *(pointwise, reductions, norms, losses, orders),
    *(products, windows),
)
"""Importing them registers their handlers."""
FUNCTION = "fused_forward"


@dataclass(frozen=True)
class Answer:
    """A task's class rewritten. ``program`` knows the CUDA source; ``class_text`` is ``ModelNew`` alone."""

    program: Program
    calls: str
    """The arguments that ``forward`` gives to the extension."""
    class_text: str
    operators: tuple[str, ...]
    """ATen operators of the trace, in order."""


def write(text: str, class_name: str, function: str = FUNCTION, extension: str = "ext") -> Answer:
    """The answer for the task ``text``. Raises Unwritten where the teacher has no way to write it."""
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
        lowered.used({id(value) for value in reachable(outputs) if isinstance(value, Buffer)})
        if not lowered.inputs:
            raise Unwritten("a result that depends on no tensor")
        program = Program(function, lowered.inputs, outputs)
    except (TypeError, ValueError, LookupError, AttributeError, AssertionError) as error:
        # Operators take their arguments in more ways than the handlers know.
        raise Unwritten(f"an unusual argument: {type(error).__name__}: {str(error)[:80]}") from error
    calls = ", ".join(lowered.paths)
    kept = any("self." in path or "self[" in path for path in lowered.paths)
    result = structure.format(f"{extension}.{function}({calls})")
    class_text = _class_text(text, owner, forward, kept, result)
    operators = tuple(
        n.target._schema.name.split("::")[-1]
        for n in traced.graph.nodes
        if n.op == "call_function" and hasattr(n.target, "_schema")
    )
    return Answer(program, calls, class_text, operators)


def _outputs(output: object, traced: Traced) -> tuple[list[Value], str]:
    """The values to compute and the expression of ``forward``'s result around the call ``{}``."""
    real = traced.output
    if isinstance(output, Value) and isinstance(real, torch.Tensor):
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


def _computed(value: Value, real: torch.Tensor) -> Value:
    if isinstance(value, Buffer):
        raise Unwritten("an output that is an input")
    if isinstance(value, Constant):
        raise Unwritten("an output that is constant")
    if not isinstance(real, torch.Tensor) or real.layout != torch.strided:
        raise Unwritten("a result that is no plain tensor")
    return value


def _class_text(text: str, owner: ast.ClassDef, forward: ast.FunctionDef, kept: bool, result: str) -> str:
    """``class ModelNew`` with the constructor as it stands and a forward of one line."""
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
    parts.append(f"    def forward({arguments}){arrow}:\n        return {result}")
    return "\n".join(parts)


def _segment(text: str, node: ast.stmt) -> str:
    """The source of a member, its own indentation removed, its comments and docstring kept."""
    lines = text.splitlines()[node.lineno - 1 : node.end_lineno]
    return textwrap.dedent("\n".join(lines))


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def module_core(answer: Answer) -> str:
    """What is inserted behind the class: the house layout of ``module_writer``."""
    function, declaration = answer.program.function, answer.program.declaration()
    return "\n\n\n" + "\n\n".join(
        [
            "from torch.utils.cpp_extension import load_inline",
            f'source = """{answer.program.source()}"""',
            f'cpp_source = "{declaration};"',
            f'ext = load_inline(\n    name="{function}_ext",\n    cpp_sources=cpp_source,\n    cuda_sources=source,\n'
            f'    functions=["{function}"],\n)',
            "\n" + answer.class_text,
        ]
    )

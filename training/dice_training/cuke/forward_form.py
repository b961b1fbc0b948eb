"""What a PyTorch module computes, as text that does not depend on names, numbers or spelling.

Two modules with equal forms are the same task: ``self.act = nn.ReLU()`` and ``self.act(x)``, ``F.relu(x)``,
``x.relu()`` and ``torch.relu(x)`` in two statements or one all become ``relu(v0)``.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from dice_training.cuke.verify import Row
from dice_training.data import DataError

_LONGEST = 400
"""Longer parts are replaced by their digest: a value that is used twice would double the text."""


class Contamination:
    """The forms of evaluation tasks; rows with one of them must not be trained on."""

    def __init__(self, places: Iterable[Path]) -> None:
        """``places``: folders of ``.py`` tasks, or JSONL files with ``pytorch_code``. Raises DataError for others."""
        self.forms = {form for place in places for text in _texts(place) if (form := forward_form(text))}

    def __contains__(self, row: Row) -> bool:
        text = row.get("pytorch", row["reference"])
        return bool(self.forms) and "class " in text and forward_form(text) in self.forms


def _texts(place: Path) -> Iterator[str]:
    from dice_training.tasks import read_tasks

    if place.is_dir():
        for path in sorted(place.rglob("*.py")):
            yield path.read_text(encoding="utf-8", errors="replace")
    elif place.suffix == ".jsonl":
        yield from (row["reference"] for row in read_tasks(place))
    else:
        raise DataError(f"{place}: neither a folder of tasks nor a JSONL file of them")


def forward_form(text: str) -> str | None:
    """The form of ``Model`` (or of the last class with ``forward``) of a Python text; None where there is none."""
    found = _find(text)
    return None if found is None else _Reader(*found).form()


def operators(text: str) -> list[str]:
    """Names of what the module's ``forward`` calls and of its arithmetic, in the order of its form."""
    found = _find(text)
    if found is None:
        return []
    reader = _Reader(*found)
    reader.form()
    return reader.operators


def _find(text: str) -> tuple[ast.FunctionDef, dict[str, ast.expr]] | None:
    """The forward function, and what ``__init__`` assigns to attributes."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and _method(node, "forward")]
    if not classes:
        return None
    chosen = next((node for node in classes if node.name == "Model"), classes[-1])
    forward, init = _method(chosen, "forward"), _method(chosen, "__init__")
    assert forward is not None
    attributes: dict[str, ast.expr] = {}
    for node in ast.walk(init) if init else ():
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            attributes[node.targets[0].attr] = node.value
    return forward, attributes


def _method(node: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == name), None)


class _Reader:
    def __init__(self, forward: ast.FunctionDef, attributes: dict[str, ast.expr]) -> None:
        self.forward, self.attributes = forward, attributes
        self.operators: list[str] = []
        names = [argument.arg for argument in forward.args.args]
        self.self_name = names[0] if names else "self"
        self.values = {name: f"v{number}" for number, name in enumerate(names[1:])}

    def form(self) -> str:
        return ";".join(part for statement in self.forward.body if (part := self._statement(statement)))

    def _statement(self, node: ast.stmt) -> str:
        """Plain assignments are remembered and put where their names are used; other statements stay."""
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return ""  # a docstring
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            self.values[node.targets[0].id] = self._value(node.value)
            return ""
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            self.values[node.target.id] = self._binary(
                node.op, self._value(node.target), self._value(node.value)
            )
            return ""
        if isinstance(node, ast.Return):
            return f"return {self._value(node.value)}" if node.value else "return"
        inside = [
            self._statement(child) if isinstance(child, ast.stmt) else self._value(child)
            for child in ast.iter_child_nodes(node)
        ]
        return f"{type(node).__name__}({','.join(inside)})"

    def _value(self, node: Any) -> str:
        text = self._expression(node)
        if len(text) > _LONGEST:
            return "#" + hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        return text

    def _expression(self, node: Any) -> str:
        if isinstance(node, ast.Name):
            return self.values.setdefault(node.id, f"v{len(self.values)}")
        if isinstance(node, ast.Constant):
            return repr(node.value) if isinstance(node.value, str) else "0"
        if isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant):
            return "0"
        if isinstance(node, ast.BinOp):
            return self._binary(node.op, self._value(node.left), self._value(node.right))
        if isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id == self.self_name:
                made = self.attributes.get(node.attr)
                return "0" if made is None or not isinstance(made, ast.Call) else self._call(made)
            return f"{self._value(node.value)}.{node.attr}"
        if isinstance(node, ast.Call):
            return self._call(node)
        inside = [self._value(child) for child in ast.iter_child_nodes(node)]
        return f"{type(node).__name__}({','.join(inside)})"

    def _binary(self, op: ast.operator, left: str, right: str) -> str:
        name = {"Mult": "mul", "MatMult": "matmul"}.get(type(op).__name__, type(op).__name__.lower())
        self.operators.append(name)
        return f"{name}({left},{right})"

    def _call(self, node: ast.Call) -> str:
        arguments = [self._value(argument) for argument in node.args]
        arguments += sorted(f"{keyword.arg}={self._value(keyword.value)}" for keyword in node.keywords)
        layers = self._sequence(node.func)
        if layers is not None:
            for layer in layers:
                name = self._callee(layer)[0]
                self.operators.append(name)
                arguments = [f"{name}({','.join(arguments)})"]
            return arguments[0] if arguments else "sequential()"
        name, first = self._callee(node.func)
        self.operators.append(name)
        return f"{name}({','.join([*first, *arguments])})"

    def _sequence(self, node: ast.expr) -> list[ast.expr] | None:
        """The layers of an ``nn.Sequential`` that is called, None for anything else."""
        made: ast.expr | None = node
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            made = self.attributes.get(node.attr) if node.value.id == self.self_name else None
        if not isinstance(made, ast.Call) or self._callee(made.func)[0] != "sequential":
            return None
        return list(made.args)

    def _callee(self, node: ast.expr) -> tuple[str, list[str]]:
        """The operator's plain name, and a first argument where it is a method of a value."""
        if isinstance(node, ast.Attribute):
            owner = node.value
            if isinstance(owner, ast.Name) and owner.id == self.self_name:  # a submodule made in __init__
                made = self.attributes.get(node.attr)
                if isinstance(made, ast.Call):
                    return self._callee(made.func)[0], []
                if made is not None:
                    return self._callee(made)[0], []
                return "self", []
            if _is_library(owner):
                return node.attr.lower().rstrip("_"), []
            return node.attr.lower().rstrip("_"), [self._value(owner)]
        if isinstance(node, ast.Name):
            return node.id.lower(), []
        if isinstance(node, ast.Call):  # nn.ReLU()(x)
            return self._callee(node.func)[0], []
        return "call", [self._value(node)]


def _is_library(node: ast.expr) -> bool:
    """``torch``, ``F``, ``nn`` and what is below them."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in ("torch", "F", "nn", "math")

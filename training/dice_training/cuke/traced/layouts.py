"""A task's file as other people lay it out: docstrings, types, blank lines, comments. What it computes stays.

Collections of tasks are often written by one hand; benchmarks explain each class and argument.
"""

from __future__ import annotations

import ast
import random
import re

_WHAT = (
    "Simple model that {does}.",
    "A model that {does}.",
    "Model that {does}",
    "{Does}.",
    "Performs the operation and returns the result.",
    "Simple model that {does} and returns the output.",
)
_CALL = (
    "Applies the operation to the input.",
    "Forward pass of the model.",
    "Computes the output of the module.",
    "{Does}.",
    "Runs the forward pass.",
)
_ARGUMENT = (
    "Input tensor.",
    "Input tensor of shape {shape}.",
    "The tensor to work on.",
    "Tensor of any shape.",
)
_SHAPES = (
    "(batch_size, dim)",
    "(batch_size, *, dim)",
    "(N, C, H, W)",
    "(B, T, C)",
    "(batch_size, channels, height, width)",
)
_OPTION = (
    "The {name} of the operation.",
    "Value of {name}.",
    "{Name} to use.",
    "{Name}.",
    "Number of {name}.",
)
_RETURN = (
    "Output tensor.",
    "Output tensor, same shape as the input.",
    "The result.",
    "Tensor with the operation applied.",
)
_NOTHING = (
    "  # No special initialization inputs needed",
    "  # No initialization inputs needed",
    "  # nothing to set up",
)


def another_layout(text: str, rng: random.Random) -> str:
    """``text`` with some of these habits."""
    tree = ast.parse(text)
    owner = next((n for n in tree.body if isinstance(n, ast.ClassDef) and _method(n, "forward")), None)
    if owner is None or '"""' in text:
        return text
    made: dict[int, list[str]] = {}
    """Lines to stand before a line of the file, by its number."""
    does = _does(owner)
    if rng.random() < 0.8:
        said = rng.choice(_WHAT).format(does=does, Does=does.capitalize())
        made[owner.body[0].lineno] = _docstring([said], 4, rng.random() < 0.75)
    for method, chance in (("__init__", 0.4), ("forward", 0.6)):
        node = _method(owner, method)
        if node is not None and rng.random() < chance and node.lineno != node.body[0].lineno:
            made.setdefault(node.body[0].lineno, []).extend(_explained(node, does, rng))
    lines: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        lines += [*made.get(number, ()), line]
    laid = "\n".join(lines)
    if rng.random() < 0.6:
        laid = laid.replace("\n\n\n", "\n\n")
    if rng.random() < 0.6:
        laid = re.sub(r"super\(\)\.__init__", f"super({owner.name}, self).__init__", laid)
    if rng.random() < 0.5:
        laid = _typed(laid, rng)
    if rng.random() < 0.4:
        laid = laid.replace("    return []", "    return []" + rng.choice(_NOTHING))
    if rng.random() < 0.2:
        laid = re.sub(r"\n\n(    def )", r"\n    \n\1", laid)
    return laid


def _method(owner: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((n for n in owner.body if isinstance(n, ast.FunctionDef) and n.name == name), None)


def _does(owner: ast.ClassDef) -> str:
    """What ``forward`` calls, in words."""
    forward = _method(owner, "forward")
    assert forward is not None
    called = [
        n.func.attr
        for n in ast.walk(forward)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)
    ]
    words = [name.strip("_").replace("_", " ") for name in dict.fromkeys(called)][:3]
    return f"performs {', '.join(words)}" if words else "combines its inputs"


def _docstring(lines: list[str], depth: int, open_: bool) -> list[str]:
    unit = " " * depth
    if len(lines) == 1 and not open_:
        return [f'{unit}"""{lines[0]}"""']
    return [f'{unit}"""', *(unit + line if line else "" for line in lines), f'{unit}"""']


def _explained(node: ast.FunctionDef, does: str, rng: random.Random) -> list[str]:
    """A docstring with a line for each argument."""
    names = [a.arg for a in node.args.args[1:]]
    start = node.name == "__init__"
    said = "Initializes the module." if start else rng.choice(_CALL).format(Does=does.capitalize())
    lines = [said]
    if names and rng.random() < 0.8:
        lines += ["", "Args:"]
        for name in names:
            words = rng.choice(_OPTION if start else _ARGUMENT)
            plain = name.replace("_", " ")
            words = words.format(name=plain, Name=plain.capitalize(), shape=rng.choice(_SHAPES))
            kind = " (int)" if start else " (torch.Tensor)"
            lines.append(f"    {name}{kind if rng.random() < 0.7 else ''}: {words}")
    if not start and rng.random() < 0.7:
        lines += ["", "Returns:", f"    {rng.choice(('torch.Tensor: ', ''))}{rng.choice(_RETURN)}"]
    return _docstring(lines, 8, True)


def _typed(text: str, rng: random.Random) -> str:
    """Types of the arguments of ``forward``, where it has none."""
    found = re.search(r"    def forward\(self, ([\w, ]+)\):", text)
    if found is None:
        return text
    arguments = ", ".join(f"{name}: torch.Tensor" for name in found[1].split(", "))
    arrow = rng.choice((" -> torch.Tensor", ""))
    return text.replace(found[0], f"    def forward(self, {arguments}){arrow}:")

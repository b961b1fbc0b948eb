"""Tasks like a given one: other names, sizes and numbers, and here and there another operator, one more or one less.

The file keeps its form and its author's habits, so that a few thousand tasks show many more programs. Whether a variant
runs is seen when it is traced.
"""

# ruff: noqa: E501  (the table of operators)
from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dice_training.cuke.traced.invented_ops import STATEMENTS
from dice_training.cuke.words import fresh_name

_RENAMED, _RESIZED, _RENUMBERED, _SWAPPED, _LONGER, _SHORTER = 0.5, 0.6, 0.5, 0.5, 0.4, 0.1
"""How often each is done at all."""
_SIZES = (
    2,
    3,
    4,
    5,
    6,
    8,
    10,
    12,
    16,
    20,
    24,
    32,
    48,
    50,
    64,
    96,
    100,
    128,
    192,
    200,
    256,
    320,
    512,
    768,
    1024,
)
_NUMBERS = (
    "0.1",
    "0.2",
    "0.01",
    "0.5",
    "0.25",
    "0.3",
    "1.0",
    "2.0",
    "1.5",
    "3.0",
    "0.05",
    "0.7",
    "2.5",
    "5.0",
)
_USUAL = (
    *(
        "x",
        "y",
        "z",
        "a",
        "b",
        "inp",
        "input_tensor",
        "tensor",
        "data",
        "features",
        "x1",
        "x2",
        "other",
        "target",
    ),
    *("scale", "alpha", "beta", "factor", "value", "threshold", "dim", "eps", "shift", "min_val", "max_val"),
    *(
        "batch_size",
        "channels",
        "height",
        "width",
        "seq_len",
        "hidden_size",
        "num_features",
        "in_features",
        "length",
    ),
    *(
        "out",
        "result",
        "h",
        "output",
        "tmp",
        "hidden",
        "mask",
        "bias",
        "weight",
        "norm",
        "linear",
        "conv",
        "act",
        "fc",
    ),
)
_SORTS = tuple(
    tuple(line.split())
    for line in """
        torch.relu torch.sigmoid torch.tanh torch.sin torch.cos torch.exp torch.abs torch.square torch.neg torch.erf torch.expm1
        torch.floor torch.ceil torch.round torch.trunc torch.sign torch.frac
        torch.log torch.log2 torch.log1p torch.log10 torch.sqrt torch.rsqrt torch.reciprocal
        torch.tan torch.atan torch.asin torch.acos torch.sinh torch.cosh torch.sinc torch.deg2rad torch.rad2deg torch.exp2
        F.relu F.gelu F.silu F.elu F.selu F.mish F.hardswish F.softplus F.hardsigmoid F.relu6 F.softsign F.tanhshrink F.logsigmoid
        nn.ReLU() nn.GELU() nn.SiLU() nn.Sigmoid() nn.Tanh() nn.ELU() nn.SELU() nn.Mish() nn.Hardswish() nn.Softplus() nn.ReLU6()
        nn.Hardsigmoid() nn.Softsign() nn.Hardtanh() nn.LogSigmoid() nn.Tanhshrink()
        torch.sum torch.mean torch.prod torch.amax torch.amin torch.logsumexp torch.std torch.var torch.argmax torch.argmin
        torch.add torch.sub torch.mul torch.div torch.maximum torch.minimum torch.pow torch.fmod
        torch.gt torch.lt torch.ge torch.le torch.eq torch.ne
        torch.max torch.min
        torch.cumsum torch.cumprod
        torch.zeros_like torch.ones_like
        torch.logical_and torch.logical_or torch.logical_xor
        F.mse_loss F.l1_loss F.smooth_l1_loss F.huber_loss
        nn.MSELoss() nn.L1Loss() nn.SmoothL1Loss() nn.HuberLoss()
        F.max_pool2d F.avg_pool2d
        F.softmax F.log_softmax F.softmin
        nn.InstanceNorm2d nn.BatchNorm2d
        torch.triu torch.tril
    """.strip().splitlines()
)
_ALONE = [
    s for s in STATEMENTS if not s.constructor and set(re.findall(r"\{(\w+)\}", s.expression)) <= {*"xdeabsk"}
]
"""Statements about one tensor, whatever its sizes."""
_SORT_OF = {name: sort for sort in _SORTS for name in sort}
_OPERATOR = re.compile(r"(?:torch|F|nn)\.\w+(?:\(\))?")


@dataclass(frozen=True)
class _Edit:
    """Another text in place of what stands on one line from ``start`` to ``end`` (in UTF-8 bytes)."""

    line: int
    start: int
    end: int
    text: str


def variant(text: str, rng: random.Random) -> str:
    """A program like ``text``, or ``text`` itself where nothing was drawn."""
    if rng.random() < _LONGER:
        text = _longer(text, rng)
    if rng.random() < _SHORTER:
        text = _shorter(text, rng)
    tree = ast.parse(text)
    edits: list[_Edit] = []
    if rng.random() < _RENAMED:
        edits += _renamed(tree, rng)
    resized = rng.random() < _RESIZED
    renumbered = rng.random() < _RENUMBERED
    sizes: dict[int, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) is int and resized:
            edits += _at(node, _size(node.value, sizes, rng))
        elif isinstance(node, ast.Constant) and type(node.value) is float and renumbered:
            usual = 1e-3 < node.value < 100  # not an epsilon
            edits += _at(node, rng.choice(_NUMBERS)) if usual and rng.random() < 0.6 else ()
    changed = _applied(text, edits)
    return _swapped(changed, rng) if rng.random() < _SWAPPED else changed


def _size(value: int, known: dict[int, str], rng: random.Random) -> str:
    """Equal sizes stay equal; the small numbers are rather axes, kernels and factors, and stay."""
    if value < 8:
        return str(value)
    if value not in known:
        near = [size for size in _SIZES if value / 4 <= size <= min(2 * value, 1024)] or [value]
        known[value] = str(rng.choice(near) if rng.random() < 0.7 else value)
    return known[value]


def _renamed(tree: ast.Module, rng: random.Random) -> Iterator[_Edit]:
    """Other names for arguments, variables, sizes and members, each the same everywhere."""
    made = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)} - {"self"}
    made |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    members = {n.attr for n in _members(tree) if isinstance(n.ctx, ast.Store)}
    taken = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} | made | members
    taken |= {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    taken |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.keyword) and n.arg}
    names: dict[str, str] = {}
    for name in sorted(made | members):
        if rng.random() < 0.5:
            new = rng.choice(_USUAL) if rng.random() < 0.6 else fresh_name(rng, taken)
            if new not in taken:
                names[name] = new
                taken.add(new)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in names and node.id in made:
            yield _Edit(node.lineno, node.col_offset, node.col_offset + len(node.id), names[node.id])
        elif isinstance(node, ast.arg) and node.arg in names:
            yield _Edit(node.lineno, node.col_offset, node.col_offset + len(node.arg), names[node.arg])
    for node in _members(tree):
        if node.attr in members and node.attr in names and node.end_lineno and node.end_col_offset:
            start = node.end_col_offset - len(node.attr)
            yield _Edit(node.end_lineno, start, node.end_col_offset, names[node.attr])


def _members(tree: ast.Module) -> Iterator[ast.Attribute]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            yield node


def _at(node: ast.Constant, text: str) -> Iterable[_Edit]:
    if node.end_lineno == node.lineno and node.end_col_offset is not None:
        yield _Edit(node.lineno, node.col_offset, node.end_col_offset, text)


def _applied(text: str, edits: list[_Edit]) -> str:
    lines = [line.encode() for line in text.split("\n")]
    for edit in sorted(set(edits), key=lambda e: (e.line, e.start), reverse=True):
        line = lines[edit.line - 1]
        lines[edit.line - 1] = line[: edit.start] + edit.text.encode() + line[edit.end :]
    return b"\n".join(lines).decode()


def _swapped(text: str, rng: random.Random) -> str:
    """One or two operators by others that take the same arguments."""
    found = [match for match in _OPERATOR.finditer(text) if match[0] in _SORT_OF]
    for match in sorted(rng.sample(found, min(len(found), rng.choice((1, 1, 2)))), key=lambda m: -m.start()):
        text = text[: match.start()] + rng.choice(_SORT_OF[match[0]]) + text[match.end() :]
    return text


def _steps(text: str) -> list[ast.Assign]:
    """Statements of ``forward`` on a line of their own that give a variable a new value: ``x = f(x)``."""
    found = []
    for owner in ast.walk(ast.parse(text)):
        if isinstance(owner, ast.FunctionDef) and owner.name == "forward":
            for node in owner.body:
                if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
                    continue
                name = node.targets[0].id
                if node.lineno == node.end_lineno and any(
                    isinstance(n, ast.Name) and n.id == name for n in ast.walk(node.value)
                ):
                    found.append(node)
    return found


def _longer(text: str, rng: random.Random) -> str:
    """One more statement before or behind a step."""
    steps = _steps(text)
    if not steps:
        return text
    step, lines = rng.choice(steps), text.split("\n")
    fields = {"x": ast.unparse(step.targets[0]), "d": rng.choice(("-1", "0", "1", "1", "2")), "e": "0"}
    fields |= {"a": rng.choice(_NUMBERS), "s": rng.choice(_NUMBERS), "b": rng.choice(("1.0", "2.0", "3.0"))}
    fields["k"] = rng.choice(("1", "2", "3"))
    functional = "nn.functional as F" in text
    choices = [s for s in _ALONE if functional or "F." not in s.expression]
    statement = rng.choices(choices, [s.weight for s in choices])[0]
    line = f"{' ' * step.col_offset}{fields['x']} = {statement.expression.format(**fields)}"
    lines.insert(step.lineno - (rng.random() < 0.4), line)
    return "\n".join(lines)


def _shorter(text: str, rng: random.Random) -> str:
    """A step left out, where others are left."""
    steps, lines = _steps(text), text.split("\n")
    if len(steps) > 1:
        del lines[rng.choice(steps).lineno - 1]
    return "\n".join(lines)

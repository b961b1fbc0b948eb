"""A specification: what one sample computes, on which shapes, with which names. Everything else is writing."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, replace
from typing import Literal

from dice_training.cuke.numbers_text import drawn_expression
from dice_training.cuke.numeric import tame
from dice_training.cuke.ops import OPS, Op
from dice_training.cuke.row_ops import ROW_OPS, RowOp
from dice_training.cuke.words import NamePool

TEST_PERCENT = 4


@dataclass(frozen=True)
class Scalar:
    """A scalar argument: a literal, or (``name`` given) an argument of the module's constructor."""

    value: float
    name: str | None = None
    text: tuple[str, str] | None = None
    """How an unnamed value is written as an expression, in Python and in CUDA: ``("1 / 3", "(1.0f / 3.0f)")``."""
    constant: str | None = None
    """Name of the constant at the head of a CUDA file that holds it."""


@dataclass(frozen=True)
class Operand:
    """A tensor beside the main one: of its shape (``full``), one value for each column (``vec``), or one at all."""

    name: str
    layout: Literal["full", "vec", "one"]
    origin: Literal["input", "param"]


@dataclass(frozen=True)
class Step:
    op: str
    scalars: tuple[Scalar, ...] = ()
    operands: tuple[Operand, ...] = ()

    @property
    def definition(self) -> Op:
        return OPS[self.op]


@dataclass(frozen=True)
class RowStep:
    op: str
    keepdim: bool = False
    eps: float | None = None
    affine: tuple[Operand, ...] = ()

    @property
    def definition(self) -> RowOp:
        return ROW_OPS[self.op]


@dataclass(frozen=True)
class Spec:
    shape: tuple[int, ...]
    axis: int
    """The row operator's dimension, counted from 0."""
    fill: Literal["randn", "rand"]
    x: str
    before: tuple[Step, ...]
    row: RowStep | None
    after: tuple[Step, ...]

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.before + self.after

    @property
    def family(self) -> str:
        return family_of([s.op for s in self.steps], self.row.op if self.row else None)

    @property
    def reduces(self) -> bool:
        return self.row is not None and not self.row.definition.maps

    @property
    def operands(self) -> tuple[Operand, ...]:
        """All further tensors, inputs first, in order of use."""
        found: dict[str, Operand] = {}
        for step in self.before:
            found.update({o.name: o for o in step.operands})
        if self.row:
            found.update({o.name: o for o in self.row.affine})
        for step in self.after:
            found.update({o.name: o for o in step.operands})
        return tuple(sorted(found.values(), key=lambda o: o.origin != "input"))

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """Scalars that are arguments of the constructor, in order of use."""
        found = {s.name: s for step in self.steps for s in step.scalars if s.name}
        return tuple(found.values())

    @property
    def length(self) -> int:
        """Length of the dimension that a row operator works over (the last one without one)."""
        return self.shape[self.axis]

    @property
    def strided(self) -> bool:
        """The row operator's dimension is not the last, so its elements are not neighbours in memory."""
        return self.row is not None and self.axis != len(self.shape) - 1

    @property
    def width(self) -> int:
        """Length of the last dimension: what ``vec`` operands are indexed by."""
        return self.shape[-1]


def family_of(ops: list[str], row: str | None) -> str:
    return "+".join(sorted(ops)) + (f"|{row}" if row else "")


def is_test(family: str) -> bool:
    """Whether a family of op combinations is held out. Single operators always train, so that each one is seen."""
    ops, _, row = family.partition("|")
    if len([o for o in ops.split("+") if o]) + bool(row) <= 1:
        return False
    digest = hashlib.blake2b(family.encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") % 100 < TEST_PERCENT


_X_NAMES = ("x", "x", "x", "x", "input", "inp", "a", "inputs", "data", "feat", "t", "hidden")
_FULL_NAMES = ("y", "other", "z", "residual", "target", "mask_values", "b", "skip", "u", "w")
_VEC_NAMES = ("bias", "scale", "weight", "gamma", "shift", "beta", "row_scale", "offsets", "gain")
_UNARY = tuple(o for o in OPS.values() if not o.operands)
_BINARY = tuple(o for o in OPS.values() if o.operands)
_UNARY_WEIGHTS = tuple(o.weight for o in _UNARY)
_BINARY_WEIGHTS = tuple(o.weight for o in _BINARY)
_ROWS = tuple(ROW_OPS.values())
_ROW_WEIGHTS = tuple(r.weight for r in _ROWS)
_WIDTHS = (16, 32, 48, 64, 100, 128, 256, 384, 500, 512, 768, 1000, 1024, 2048, 4096, 10, 5, 33, 77)
_WIDTH_WEIGHTS = (2, 3, 1, 5, 2, 6, 7, 1, 1, 6, 3, 2, 6, 3, 2, 2, 1, 1, 1)
_BATCHES = (1, 2, 4, 8, 10, 16, 32, 64, 100, 128, 256, 512, 7)
_BATCH_WEIGHTS = (1, 2, 3, 4, 2, 7, 7, 6, 1, 7, 3, 1, 1)
_MIDDLES = (2, 3, 4, 6, 8, 10, 12, 16, 20, 32, 64)


_EXPRESSIONS = frozenset(
    ("mul_scalar", "add_scalar", "sub_scalar", "div_scalar", "rsub_scalar", "affine", "clamp_max")
)
"""Operators that take any constant."""
_ANY_VALUE = _EXPRESSIONS | {
    "clamp_min",
    "leaky_relu",
    "elu",
    "celu",
    "where_scale",
    "gt",
    "lt",
    "add_scaled",
    "addcmul",
}


def _shape(rng: random.Random, limit: int) -> tuple[int, ...]:
    rank = rng.choices((1, 2, 3, 4), (1, 14, 4, 3))[0]
    while True:
        width = rng.choices(_WIDTHS, _WIDTH_WEIGHTS)[0]
        if rng.random() < 0.3:
            width = rng.choice((rng.randrange(3, 400), rng.randrange(3, 2600), 32 * rng.randrange(1, 64)))
        if rank == 1:
            shape: tuple[int, ...] = (width,)
        else:
            middle = tuple(rng.choice(_MIDDLES) for _ in range(rank - 2))
            shape = (_batch(rng), *middle, width)
        size = 1
        for s in shape:
            size *= s
        if size <= limit and size > 1:
            return shape


def _batch(rng: random.Random) -> int:
    return rng.randrange(1, 300) if rng.random() < 0.15 else rng.choices(_BATCHES, _BATCH_WEIGHTS)[0]


def _scalars(rng: random.Random, op: Op, names: NamePool, named: float) -> tuple[Scalar, ...]:
    values = []
    for pool, choices in op.args:
        name = names.take(pool) if rng.random() < named else None
        if name is None and op.name in _EXPRESSIONS and rng.random() < 0.08:
            value, text = drawn_expression(rng)
            values.append(Scalar(value, None, text))
            continue
        value = rng.choice(choices)
        if op.name in _ANY_VALUE and rng.random() < 0.3:
            value = round(rng.uniform(0.05, 3.0), rng.choice((1, 1, 2, 2, 3))) or 0.5
        values.append(Scalar(value, name))
    return tuple(values)


def random_spec(rng: random.Random, max_elements: int = 1 << 20) -> Spec:
    """One specification whose numbers stay tame (see ``numeric.tame``)."""
    while True:
        spec = _draw(rng, max_elements)
        if spec is not None and tame(spec):
            return spec


def _draw(rng: random.Random, max_elements: int) -> Spec | None:
    names = NamePool(rng, fresh=rng.choice((0.0, 0.0, 0.3, 0.7)))
    strided = False
    x = names.take(_X_NAMES)
    with_row = rng.random() < 0.5
    shape = _shape(rng, max_elements)
    if with_row and len(shape) < 2:
        return None
    if with_row and rng.random() < (0.12 if len(shape) == 2 else 0.45):
        strided = True
    named = rng.choice((0.0, 0.0, 0.5, 1.0))
    binary = rng.choice((0.0, 0.0, 0.25, 0.5))
    shared: list[Operand] = []

    def operand(op: Op) -> Operand:
        if op.name == "prelu":
            return Operand(names.take(("prelu_weight", "slope", "act_weight")), "one", "param")
        if shared and rng.random() < 0.1:
            return rng.choice(shared)
        if len(shape) > 1 and not strided and rng.random() < 0.45:
            made = Operand(names.take(_VEC_NAMES), "vec", "param" if rng.random() < 0.75 else "input")
        else:
            made = Operand(names.take(_FULL_NAMES), "full", "input")
        shared.append(made)
        return made

    def chain(length: int, exact: bool, tensors: bool) -> tuple[list[Step], bool]:
        steps: list[Step] = []
        for _ in range(length):
            two = tensors and rng.random() < binary
            op = rng.choices(_BINARY, _BINARY_WEIGHTS)[0] if two else rng.choices(_UNARY, _UNARY_WEIGHTS)[0]
            if (op.jumps and not exact) or (steps and steps[-1].op == op.name):
                continue
            exact = exact and op.keeps_exact
            steps.append(
                Step(op.name, _scalars(rng, op, names, named), tuple(operand(op) for _ in range(op.operands)))
            )
        return steps, exact

    if not with_row:
        steps, _ = chain(rng.choices((1, 2, 3, 4, 5), (3, 5, 5, 3, 1))[0], True, True)
        return Spec(shape, len(shape) - 1, _fill(rng), x, tuple(steps), None, ()) if steps else None
    before, exact = chain(rng.choices((0, 1, 2, 3), (5, 5, 3, 1))[0], True, True)
    row = rng.choices(_ROWS, _ROW_WEIGHTS)[0]
    if row.special.startswith("arg") and not exact:
        return None
    axis = rng.choice((0,) if len(shape) == 2 else (1, 1, len(shape) - 2)) if strided else len(shape) - 1
    if strided and (row.last_only or row.affine or shape[axis] < 2):
        return None
    after, _ = chain(rng.choices((0, 1, 2), (6, 4, 1))[0], False, row.maps)
    if row.special.startswith("arg"):
        after = []
    if row.special == "cumsum":
        after = []
    affine = tuple(
        Operand(names.take((role, f"norm_{role}", {"weight": "gamma", "bias": "beta"}[role])), "vec", "param")
        for role in row.affine
    )
    names.used.update(o.name for o in affine)
    step = RowStep(
        row.name, not row.maps and rng.random() < 0.3, rng.choice(row.eps) if row.eps else None, affine
    )
    return Spec(shape, axis, _fill(rng), x, tuple(before), step, tuple(after))


def _fill(rng: random.Random) -> Literal["randn", "rand"]:
    return "rand" if rng.random() < 0.2 else "randn"


def with_names(spec: Spec, names: dict[str, str]) -> Spec:
    """The same computation with tensors and named scalars called by their values in ``names``."""

    def fix(steps: tuple[Step, ...]) -> tuple[Step, ...]:
        return tuple(
            replace(
                s,
                scalars=tuple(replace(c, name=names[c.name]) if c.name else c for c in s.scalars),
                operands=tuple(replace(o, name=names[o.name]) for o in s.operands),
            )
            for s in steps
        )

    row = spec.row
    if row:
        row = replace(row, affine=tuple(replace(o, name=names[o.name]) for o in row.affine))
    return replace(spec, x=names[spec.x], before=fix(spec.before), row=row, after=fix(spec.after))

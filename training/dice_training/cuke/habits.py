"""Habits of a kernel's author: how a body is written when it only has to be right."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from dice_training.cuke.row_ops import Combine
from dice_training.cuke.words import fresh_name

Reduction = Literal["tree", "interleaved", "serial", "shuffle"]

_PRODUCTS = (
    "blockIdx.{d} * blockDim.{d} + threadIdx.{d}",
    "blockIdx.{d} * blockDim.{d} + threadIdx.{d}",
    "blockDim.{d} * blockIdx.{d} + threadIdx.{d}",
    "threadIdx.{d} + blockIdx.{d} * blockDim.{d}",
    "threadIdx.{d} + blockDim.{d} * blockIdx.{d}",
)
_STRIDES = ("blockDim.x * gridDim.x", "blockDim.x * gridDim.x", "gridDim.x * blockDim.x")
_TYPES = (
    "int",
    "int",
    "int",
    "int",
    "const int",
    "unsigned int",
    "unsigned",
    "size_t",
    "auto",
    "const auto",
    "long",
)
_STEPS = ("++{i}", "{i}++", "{i}++", "{i} += 1")


@dataclass(frozen=True)
class Habits:
    """How hasty the body is, and its idioms."""

    chain: Literal["var", "ssa", "memory", "nested"]
    double: float
    """Share of steps written in the hasty spelling."""
    early: Literal["", "return", "braces"]
    serial_map: bool
    real: str
    """Type of the local values."""
    sums: str
    """Type of accumulators and of the shared array."""
    neutral: dict[Combine, str]
    index: str
    counter: str
    product: str
    stride: str
    step: str
    loop: Literal["for", "while"]
    named_row: bool
    named_thread: bool
    pointers: tuple[str, str] | None
    """Names of pointers to the row in the input and in the output."""
    reduction: Reduction
    direct: bool
    """The result of the last reduction is read from shared memory where it is needed."""
    local: str
    """Prefix of each thread's own part of a reduction."""
    braces: bool
    augmented: bool
    comments: float
    halving: str
    half: str
    """Name of the distance in a reduction's tree."""
    ifs: bool
    """Operators that can are written as statements: ``if (v < 0) v = 0;``."""
    ssa: str
    """Name of the first intermediate value, empty for numbered ones."""

    def at(self, d: str = "x") -> str:
        return self.product.format(d=d)


def draw_habits(rng: random.Random, taken: set[str], dynamic: bool) -> Habits:
    big = rng.choice(("-1e30f", "-1e20f", "-1e38f", "-3.4e38f", "-INFINITY", "-FLT_MAX"))
    odd = rng.random() < 0.6
    real = "double" if rng.random() < 0.12 else "float"

    def pointer(usual: tuple[str, ...]) -> str:
        free = [name for name in usual if name not in taken]
        name = rng.choice(free) if free and rng.random() < 0.6 else fresh_name(rng, taken)
        taken.add(name)
        return name

    pointers = None
    if rng.random() < 0.35:
        pointers = (
            pointer(("row_x", "xr", "src_row", "px", "row_in", "row_ptr", "xi")),
            pointer(("row_out", "yr", "dst_row", "po", "out_row", "yi")),
        )
    sums = "double" if real == "double" or rng.random() < 0.12 else "float"
    return Habits(
        chain=rng.choice(("var", "var", "ssa", "memory", "nested", "nested")),
        double=rng.choice((0.3, 0.8, 1.0)),
        early=rng.choice(("", "", "return", "braces")),
        serial_map=rng.random() < 0.5,
        real="float" if dynamic else real,  # the size of dynamic shared memory is given in floats
        sums="float" if dynamic else sums,
        neutral={
            "sum": rng.choice(("0.0f", "0.0f", "0", "0.f", "0.0")),
            "max": big,
            "min": big[1:],
            "prod": "1.0f",
        },
        index=rng.choice(_TYPES) if odd else "int",
        counter=rng.choice(("int", "int", "int", "unsigned int", "size_t")) if odd else "int",
        product=rng.choice(_PRODUCTS),
        stride=rng.choice(_STRIDES),
        step=rng.choice(_STEPS),
        loop="while" if rng.random() < 0.12 else "for",
        named_row=rng.random() < 0.8,
        named_thread=rng.random() < 0.75,
        pointers=pointers,
        reduction=rng.choice(("tree", "tree", "tree", "interleaved", "serial", "shuffle")),
        direct=rng.random() < 0.4,
        local=rng.choice(("local_", "local_", "my_", "thread_", "part_", "partial_")),
        braces=rng.random() < 0.6,
        augmented=rng.random() < 0.4,
        comments=rng.choice((0.0, 0.0, 0.0, 0.15, 0.4)),
        halving=rng.choice(("{s} >>= 1", "{s} >>= 1", "{s} /= 2", "{s} = {s} / 2")),
        half=pointer(("s", "stride", "offset", "step", "off")),
        ifs=rng.random() < 0.3,
        ssa=pointer(("s", "tmp", "act", "h", "q")) if rng.random() < 0.3 else "",
    )

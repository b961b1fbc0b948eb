"""Writes the sizes of a file and its ``get_inputs`` and ``get_init_inputs``."""

from __future__ import annotations

import random
from dataclasses import dataclass

from dice_training.cuke.spec import Spec
from dice_training.cuke.style import MIDDLE_NAMES, FileStyle
from dice_training.cuke.words import NamePool


@dataclass(frozen=True)
class Sizes:
    """Module-level statements that set sizes, and how each dimension is written in ``get_inputs``."""

    statements: list[str]
    dims: list[str]
    whole: str
    """The shape as one expression (``*shape`` or ``shape``), empty where it has no name."""


def write_sizes(
    spec: Spec, style: FileStyle, rng: random.Random, pool: NamePool, width: str, needed: bool
) -> Sizes:
    """``width``: the name of the last dimension; ``needed``: it must exist at the module's level."""
    dims = [str(s) for s in spec.shape]
    if style.sizes == "tuple" and len(dims) > 1:
        name = pool.take(("input_shape", "shape", "SHAPE", "size_in"))
        statements = [f"{name} = ({', '.join(dims)})"]
        if needed:
            statements.append(f"{width} = {rng.choice((f'{name}[-1]', str(spec.width)))}")
        inside = [f"{name}[{i}]" for i in range(len(dims))]
        return Sizes(statements, inside, rng.choice((name, f"*{name}")))
    statements = []
    if style.sizes == "literals":
        if needed:
            statements.append(f"{width} = {spec.width}")
            dims[-1] = width
        return Sizes(statements, dims, "")
    middles = rng.choice(MIDDLE_NAMES)
    names = [pool.take((style.batch_name, "batch_size", "n_batch")), *middles[: max(0, len(dims) - 2)], width]
    if len(dims) == 1:
        names = [width]
    statements = [f"{name} = {value}" for name, value in zip(names, dims, strict=True)]
    if len(statements) > 1 and rng.random() < 0.12:
        statements.reverse()
    elif rng.random() < 0.05:
        statements = [f"{', '.join(names)} = {', '.join(dims)}"]
    return Sizes(statements, names, "")


def _maker(spec: Spec, sizes: list[str], whole: str, rng: random.Random, extra: str) -> str:
    if whole and len(sizes) > 1:
        inside = whole
    elif len(sizes) > 1 and rng.random() < 0.12:
        inside = f"({', '.join(sizes)})"
        if rng.random() < 0.3:
            inside = "size=" + inside
    else:
        inside = ", ".join(sizes)
    return f"torch.{spec.fill}({inside}{extra})"


def write_getters(
    spec: Spec, style: FileStyle, rng: random.Random, sizes: Sizes, inputs: list[str], values: list[str]
) -> list[str]:
    """The two functions. ``values``: what the constructor gets."""
    extra = rng.choice(
        ("",) * 12 + (', device="cpu"', ", dtype=torch.float32", ', dtype=torch.float32, device="cpu"')
    )
    layouts = {o.name: o.layout for o in spec.operands}
    makers = [
        _maker(spec, sizes.dims, sizes.whole, rng, extra)
        if layouts.get(name, "full") == "full"
        else _maker(spec, sizes.dims[-1:], "", rng, extra)
        for name in inputs
    ]
    hint = " -> list" if style.annotate and rng.random() < 0.3 else ""
    body = [f"    return [{', '.join(makers)}]"]
    names = "\n".join((*sizes.statements, *sizes.dims, sizes.whole))
    if rng.random() < 0.5 and not any(
        name in names.replace("*", "").replace(",", " ").split() for name in inputs
    ):
        body = [f"    {name} = {make}" for name, make in zip(inputs, makers, strict=True)]
        body.append(f"    return [{', '.join(inputs)}]")
    elif len(makers) > 1 and rng.random() < 0.3:
        body = ["    return [", *(f"        {make}," for make in makers), "    ]"]
    note = ""
    if not values and rng.random() < 0.15:
        note = rng.choice(("  # no arguments", "  # No special initialization inputs needed"))
    getters = [
        "\n".join([f"def get_inputs(){hint}:", *body]),
        f"def get_init_inputs(){hint}:\n    return [{', '.join(values)}]{note}",
    ]
    if rng.random() < 0.15:
        getters.reverse()
    return getters

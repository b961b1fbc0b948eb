"""The forms in which a kernel with its existing body stands: a `.cu` file, or the source string of a module's file."""

from __future__ import annotations

import random
from dataclasses import replace

from dice_training.cuke.kernel_file_writer import KernelFileWriter
from dice_training.cuke.kernel_names import renamed
from dice_training.cuke.parts import Parts
from dice_training.cuke.spec import Scalar, Spec, Step


def _literal_bounds(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Clamps with literal bounds: with any floats for bounds (lower > upper) the ways to write one would differ."""
    return tuple(
        replace(s, scalars=tuple(Scalar(c.value) for c in s.scalars)) if s.op == "clamp" else s for s in steps
    )


def kernel_body(spec: Spec, rng: random.Random) -> Parts | None:
    """A `.cu` file with its existing body as the reference, or None where the operator has no such form."""
    if not _has_body(spec):
        return None
    scalar = rng.choice(("float",) * 7 + ("double",))
    return KernelFileWriter(renamed(_bounded(spec)), rng, False, scalar=scalar).write()


def kernel_in_string(spec: Spec, rng: random.Random, function: str, scalar: str) -> Parts | None:
    """The same in the CUDA source of a load_inline file, where the host function takes tensors."""
    if (
        not _has_body(spec)
        or not _flat(spec)
        or any(s.op == "clamp" and s.scalars[0].name for s in spec.steps)
    ):
        return None
    return KernelFileWriter(spec, rng, True, function, scalar).write()


def _has_body(spec: Spec) -> bool:
    return not spec.strided and not (spec.row and (spec.row.definition.special or spec.row.op == "prod"))


def _bounded(spec: Spec) -> Spec:
    return replace(spec, before=_literal_bounds(spec.before), after=_literal_bounds(spec.after))


def _flat(spec: Spec) -> bool:
    """Whether the hasty host function over tensors, which knows rows and columns only, can serve."""
    return len(spec.shape) == 2 and not (spec.row and spec.row.keepdim)


def existing_source(spec: Spec, rng: random.Random, function: str, scalar: str) -> str | None:
    """A hasty CUDA source with this host function, as it may stand in a file; None where there is no such form."""
    if spec.strided or not _flat(spec) or (spec.row and spec.row.definition.special):
        return None
    parts = KernelFileWriter(spec, rng, True, function, scalar).write()
    source = parts.prefix + parts.reference + parts.suffix
    return source if source.endswith("\n") else source + "\n"

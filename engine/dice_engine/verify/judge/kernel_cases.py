"""What a kernel is run on: plans and cases as plain data, sizes and contents beside the given ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch

from dice_engine.source.expressions import ExpressionError, evaluate
from dice_engine.source.plan import Buffer, Fill, Plan
from dice_engine.source.plan_run import MEASURE, total_elements
from dice_engine.source.plans import buffer_ctype, checking_sizes, extent, scalar_values
from dice_engine.verify import inputs
from dice_engine.verify.program import ProgramError
from dice_engine.verify.program_kernel import buffer_layout
from dice_engine.verify.worker import Failed

_SEEDS = 3
_LONG_ROW = 97
_WORD = re.compile(r"[A-Za-z_]\w*")
GIVEN = "given"
OTHER = "other"
"""As given, at sizes that the plan does not name: only where the original is made for them."""
MOVED = "moved"
"""The given numbers, each but the first and last one place further: they begin, end and sum up as before."""


def plan_message(plan: Plan) -> dict[str, Any]:
    """What a runner needs of a plan, as plain data."""
    return {
        "source": plan.source,
        "kernel": plan.kernel,
        "wrapper": plan.wrapper,
        "params": [[p.name, p.ctype, p.pointer, p.const] for p in plan.params],
        "grid": list(plan.grid) if plan.grid else None,
        "block": list(plan.block) if plan.block else None,
        "shared": plan.shared,
        "buffers": [[b.name, b.role, b.extent] for b in plan.buffers],
        "templates": [dict(template) for template in plan.templates],
        "sizes": [dict(sizes) for sizes in plan.sizes],
        "scalars": {name: [fill.kind, fill.low, fill.high] for name, fill in plan.scalars.items()},
    }


def case_message(plan: Plan, template: int, size: int, seed: int, fill: str) -> dict[str, Any]:
    """Contents for every buffer of one case. Raises Failed(no_plan) where the plan does not give them."""
    binding, sizes = plan.templates[template], plan.sizes[size]
    generator = torch.Generator().manual_seed(7919 * seed + 31 * template + size + 1)
    buffers: dict[str, torch.Tensor] = {}
    try:
        for buffer in plan.buffers:
            dtype, lanes = buffer_layout(buffer_ctype(plan, buffer, binding))
            count = extent(buffer, sizes) * lanes
            if count < 0:
                raise Failed("no_plan", f"the extent of {buffer.name} is negative at {sizes}")
            if buffer.fill.kind == "prefix_sum":
                contents = _offsets(count, _reach(plan, buffer, sizes), generator).to(dtype)
            else:
                contents = _contents(buffer.fill, count, dtype, sizes, fill, generator)
            buffers[buffer.name] = inputs.moved(contents) if fill == MOVED else contents
        scalars = scalar_values(plan, sizes, seed)
    except (ExpressionError, KeyError, ProgramError) as error:
        raise Failed("no_plan", str(error)) from error
    return {"template": binding, "sizes": sizes, "scalars": scalars, "buffers": buffers, "seed": seed}


def _contents(
    fill: Fill,
    count: int,
    dtype: torch.dtype,
    sizes: dict[str, int],
    variant: str,
    generator: torch.Generator,
) -> torch.Tensor:
    if fill.kind == "int" or not dtype.is_floating_point:
        low, high = (
            (evaluate(fill.low, sizes), evaluate(fill.high, sizes)) if fill.kind == "int" else (0, 100)
        )
        return torch.randint(low, max(high, low + 1), (count,), generator=generator).to(dtype)
    tensor = torch.empty(count, dtype=dtype)
    if fill.kind == "uniform":
        low, high = float(fill.low), float(fill.high)
        return tensor.copy_(low + (high - low) * torch.rand(count, generator=generator, dtype=torch.float64))
    kind = variant if variant in inputs.FILLS else GIVEN
    return inputs.fill_tensor(tensor, kind, generator)  # type: ignore[arg-type]


def _offsets(count: int, reach: int, generator: torch.Generator) -> torch.Tensor:
    """Where rows begin: most are short, some empty, one in a hundred is long; none begins beyond ``reach``."""
    if count == 0:
        return torch.zeros(0, dtype=torch.int64)
    lengths = torch.randint(0, 3, (count,), generator=generator)
    first = 1 + int(torch.randint(0, max(1, min(count - 1, 8)), (), generator=generator))
    lengths[first::_LONG_ROW] = _LONG_ROW
    lengths[0] = 0
    offsets = torch.cumsum(lengths, 0)
    total = int(offsets[-1])
    return offsets if total <= reach else offsets * reach // total


def _reach(plan: Plan, offsets: Buffer, sizes: dict[str, int]) -> int:
    """How far offsets may go: to the largest size that only the other buffers have, else to the end of the longest."""
    others = [buffer for buffer in plan.buffers if buffer.fill.kind != "prefix_sum"]
    known = set(_WORD.findall(offsets.extent))
    words = {word for buffer in others for word in _WORD.findall(buffer.extent)}
    lengths = [sizes[word] for word in words - known if word in sizes]
    return max(lengths or [extent(buffer, sizes) for buffer in others], default=extent(offsets, sizes))


def case_names(plan: Plan, given_sizes: int) -> Iterator[str]:
    """``template/sizes/seed/fill``: every binding at every size first, then more seeds and fills at the first size."""
    for size in range(len(checking_sizes(plan))):
        for template in range(len(plan.templates)):
            yield f"{template}/{size}/0/{GIVEN if size < given_sizes else OTHER}"
    for template in range(len(plan.templates)):
        yield f"{template}/0/0/{MOVED}"
        for seed in range(1, _SEEDS):
            yield f"{template}/0/{seed}/{GIVEN}"
        for fill in inputs.FILLS:
            yield f"{template}/0/0/{fill}"


def other_sizes(plan: Plan) -> tuple[dict[str, int], ...]:
    """Sizes beside those that an annotation gives: odd ones, and a few elements of each."""
    if plan.source != "annotation" or MEASURE in plan.origin or not plan.sizes:
        return ()
    base = min(plan.sizes, key=lambda sizes: total_elements(plan, sizes))
    odd = {name: value - 1 - value % 2 if value > 4 else value for name, value in base.items()}
    few = {name: min(value, 7) for name, value in base.items()}
    return tuple(sizes for sizes in (odd, few) if sizes not in plan.sizes)


def other_contents(plan: Plan, message: dict[str, Any]) -> dict[str, Any]:
    """``message`` with other numbers where an original that is made for its sizes never looks: in what it only writes,
    and around every buffer."""
    generator = torch.Generator().manual_seed(1 + message["seed"])
    only_written = {buffer.name for buffer in plan.buffers if buffer.role == "out"}
    buffers = {
        name: contents[torch.randperm(contents.numel(), generator=generator)]
        if name in only_written
        else contents
        for name, contents in message["buffers"].items()
    }
    return {**message, "buffers": buffers, "seed": message["seed"] + 1}

"""Plans of kernels that carry a ``@dice`` annotation: it stands alone, or refines what the file tells."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

from dice_engine.source.annotation import Annotation, AnnotationErrors
from dice_engine.source.annotation_parse import parse_annotation
from dice_engine.source.annotation_text import DiceLine, dice_lines
from dice_engine.source.cuda import KernelSpan, find_kernels
from dice_engine.source.host import HostError, HostProgram, Unsupported
from dice_engine.source.plan import Plan
from dice_engine.source.plan_run import MEASURE, rehearse
from dice_engine.source.plan_scalars import scalar_fill


def annotated_plan(
    text: str, program: HostProgram, kernel: str, base: Callable[[Annotation], Plan]
) -> Plan | None:
    """The plan that the annotation above ``kernel`` gives; None when there is no annotation.

    ``base`` makes the plan that the file gives with the annotation's help, for annotations without their own launch.
    """
    if not _mentions(text):
        return None
    spans = sorted((s for s in find_kernels(text) if s.name == kernel), key=lambda s: not s.editable)
    lines = lines_above(text, spans[0]) if spans else []
    if not lines:
        return None
    declared = program.kernels[kernel]
    told = Plan.none("")
    try:
        annotation = parse_annotation(lines)
        told = told if annotation.grid else base(annotation)
        plan = annotation.to_plan(
            declared.params,
            kernel,
            [p.name for p in declared.template_params if p.default is None],
            None if annotation.grid else told,
        )
    except AnnotationErrors as error:
        # What would have been called stays known: the fault is shown where it stands.
        return replace(
            Plan.none(f"annotation: {error}"), kernel=kernel, wrapper=told.wrapper, params=told.params
        )
    if not plan.runnable or plan.fixture is not None or plan.arguments:
        return plan
    if plan.host_source is not None:
        program = HostProgram(text + plan.host_source)
    return _completed(program, plan, annotation)


@functools.lru_cache(maxsize=4)
def _mentions(text: str) -> bool:
    """Asked once a kernel: looking through a long text each time would cost more than the plans."""
    return "@dice" in text


def _completed(program: HostProgram, plan: Plan, annotation: Annotation) -> Plan:
    """Fills for what is neither buffer nor size, and a rehearsal: a plan that cannot be carried out is none."""
    sizes = plan.sizes[0] if plan.sizes else {}
    scalars = {}
    for param in plan.params:
        if param.pointer or param.name in sizes:
            continue
        fill = annotation.fills.get(param.name) or scalar_fill(param, plan.templates[0])
        if not isinstance(fill, str) and fill is not None:
            scalars[param.name] = fill
    origin = dict(plan.origin)
    if annotation.sizes:
        origin.pop(MEASURE, None)
    plan = replace(plan, scalars=scalars, origin=origin)
    for template in plan.templates:
        for size in plan.sizes:
            try:
                calls = rehearse(program, plan, size, template)
            except (Unsupported, HostError, ValueError) as error:
                return Plan.none(f"the annotation cannot be carried out: {error}")
            if all(call.kernel != plan.kernel for call in calls):
                return Plan.none(f"{plan.wrapper} does not launch {plan.kernel} at the annotated sizes")
    return plan


def lines_above(text: str, kernel: KernelSpan) -> list[DiceLine]:
    """The ``@dice`` lines among the comments directly above a kernel (or before it on its own line)."""
    above = text.encode("utf-8", "surrogatepass")[: kernel.start].decode("utf-8", "surrogatepass")
    lines = above.split("\n")
    found: list[DiceLine] = []
    inside_block = False
    for number in range(len(lines) - 1, -1, -1):
        line = lines[number].strip().lstrip("\ufeff")
        if number == len(lines) - 1 and not line:
            continue
        if (line.endswith("*/") and not line.startswith("//")) or inside_block:
            inside_block = "/*" not in line
        elif not line.startswith("//"):
            break
        found = dice_lines(lines[number].rstrip("\r"), number, 0) + found
    return found

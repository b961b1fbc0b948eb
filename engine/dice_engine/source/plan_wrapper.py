"""Plans that call a function of raw pointers: its integers are sizes, its pointers are buffers as long as these say."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection
from dataclasses import replace

from dice_engine.source import host_types as types
from dice_engine.source.expressions import ExpressionError
from dice_engine.source.host import HostError, HostFunction, HostProgram, Unsupported
from dice_engine.source.plan import Buffer, Fill, Param, Plan
from dice_engine.source.plan_run import (
    MEASURE,
    buffer_ctype,
    extent,
    measuring_sizes,
    recorded,
    rehearse,
)
from dice_engine.source.plan_scalars import scalar_fill
from dice_engine.source.plan_sizes import SizeSets, choose

HINT = "add a // @dice line above it"
_INDEX_KINDS = {"int32", "uint32", "int64", "uint64"}


def wrapper_plan(
    program: HostProgram,
    kernel: str,
    wrapper: HostFunction,
    known: Collection[str],
    templates: tuple[dict[str, str], ...],
) -> Plan:
    """A plan that calls ``wrapper``, or the reason why it cannot be called."""
    line = _launch_line(wrapper, kernel)
    where = f"{wrapper.name}, line {line}"
    templates = templates or templates_of(wrapper)
    if not templates:
        names = ", ".join(
            f"{p.name}=float" if p.kind == "type" else f"{p.name}=4" for p in wrapper.template_params
        )
        return Plan.none(
            f"{wrapper.name} is a template that this file instantiates nowhere; add // @dice tmpl({names})"
        )
    symbols: list[str] = []
    scalars: dict[str, Fill] = {}
    for param in wrapper.params:
        if param.pointer:
            continue
        fill = scalar_fill(param, templates[0])
        if fill == "size":
            symbols.append(param.name)
        elif isinstance(fill, Fill):
            scalars[param.name] = fill
        elif fill is None:
            return Plan.none(f"parameter '{param.name}' of {wrapper.name} has type {param.ctype}; {HINT}")
    if not symbols:
        return Plan.none(f"no integer parameter of {wrapper.name} tells how long its buffers are; {HINT}")
    whole = "*".join(symbols)
    buffers: list[Buffer] = []
    for param in (p for p in wrapper.params if p.pointer):
        made = _buffer(wrapper, param, templates, whole, symbols[0], param.name in known)
        if isinstance(made, str):
            return Plan.none(made)
        buffers.append(made)
    plan = Plan(
        source="launch",
        kernel=kernel,
        wrapper=wrapper.name,
        params=wrapper.params,
        buffers=tuple(buffers),
        templates=templates,
        scalars=scalars,
    )
    try:
        chosen = choose(symbols, kernel, functools.partial(_calls, program, plan, templates[0]))
    except (Unsupported, HostError, ExpressionError) as error:
        return Plan.none(f"launch in {where} cannot be followed: {error}")
    sized = _with_room(program, _with_sizes(plan, chosen, symbols, where, line))
    return _with_launch(program, sized) if sized.runnable else sized


def _with_launch(program: HostProgram, plan: Plan) -> Plan:
    """The launch that the wrapper makes at the sizes that are timed, in words for the reader of the plan."""
    sizes = measuring_sizes(plan)
    calls = rehearse(program, plan, sizes, plan.templates[0])
    call = next((call for call in calls if call.kernel == plan.kernel), None)
    if call is None:
        return plan
    grid, block = (
        "x".join(str(part) for part in dim).removesuffix("x1").removesuffix("x1")
        for dim in (call.grid, call.block)
    )
    given = ", ".join(f"{name}={value}" for name, value in sizes.items())
    words = f"grid {grid}, block {block}, {call.shared} shared bytes at {given}"
    return replace(plan, origin={**plan.origin, "launch": words})


def _calls(program: HostProgram, plan: Plan, template: dict[str, str], sizes: dict[str, int]):
    return rehearse(program, plan, sizes, template)


def _with_sizes(plan: Plan, chosen: SizeSets, symbols: list[str], where: str, line: int) -> Plan:
    extents = "*".join(symbols)
    origin = {
        "grid": f"launch in {where}",
        "extents": f"{symbols[0]}, the only integer parameter",
        "roles": "const pointers are inputs; the others start from the same contents on both sides",
        "sizes": f"not a multiple of the block of {chosen.threads} threads, smaller than one block",
    }
    buffers = plan.buffers
    if len(symbols) > 1:
        origin["extents"] = f"{extents}, the product of the integer parameters (an upper bound)"
    elif chosen.power > 1:
        extents = "*".join([symbols[0]] * chosen.power)
        origin["extents"] = f"{extents}: the grid grows with it"
        buffers = tuple(Buffer(b.name, b.role, extents, b.fill) for b in buffers)
    if chosen.fixed_threads is not None:
        origin["sizes"] += f", more than the fixed grid of {chosen.fixed_threads} threads"
    if chosen.measured:
        origin[MEASURE] = "the last size set is for timing only"
    if plan.templates != ({},):
        origin["templates"] = "explicit instantiations in the file"
    return replace(plan, buffers=buffers, sizes=chosen.sizes, origin=origin)


def _with_room(program: HostProgram, plan: Plan) -> Plan:
    """The plan with buffers that hold at least what the wrapper itself sets or copies: 256 bins, whatever n is."""
    template = plan.templates[0]
    reached = [recorded(program, plan, sizes, template).reached for sizes in plan.sizes]
    buffers, words = [], plan.origin["extents"]
    for buffer in plan.buffers:
        element = types.size_of(buffer_ctype(plan, buffer, template)) or 1
        needs = [-(-bytes_of.get(buffer.name, 0) // element) for bytes_of in reached]
        given = [max(1, extent(buffer, sizes)) for sizes in plan.sizes]
        if any(need > have for need, have in zip(needs, given, strict=True)):
            times = max(-(-need // have) for need, have in zip(needs, given, strict=True))
            enough = (
                f"max({buffer.extent}, {needs[0]})" if len(set(needs)) == 1 else f"{times}*{buffer.extent}"
            )
            words += f"; {buffer.name}: {enough}, because {plan.wrapper} sets or copies so much of it"
            buffer = replace(buffer, extent=enough)
        buffers.append(buffer)
    return replace(plan, buffers=tuple(buffers), origin={**plan.origin, "extents": words})


def templates_of(wrapper: HostFunction) -> tuple[dict[str, str], ...]:
    names = [p.name for p in wrapper.template_params]
    if not names:
        return ({},)
    given = [
        dict(zip(names, values, strict=True))
        for values in wrapper.instantiations
        if len(values) == len(names)
    ]
    if not given and all(p.default is not None for p in wrapper.template_params):
        given = [{p.name: p.default or "" for p in wrapper.template_params}]
    return tuple(given)


def _buffer(
    wrapper: HostFunction,
    param: Param,
    templates: tuple[dict[str, str], ...],
    whole: str,
    symbol: str,
    known: bool,
) -> Buffer | str:
    """The buffer behind a pointer parameter, or why there is none."""
    kinds = set()
    for template in templates:
        ctype = template.get(param.ctype, param.ctype)
        if types.size_of(ctype) is None or ctype.endswith("*"):
            return f"pointer '{param.name}' of {wrapper.name} has element type {ctype}; {HINT}"
        kinds.add(types.KINDS.get(ctype, ctype))
    role = "in" if param.const else "inout"
    if kinds & _INDEX_KINDS:
        if param.const and not known:
            rule = f"// @dice fill({param.name}=int[0,{symbol}))"
            return (
                f"index-like pointer '{param.name}' needs a fill rule that says which numbers are right: "
                f"add {rule}, or =prefix_sum for where rows begin"
            )
        return Buffer(param.name, role, whole, Fill("int", "0", "100"))
    if kinds & {"bool"}:
        return Buffer(param.name, role, whole, Fill("int", "0", "2"))
    if kinds <= {"int8", "int16"}:
        return Buffer(param.name, role, whole, Fill("int", "-100", "100"))
    if kinds <= {"uint8", "uint16"}:
        return Buffer(param.name, role, whole, Fill("int", "0", "256"))
    return Buffer(param.name, role, whole)


def _launch_line(wrapper: HostFunction, kernel: str) -> int:
    """Line of the launch in the wrapper's text; the wrapper's own line when it only calls something that launches."""
    launch = re.search(rf"\b{re.escape(kernel)}\s*(?:<[^;<>]*>)?\s*<<<", wrapper.body) or re.search(
        "<<<", wrapper.body
    )
    return wrapper.body.count("\n", 0, launch.start()) + 1 if launch else wrapper.line

"""How a kernel can be run: from its annotation, through what launches it in the file, by its own form, or not at all.

Declining is an answer: ``Plan.none`` with a short reason that says what to write.
"""

from __future__ import annotations

import functools
import re
import threading
from collections import OrderedDict
from collections.abc import Collection, Hashable, Mapping
from dataclasses import replace

from dice_engine.source.annotation import Annotation
from dice_engine.source.cuda import find_kernels
from dice_engine.source.expressions import ExpressionError, evaluate
from dice_engine.source.host import HostFunction, HostProgram
from dice_engine.source.host_types import size_of
from dice_engine.source.lines import to_bytes, to_text
from dice_engine.source.main_slice import MainProgram
from dice_engine.source.plan import Param, Plan
from dice_engine.source.plan_annotation import annotated_plan
from dice_engine.source.plan_convention import ORIGIN as CONVENTION
from dice_engine.source.plan_convention import convention_words
from dice_engine.source.plan_host import host_plan, takes_tensors
from dice_engine.source.plan_run import (
    MEASURE,
    buffer_ctype,
    checking_sizes,
    extent,
    instantiations,
    measuring_sizes,
    rehearse,
    run_plan,
    scalar_values,
    total_elements,
)
from dice_engine.source.plan_stub import stub
from dice_engine.source.plan_wrapper import HINT, templates_of, wrapper_plan

__all__ = [
    "buffer_ctype",
    "checking_sizes",
    "extent",
    "host_program",
    "instantiations",
    "kernel_plan",
    "measuring_sizes",
    "rehearse",
    "run_plan",
    "scalar_values",
    "stub",
    "total_elements",
]

_NO_LAUNCH = "no launch of"


class _Plans:
    """Plans by everything they depend on: a change in a file costs only the plans that it may change."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._plans: OrderedDict[Hashable, Plan] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Plan | None:
        return self._plans.get(key)

    def keep(self, key: Hashable, plan: Plan) -> None:
        """Keep a plan as the newest; the oldest is forgotten."""
        with self._lock:
            self._plans[key] = plan
            self._plans.move_to_end(key)
            if len(self._plans) > self._most:
                self._plans.popitem(last=False)


_PLANS = _Plans(2048)


@functools.lru_cache(maxsize=3)
def host_program(text: str) -> HostProgram:
    """``HostProgram(text)``, kept for the next kernel of the same text."""
    return HostProgram(text)


@functools.lru_cache(maxsize=2)
def _main_program(text: str) -> MainProgram:
    return MainProgram(text, host_program(text))


@functools.lru_cache(maxsize=4)
def _without_bodies(text: str) -> str:
    """``text`` with kernel bodies emptied, line for line: what plans depend on, the same while a body is edited.

    A body with preprocessor lines stays: a macro that it defines may be used by host code below it.
    """
    data, out, position = to_bytes(text), [], 0
    for kernel in find_kernels(text):
        body = data[kernel.body_start : kernel.body_end]
        if kernel.editable and kernel.body_start >= position and b"#" not in body:
            out += [data[position : kernel.body_start], b"\n" * body.count(b"\n")]
            position = kernel.body_end
    return to_text(b"".join([*out, data[position:]]))


def kernel_plan(text: str, kernel_name: str) -> Plan:
    """The plan for one kernel of a CUDA source; a ``no_plan`` with a reason when nothing tells how to run it."""
    plan = _written_plan(_without_bodies(text), kernel_name)
    if plan.runnable or plan.reason is None or not plan.reason.startswith(_NO_LAUNCH):
        return plan
    words = convention_words(text, kernel_name)
    return plan if words is None else _by_convention(text, kernel_name, words)


def _by_convention(text: str, kernel_name: str, words: str) -> Plan:
    """The plan of a kernel whose own form says how it is run."""
    span = next(span for span in find_kernels(text) if span.name == kernel_name)
    return _alone(to_text(to_bytes(text)[span.start : span.end]), kernel_name, words)


@functools.lru_cache(maxsize=512)
def _alone(kernel: str, kernel_name: str, words: str) -> Plan:
    plan = _written_plan(_without_bodies(f"/* @dice {words} */ {kernel}\n"), kernel_name)
    if not plan.runnable:
        return plan
    origin = {**dict.fromkeys(plan.origin, CONVENTION), MEASURE: "the last size set is for timing only"}
    return replace(plan, source="convention", origin=origin)


def _written_plan(text: str, kernel_name: str) -> Plan:
    """The plan that is written down: in an annotation, or as a launch in the file."""
    program = host_program(text)
    if kernel_name not in program.kernels:
        return Plan.none(f"no kernel {kernel_name!r} in this file")

    def with_annotation(annotation: Annotation) -> Plan:
        known = {*annotation.fills, *(b.name for b in annotation.buffers)}
        return _file_plan(text, kernel_name, known, annotation)

    plan = annotated_plan(text, program, kernel_name, with_annotation)
    return plan if plan is not None else _file_plan(text, kernel_name)


def _file_plan(
    text: str,
    kernel: str,
    known: Collection[str] = (),
    annotation: Annotation | None = None,
) -> Plan:
    """What the file itself tells. ``known``: buffers that the annotation fills."""
    program = host_program(text)
    callers = program.launchers(kernel)
    host = annotation.host if annotation is not None else None
    if host is not None:
        callers = [f for f in callers if f.name == host]
    if not callers:
        launched = f"{_NO_LAUNCH} {kernel} in {host or 'this file'}"
        if host is None and re.search(rf"\b{re.escape(kernel)}\s*(?:<[^;{{}}]*>\s*)?<<<", text):
            launched += (
                " from a function of its own (members of classes, macros and lambdas are not followed)"
            )
        return Plan.none(f"{launched}; add a // @dice line")
    raw = [f for f in callers if f.name != "main" and _is_raw(f)]
    raw.sort(key=lambda f: (bool(f.template_params) and not f.instantiations, len(f.launches), f.line))
    tensors = [f for f in callers if takes_tensors(f)]
    if annotation is not None and annotation.buffers:
        tensors = []  # its words are about pointers
    if annotation is not None and annotation.fixture is not None and (raw or tensors):
        return _called_with_fixture((raw or tensors)[0], kernel)
    if not raw and not tensors and host is None and any(f.name == "main" for f in callers):
        return _main_plan(text, kernel, known, annotation)
    first = None
    for function in [*tensors, *raw]:
        plan = _plan_through(program, kernel, function, known, annotation)
        if plan.runnable:
            return plan
        first = first or plan
    return first or Plan.none(_not_raw(kernel, callers))


def _main_plan(text: str, kernel: str, known: Collection[str], annotation: Annotation | None) -> Plan:
    """The plan that calls what leads to the launch in ``main``."""
    main = _main_program(text)
    if kernel not in main.slices:
        return Plan.none(f"{kernel} is launched only from main(), and {main.reasons[kernel]}; {HINT}")
    made = main.slices[kernel]
    (function,) = main.program.overloads(made.name)
    plan = _plan_through(main.program, kernel, function, known, annotation)

    def told(words: str) -> str:
        return re.sub(rf"{made.name}, line \d+", f"main(), line {made.line}", words).replace(
            made.name, "main()"
        )

    origin = {part: told(words) for part, words in plan.origin.items()}
    if plan.runnable:
        exact = _allocated(plan, made.allocated)
        if exact != plan:
            plan, origin["extents"] = exact, "what main() allocates"
        origin["host"] = f"what leads to the launch on line {made.line} of main()"
        there = ", ".join(f"{name}={value}" for name, value in made.sizes.items())
        origin["sizes"] += f"; main() itself has {there}" if there else ""
    return replace(
        plan,
        origin=origin,
        reason=told(plan.reason) if plan.reason else None,
        host_source=f"\n{made.source}" if plan.runnable else None,
    )


def _allocated(plan: Plan, allocated: Mapping[str, str]) -> Plan:
    """``plan`` with buffers as long as ``main`` makes them, where that has a value at all sizes."""
    buffers = []
    for buffer in plan.buffers:
        width = size_of(buffer_ctype(plan, buffer, plan.templates[0]))
        exact = f"({allocated[buffer.name]})/{width}" if buffer.name in allocated and width else ""
        try:
            fits = bool(exact) and all(evaluate(exact, sizes) > 0 for sizes in plan.sizes)
        except ExpressionError:
            fits = False
        buffers.append(replace(buffer, extent=exact) if fits else buffer)
    return replace(plan, buffers=tuple(buffers))


def _plan_through(
    program: HostProgram,
    kernel: str,
    function: HostFunction,
    known: Collection[str],
    annotation: Annotation | None,
) -> Plan:
    """The plan that calls one function; kept for as long as nothing that it depends on changes."""
    if takes_tensors(function):
        told = (annotation.inputs, annotation.fills) if annotation is not None else ()
        key = (kernel, repr(told), program.reads(function))
        plan = _PLANS.get(key) or host_plan(program, kernel, function, annotation)
    else:
        templates = annotation.templates if annotation is not None else ()
        key = (kernel, frozenset(known), repr(templates), program.reads(function))
        plan = _PLANS.get(key) or wrapper_plan(program, kernel, function, known, templates)
    _PLANS.keep(key, plan)
    return plan


def _called_with_fixture(function: HostFunction, kernel: str) -> Plan:
    """What a fixture's arguments are given to."""
    made = tuple(f"fixture[{param.name!r}]" for param in function.params) if takes_tensors(function) else ()
    return Plan(
        "annotation",
        kernel=kernel,
        wrapper=function.name,
        params=function.params,
        templates=templates_of(function) or ({},),
        arguments=made,
        sizes=({},),
    )


def _is_raw(function: HostFunction) -> bool:
    return any(p.pointer for p in function.params) and not any(_is_tensor(p) for p in function.params)


def _is_tensor(param: Param) -> bool:
    return "Tensor" in param.ctype or "vector<" in param.ctype


def _not_raw(kernel: str, callers: list[HostFunction]) -> str:
    for function in callers:
        if any(_is_tensor(p) for p in function.params):
            return f"{kernel} is launched from {function.name}, which takes lists of torch tensors; {HINT}"
    return f"{callers[0].name} launches {kernel} but takes no device pointers; {HINT}"

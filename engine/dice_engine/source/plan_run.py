"""Carrying a kernel plan out: values for its scalars, the launches of one run, types of its buffers."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dice_engine.source import host_types as types
from dice_engine.source.expressions import ExpressionError, evaluate
from dice_engine.source.host import HostError, HostProgram, LaunchCall, Pointer, Runtime, Unsupported
from dice_engine.source.plan import Buffer, Param, Plan

MEASURE = "measure"
"""Key of ``Plan.origin`` that marks the last size set as one for timing only."""


def checking_sizes(plan: Plan) -> tuple[dict[str, int], ...]:
    """The size sets on which results are compared."""
    return plan.sizes[:-1] if MEASURE in plan.origin and len(plan.sizes) > 1 else plan.sizes


def measuring_sizes(plan: Plan) -> dict[str, int]:
    """The size set to time: the one marked for it, else the one with the most elements."""
    if MEASURE in plan.origin or not plan.sizes:
        return plan.sizes[-1] if plan.sizes else {}
    return max(plan.sizes, key=lambda sizes: total_elements(plan, sizes))


def total_elements(plan: Plan, sizes: Mapping[str, int]) -> int:
    return sum(extent(buffer, sizes) for buffer in plan.buffers)


def extent(buffer: Buffer, sizes: Mapping[str, int]) -> int:
    """Elements of ``buffer`` at ``sizes``. Raises ExpressionError."""
    return evaluate(buffer.extent, sizes)


def buffer_ctype(plan: Plan, buffer: Buffer, template: Mapping[str, str]) -> str:
    """The element type of a buffer under one set of template bindings: ``Elem`` -> ``float``."""
    param = next((p for p in plan.params if p.name == buffer.name), None)
    if param is None:
        raise KeyError(f"plan of {plan.kernel} has no parameter {buffer.name!r}")
    ctype = param.ctype
    for _ in range(8):
        if template.get(ctype, ctype) == ctype:
            break
        ctype = template[ctype]
    return str(types.parse_type(ctype))


def scalar_values(plan: Plan, sizes: Mapping[str, int], seed: int = 0) -> dict[str, int | float]:
    """One value for each scalar parameter of the plan, the same for the same seed.

    A flag takes both its values as ``seed`` goes up, so that two trials see both branches.
    """
    values: dict[str, int | float] = {}
    for name, fill in plan.scalars.items():
        if fill.kind == "int":
            low, high = evaluate(fill.low, sizes), evaluate(fill.high, sizes)
            flag = (low, high) == (0, 2)
            values[name] = (seed + 1) % 2 if flag else _drawn("int", low, max(high, low + 1), name, seed)
        elif fill.kind == "uniform":
            values[name] = _drawn("uniform", float(fill.low), float(fill.high), name, seed)
        else:
            values[name] = _drawn("normal", 0.0, 1.0, name, seed)
    return values


@functools.lru_cache(maxsize=4096)
def _drawn(kind: str, low: int | float, high: int | float, name: str, seed: int) -> int | float:
    """The same number for the same arguments; kept, because seeding a generator costs more than a rehearsal."""
    draw = random.Random(f"{name}/{seed}")
    if kind == "int":
        return draw.randrange(int(low), int(high))
    return draw.uniform(low, high) if kind == "uniform" else draw.gauss(low, high)


def run_plan(
    program: HostProgram,
    plan: Plan,
    sizes: Mapping[str, int],
    template: Mapping[str, str],
    pointers: Mapping[str, Pointer],
    scalars: Mapping[str, int | float],
    runtime: Runtime,
) -> None:
    """Issue the launches of one run of ``plan`` through ``runtime.launch``.

    ``pointers`` holds one device pointer a buffer. Raises ``Unsupported`` and ``HostError`` as ``HostProgram.call``
    does, and ``ExpressionError`` for a launch expression without a value.
    """
    if plan.wrapper is not None:
        arguments = [_value(plan, p.name, p.pointer, p.ctype, sizes, pointers, scalars) for p in plan.params]
        program.call(plan.wrapper, arguments, runtime, dict(template))
        return
    if plan.kernel is None or plan.grid is None or plan.block is None:
        raise Unsupported(f"plan without a launch: {plan.reason or 'no grid and block'}")
    declared = program.kernels.get(plan.kernel)
    if declared is None:
        raise Unsupported(f"no kernel {plan.kernel!r} in this file")
    symbols = {**sizes, **{k: int(v) for k, v in template.items() if v.lstrip("-").isdigit()}}
    symbols |= {k: v for k, v in scalars.items() if isinstance(v, int)}
    template_args = []
    for parameter in declared.template_params:
        value = template.get(parameter.name, parameter.default)
        if value is None:
            raise Unsupported(
                f"template parameter {parameter.name!r} of {plan.kernel} has no value: add tmpl({parameter.name}=...)"
            )
        template_args.append(value)
    if not _called_alike(plan.params, declared.params):
        raise HostError(f"{plan.kernel}({_list(declared.params)}): its callers pass {_list(plan.params)}")
    arguments = []
    for param, own in zip(plan.params, declared.params, strict=True):
        value = _value(plan, param.name, param.pointer, param.ctype, sizes, pointers, scalars)
        ctype = template.get(own.ctype, own.ctype)
        kind = types.KINDS.get(ctype)
        if not param.pointer and kind is not None and value is not None:
            value = types.convert(
                types.Num(value, "float64" if isinstance(value, float) else "int64"), kind
            ).value
        arguments.append(value)
    grid, block = (tuple(evaluate(part, symbols) for part in parts) for parts in (plan.grid, plan.block))
    if min(grid) < 1 or min(block) < 1:
        raise HostError(f"launch of {plan.kernel} with grid {grid} and block {block}: a dimension is below 1")
    shared = evaluate(plan.shared, symbols)
    runtime.launch(
        LaunchCall(plan.kernel, tuple(template_args), _triple(grid), _triple(block), shared, tuple(arguments))
    )


def _called_alike(ours: Sequence[Param], theirs: Sequence[Param]) -> bool:
    """Whether the same call fits both; names may differ, and types that are not known by name."""
    return len(ours) == len(theirs) and all(
        our.pointer == their.pointer
        and (our.ctype == their.ctype or not {our.ctype, their.ctype} <= types.KINDS.keys())
        for our, their in zip(ours, theirs, strict=True)
    )


def _list(params: Sequence[Param]) -> str:
    return ", ".join(f"{param.ctype}{'*' * param.pointer} {param.name}" for param in params)


def _triple(parts: Iterable[int]) -> tuple[int, int, int]:
    x, y, z = parts
    return x, y, z


def _value(
    plan: Plan,
    name: str,
    pointer: bool,
    ctype: str,
    sizes: Mapping[str, int],
    pointers: Mapping[str, Pointer],
    scalars: Mapping[str, int | float],
) -> Any:
    if pointer:
        return pointers.get(name)
    if name in sizes:
        return sizes[name]
    if name in scalars:
        return scalars[name]
    if ctype.endswith(("cudaStream_t", "CUstream", "CUDAStream")):
        return None
    raise Unsupported(
        f"plan of {plan.kernel} gives no value for parameter {name!r}: add it to sizes(...) or fill(...)"
    )


class Recorder:
    """A ``Runtime`` without a world: it notes launches, and memory that the host code asks for is a name."""

    def __init__(self) -> None:
        self.calls: list[LaunchCall] = []
        self.reached: dict[str, int] = {}
        """Bytes of each named buffer that the host code sets or copies."""

    def is_tensor(self, value: Any) -> bool:
        return False

    def tensor_method(self, tensor: Any, name: str, args: list[Any], template: str | None) -> Any:
        raise Unsupported(f"tensor method {name}")

    def torch_function(self, name: str, args: list[Any], kwargs_options: dict[str, Any]) -> Any:
        if name == "empty":
            return "temporary"
        if name in ("cuda.memset", "cuda.memcpy"):
            for pointer in args[:2]:
                if isinstance(pointer, Pointer) and isinstance(pointer.base, str):
                    end = pointer.offset * (types.size_of(pointer.ctype) or 1) + int(args[2])
                    self.reached[pointer.base] = max(end, self.reached.get(pointer.base, 0))
            return None
        if name == "cuda.device_property" and args and args[0] in PROPERTIES:
            return PROPERTIES[args[0]]
        raise Unsupported(f"torch function {name}")

    def launch(self, call: LaunchCall) -> None:
        self.calls.append(call)


PROPERTIES = {"multiProcessorCount": 132, "maxThreadsPerBlock": 1024, "warpSize": 32, "major": 9, "minor": 0}
PROPERTIES |= {
    "sharedMemPerBlock": 49152,
    "maxThreadsPerMultiProcessor": 2048,
    "sharedMemPerBlockOptin": 232448,
}


def rehearse(
    program: HostProgram, plan: Plan, sizes: Mapping[str, int], template: Mapping[str, str], seed: int = 0
) -> list[LaunchCall]:
    """The launches that one run would make, without running anything. Raises as ``run_plan`` does."""
    return recorded(program, plan, sizes, template, seed).calls


def recorded(
    program: HostProgram, plan: Plan, sizes: Mapping[str, int], template: Mapping[str, str], seed: int = 0
) -> Recorder:
    """What one run would ask of its runtime. Raises as ``run_plan`` does."""
    pointers = {b.name: Pointer(b.name, 0, buffer_ctype(plan, b, template)) for b in plan.buffers}
    recorder = Recorder()
    run_plan(program, plan, sizes, template, pointers, scalar_values(plan, sizes, seed), recorder)
    return recorder


def instantiations(program: HostProgram, plan: Plan) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Every ``(kernel, template arguments)`` that the plan's runs launch: what to compile ahead."""
    found: dict[tuple[str, tuple[str, ...]], None] = {}
    for template in plan.templates:
        for sizes in plan.sizes:
            try:
                calls = rehearse(program, plan, sizes, template)
            except (Unsupported, HostError, ExpressionError):
                continue
            found.update({(call.kernel, call.template_args): None for call in calls})
    return tuple(found)

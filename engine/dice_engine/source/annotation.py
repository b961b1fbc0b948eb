"""``@dice`` annotations: what the code around a kernel or a module does not say.

::

    // @dice grid=(n+255)/256 block=256 smem=0
    // @dice in(x[n]) out(y[n]) inout() tmp()
    // @dice sizes(n=1000000; n=33) fill(idx=int[0,n); offs=prefix_sum)
    // @dice tmpl(T=float|half, N=4) tol(rel=1e-3, abs=1e-6)
    // @dice host=run_it   or   fixture=tests/x.py:make_inputs

Python: ``# @dice inputs(x=randn(64,1024)) init(1024)`` above an nn.Module class.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dice_engine.source.annotation_inputs import symbols_of
from dice_engine.source.annotation_text import (
    AnnotationError,
    AnnotationErrors,
    AnnotationText,
    Span,
    suggestion,
)
from dice_engine.source.expressions import ExpressionError, evaluate
from dice_engine.source.host_types import size_of
from dice_engine.source.plan import Buffer, Fill, Param, Plan, Tolerance

__all__ = ["Annotation", "AnnotationError", "AnnotationErrors"]

_MAX_THREADS = 1024


@dataclass
class Annotation:
    """What one block of ``@dice`` lines says; parts that it leaves out are None or empty."""

    text: AnnotationText = field(repr=False)
    grid: tuple[str, ...] | None = None
    block: tuple[str, ...] | None = None
    smem: str | None = None
    buffers: tuple[Buffer, ...] = ()
    sizes: tuple[dict[str, int], ...] = ()
    fills: dict[str, Fill] = field(default_factory=dict)
    templates: tuple[dict[str, str], ...] = ()
    tolerance: Tolerance | None = None
    host: str | None = None
    fixture: str | None = None
    inputs: tuple[tuple[str | None, str], ...] | None = None
    """(parameter name of forward or None, Python expression) in order."""
    init: tuple[tuple[str | None, str], ...] | None = None
    places: dict[str, Span] = field(default_factory=dict, repr=False)
    """Where each part stands: ``grid``, ``buffer img``, ``fill idx``, ``sizes``..."""

    def place(self, part: str) -> Span:
        return self.places.get(part) or next(iter(self.places.values()), Span("", 0, 0))

    def to_plan(
        self,
        params: Sequence[Param],
        kernel: str,
        template_params: Sequence[str] = (),
        base: Plan | None = None,
    ) -> Plan:
        """The plan for a kernel with these parameters.

        With ``grid`` the annotation stands alone; without, it refines ``base``, the plan made from the file.

        Raises:
            AnnotationErrors: if a name is unknown, a part is missing, or an expression has no usable value.
        """
        self.text.errors.clear()
        if self.fixture is not None:
            return self._with_fixture(params, kernel, base)
        if self.inputs is not None and base is not None and base.wrapper is not None:
            self.arguments([param.name for param in base.params])
        plan = self._own_launch(params, kernel, base) if self.grid else self._refined(base)
        if not plan.runnable:
            return plan
        self._check_names(plan)
        plan = self._with_templates(plan, template_params)
        if self.grid:
            self._check_values(plan)
        if self.text.errors:
            raise AnnotationErrors(self.text.errors)
        return plan

    def module_plan(self, forward: Sequence[str], what: str = "forward") -> Plan:
        """The plan for an nn.Module whose ``forward`` (or a function, ``what``, that) takes these parameters: text
        that defines its input makers.

        Raises:
            AnnotationErrors: if an input names no parameter or a parameter is named twice.
        """
        if self.fixture is not None:
            return Plan(
                "annotation",
                fixture=self.fixture,
                init=tuple(source for _, source in self.init or ()),
                tolerance=self.tolerance,
                origin=self._origin("fixture", "init", "tol"),
            )
        self.text.errors.clear()
        if self.inputs is None:
            return Plan.none("the annotation gives no inputs(...)")
        if any(name is not None for name, _ in self.init or ()):
            self.text.error(
                self.place("init"), "init(...) takes the constructor's arguments by position, without names"
            )
        inputs = ", ".join(self._placed(forward, what))
        init = ", ".join(source for _, source in self.init or ())
        text = (
            f"\n\ndef get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return [{init}]\n"
        )
        return Plan(
            "annotation",
            inputs_source=text,
            tolerance=self.tolerance,
            origin=self._origin("inputs", "init", "tol"),
        )

    def _with_fixture(self, params: Sequence[Param], kernel: str, base: Plan | None) -> Plan:
        """What a fixture gives are the arguments of ``base``'s wrapper, or with ``grid`` those of the kernel."""
        own = self.grid is not None
        if own and self.block is None:
            self.text.error(self.place("grid"), "`grid=` needs `block=` beside it")
            raise AnnotationErrors(self.text.errors)
        if not own and (base is None or not base.runnable):
            why = f": {base.reason}" if base is not None and base.reason else ""
            return Plan.none(
                f"a fixture needs grid= and block= beside it, or a function that launches {kernel}{why}"
            )
        called = tuple(params) if own or base is None else base.params
        return Plan(
            "annotation",
            kernel=kernel,
            wrapper=None if own or base is None else base.wrapper,
            params=called,
            grid=_three(self.grid) if self.grid else None,
            block=_three(self.block) if own and self.block else None,
            shared=self.smem or "0",
            buffers=tuple(Buffer(p.name, "in" if p.const else "inout", "0") for p in called if p.pointer),
            templates=self.templates or (base.templates if base is not None and not own else ({},)),
            sizes=({},),
            fixture=self.fixture,
            arguments=base.arguments if base is not None and not own else (),
            tolerance=self.tolerance,
            origin=self._origin("fixture", "host", "grid", "block", "smem", "tmpl", "tol"),
        )

    def arguments(self, params: Sequence[str]) -> tuple[str, ...] | None:
        """For a host function of torch tensors: an expression for each argument; None without ``inputs(...)``.

        Raises:
            AnnotationErrors: if an input names no parameter, or a size that sizes(...) does not give.
        """
        if self.inputs is None:
            return None
        self.text.errors.clear()
        found = self._placed(params, self.host or "the function")
        known = set(self.sizes[0]) if self.sizes else set()
        for name in sorted({name for source in found for name in symbols_of(source)} - known):
            self.text.error(self.place("inputs"), f"`{name}` has no value: give it in sizes({name}=...)")
        if self.text.errors:
            raise AnnotationErrors(self.text.errors)
        return tuple(found)

    def _placed(self, params: Sequence[str], whose: str) -> list[str]:
        """The expressions of ``inputs`` in the order of the parameters."""
        place = self.place("inputs")
        order = {name: index for index, name in enumerate(params)}
        placed: list[tuple[int, str]] = []
        for index, (name, source) in enumerate(self.inputs or ()):
            if name is not None and name not in order:
                known = ", ".join(params) or "none"
                message = f"{whose} has no parameter `{name}`.{suggestion(name, params)} Known: {known}."
                self.text.error(place, message)
            placed.append((order.get(name, index) if name is not None else index, source))
        if sorted(at for at, _ in placed) != list(range(len(placed))) and not self.text.errors:
            names = ", ".join(params)
            self.text.error(place, f"inputs must give {whose}'s parameters in full, from the first: {names}")
        if self.text.errors:
            raise AnnotationErrors(self.text.errors)
        return [source for _, source in sorted(placed)]

    def _own_launch(self, params: Sequence[Param], kernel: str, base: Plan | None) -> Plan:
        assert self.grid is not None
        if self.block is None:
            self.text.error(self.place("grid"), "`grid=` needs `block=` beside it")
        if not self.sizes:
            self.text.error(self.place("grid"), "`grid=` needs `sizes(...)`: the values to run with")
        known = {buffer.name for buffer in self.buffers}
        missing = [param.name for param in params if param.pointer and param.name not in known]
        if missing:
            names = ", ".join(f"`{name}`" for name in missing)
            self.text.error(self.place("grid"), f"no in(), out(), inout() or tmp() says what {names} is")
        free = [p.name for p in params if _is_integer(p) and self.sizes and p.name not in self.sizes[0]]
        if free:
            self.text.error(
                self.place("sizes"), f"sizes(...) gives no value for {', '.join(f'`{n}`' for n in free)}"
            )
        if self.text.errors:
            raise AnnotationErrors(self.text.errors)
        return Plan(
            "annotation",
            kernel=kernel,
            params=tuple(params),
            grid=_three(self.grid),
            block=_three(self.block or ()),
            shared=self.smem or "0",
            buffers=tuple(replace(b, fill=self.fills.get(b.name, b.fill)) for b in self.buffers),
            sizes=self.sizes,
            tolerance=self.tolerance,
            templates=base.templates if base is not None and base.runnable else ({},),
            origin=self._origin("grid", "block", "smem", "buffers", "sizes", "fill", "tmpl", "tol"),
        )

    def _refined(self, base: Plan | None) -> Plan:
        if base is not None and not base.runnable and base.wrapper is not None:
            return base
        if base is None or not base.runnable:
            why = f": {base.reason}" if base is not None and base.reason else ""
            return Plan.none(f"the annotation gives no grid=, and the file alone gives no plan{why}")
        if self.host is not None and base.wrapper != self.host:
            return Plan.none(f"host={self.host} was not found among the functions that launch this kernel")
        if self.block is not None or self.smem is not None:
            self.text.error(self.place("block"), "`block=` and `smem=` need `grid=` beside them")
        own = {buffer.name: buffer for buffer in self.buffers}
        buffers = tuple(own.get(buffer.name, buffer) for buffer in base.buffers)
        buffers += tuple(buffer for name, buffer in own.items() if name not in {b.name for b in base.buffers})
        origin = {**base.origin, **self._origin("host", "inputs", "buffers", "sizes", "fill", "tmpl", "tol")}
        return replace(
            base,
            source="annotation",
            buffers=tuple(replace(b, fill=self.fills.get(b.name, b.fill)) for b in buffers),
            sizes=self.sizes or base.sizes,
            tolerance=self.tolerance or base.tolerance,
            origin=origin,
        )

    def _check_names(self, plan: Plan) -> None:
        """Buffers and fills must name parameters of what is called."""
        pointers = [param.name for param in plan.params if param.pointer or "Tensor" in param.ctype]
        for buffer in self.buffers:
            if buffer.name not in pointers:
                hint = suggestion(buffer.name, pointers)
                message = (
                    f"`{buffer.name}` is no pointer parameter.{hint} Known: {', '.join(pointers) or 'none'}."
                )
                self.text.error(self.place(f"buffer {buffer.name}"), message)
        names = [param.name for param in plan.params]
        for name in self.fills:
            if name not in names:
                message = f"`{name}` is no parameter.{suggestion(name, names)} Known: {', '.join(names)}."
                self.text.error(self.place(f"fill {name}"), message)

    def _with_templates(self, plan: Plan, template_params: Sequence[str]) -> Plan:
        if self.templates:
            plan = replace(plan, templates=self.templates)
        if plan.wrapper is None and plan.grid is not None:
            missing = [
                name for name in template_params if any(name not in binding for binding in plan.templates)
            ]
            if missing:
                example = ", ".join(f"{name}=..." for name in missing)
                self.text.error(self.place("grid"), f"the kernel is a template: say tmpl({example})")
        return plan

    def _check_values(self, plan: Plan) -> None:
        """Every expression must have a usable value for every set of sizes and template values."""
        for sizes in plan.sizes:
            for binding in plan.templates:
                numbers = {name: int(value) for name, value in binding.items() if value.isdigit()}
                bytes_of = {f"sizeof_{name}": size_of(value) for name, value in binding.items()}
                symbols = {
                    **sizes,
                    **numbers,
                    **{name: size for name, size in bytes_of.items() if size is not None},
                }
                grid = [self._value("grid", part, symbols, 1) for part in plan.grid or ()]
                block = [self._value("block", part, symbols, 1) for part in plan.block or ()]
                self._value("smem", plan.shared, symbols, 0)
                for buffer in plan.buffers:
                    self._value(f"buffer {buffer.name}", buffer.extent, symbols, 1)
                if not self.text.errors and math.prod(block) > _MAX_THREADS:
                    message = f"a block has {math.prod(block)} threads; the most is {_MAX_THREADS}"
                    self.text.error(self.place("block"), message)
                if not self.text.errors and max(grid[1:], default=1) > 65535:
                    self.text.error(
                        self.place("grid"), "the second and third dimension of a grid end at 65535"
                    )
                if self.text.errors:
                    return

    def _value(self, part: str, expression: str, symbols: dict[str, int], least: int) -> int:
        try:
            value = evaluate(expression, symbols)
        except ExpressionError as error:
            self.text.error(self.place(part), str(error))
            return least
        if value < least:
            given = ", ".join(f"{name}={number}" for name, number in symbols.items())
            self.text.error(self.place(part), f"`{expression}` is {value} with {given}")
        return value

    def _origin(self, *parts: str) -> dict[str, str]:
        origin = {}
        for part in parts:
            keys = ("in", "out", "inout", "tmp") if part == "buffers" else (part,)
            place = next((self.places[key] for key in keys if key in self.places), None)
            if place is not None:
                origin[part] = f"annotation, line {self.text.line_of(place)}"
        return origin


def _three(parts: Sequence[str]) -> tuple[str, str, str]:
    x, y, z = [*parts, "1", "1", "1"][:3]
    return x, y, z


def _is_integer(param: Param) -> bool:
    words = set(param.ctype.replace("std::", "").split())
    return not param.pointer and bool(words) and words <= _INTEGERS


_INTEGERS = frozenset(
    [
        "int",
        "unsigned",
        "signed",
        "long",
        "short",
        "char",
        "size_t",
        "ssize_t",
        "ptrdiff_t",
        "int8_t",
        "int16_t",
        "int32_t",
        "int64_t",
        "uint8_t",
        "uint16_t",
        "uint32_t",
        "uint64_t",
        "uint",
    ]
)

"""What ``forward`` does, line by line: calls of the extension's functions, and of torch for what stays there."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from dice_training.cuke.traced.program import Program
from dice_training.cuke.traced.values import (
    Buffer,
    Call,
    Constant,
    Dim,
    Kept,
    Moved,
    Size,
    Unwritten,
    Value,
    constant,
    reachable,
)
from dice_training.cuke.traced.walk import Lowered

_UNIT = "    "


@dataclass
class Extension:
    """The CUDA source of one or several functions."""

    functions: list[Program] = field(default_factory=list)
    helpers: dict[str, list[str]] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return [program.function for program in self.functions]

    @property
    def declaration(self) -> str:
        """The prototypes, without the last semicolon."""
        return "; ".join(program.declaration() for program in self.functions)

    def source(self) -> str:
        """The whole CUDA source, without the quotes of the string it stands in."""
        blocks = [["#include <torch/extension.h>", "#include <cuda_runtime.h>"], *self.helpers.values()]
        for program in self.functions:
            blocks += program.kernels
            blocks.append(program.host())
        return "\n" + "\n\n".join("\n".join(block) for block in blocks) + "\n"


class Stages:
    """Plans ``lines`` and the expressions of ``results`` for the values ``outputs``; ``extension`` holds the functions.

    ``function``: the name of the last function; ``module``: by which name Python knows the extension;
    ``twins``: draws a simple body for each kernel too.
    """

    def __init__(
        self,
        lowered: Lowered,
        outputs: Sequence[Value],
        function: str,
        module: str,
        twins: random.Random | None = None,
    ) -> None:
        self.lowered, self.function, self.module, self.twins = lowered, function, module, twins
        self.extension = Extension()
        self.lines: list[str] = []
        self._given: dict[int, Buffer] = {}
        """Values that an earlier function has computed, by id."""
        self._keep = list(outputs)
        self._canonical: dict[str, Program] = {}
        needed = self._needed(outputs)
        self.kept = tuple(sorted({call.operator for call in needed}))
        """Operators that stay in torch."""
        for call in needed:
            self._compute(call.line.sources)
            self.lines.append(f"{call.targets} = {self._filled(call)}")
        missing = [value for value in outputs if self._expression(value) is None]
        self.whole = len(missing) == len(outputs) and len(outputs) > 0
        """Whether one call of the last function gives all results."""
        if self.whole:
            self.results = [self._function(outputs, function)]
        else:
            self._compute(outputs, function)
            self.results = [str(self._expression(value)) for value in outputs]
            self._fold_last()
        if not self.extension.functions:
            raise Unwritten("nothing that is left for a kernel")

    def _fold_last(self) -> None:
        """``return self.fc(h)`` in place of ``y = self.fc(h)`` and ``return y``."""
        if len(self.results) == 1 and self.lines and self.lines[-1].startswith(f"{self.results[0]} = "):
            self.results = [self.lines.pop().partition(" = ")[2]]

    def _needed(self, outputs: Sequence[Value]) -> list[Call]:
        """Lines of torch that the results depend on, in the order of the trace."""
        calls: set[int] = set()
        waiting = list(outputs)
        while waiting:
            for value in reachable(waiting):
                if isinstance(value, Kept) and id(value.call) not in calls:
                    calls.add(id(value.call))
                    waiting = [*waiting, *value.call.line.sources]
                    break
            else:
                break
        return [call for call in self.lowered.calls if id(call) in calls]

    def _expression(self, value: Value) -> str | None:
        """How Python writes ``value`` without computing anything new; None where it cannot."""
        if id(value) in self._given:
            return self._given[id(value)].text
        if isinstance(value, Kept):
            return value.text
        if isinstance(value, Buffer):
            return self.lowered.paths[id(value)]
        line = self.lowered.views.get(id(value)) if isinstance(value, Moved) else None
        if line is None:
            return None
        sources = [self._expression(source) for source in line.sources]
        return None if None in sources else line.template.format(*sources)

    def _filled(self, call: Call) -> str:
        return call.line.template.format(*(self._expression(source) for source in call.line.sources))

    def _compute(self, wanted: Sequence[Value], function: str | None = None) -> None:
        """Have a function of the extension compute those of ``wanted`` that Python does not hold."""
        missing = list({id(v): v for v in wanted if self._expression(v) is None}.values())
        if not missing:
            return
        # What lies under a view is computed; the view itself is a method's.
        roots = [self._root(value) for value in missing]
        roots = list({id(v): v for v in roots}.values())
        if any(isinstance(root, Constant | Size) for root in roots):
            raise Unwritten("a constant that torch works on")
        called = self._function(roots, function)
        texts = [self._variable() for _ in roots]
        self.lines.append(f"{', '.join(texts)} = {called}")
        for text, value in zip(texts, roots, strict=True):
            shape = tuple(
                Dim(dim.value, f"{text}.size({k})") if dim.value != 1 else constant(1)
                for k, dim in enumerate(value.shape)
            )
            self._given[id(value)] = Buffer(shape=shape, dtype=value.dtype, text=text, name=value.name)
            self._keep.append(value)

    def _root(self, value: Value) -> Value:
        line = self.lowered.views.get(id(value)) if isinstance(value, Moved) else None
        return self._root(line.sources[0]) if line is not None else value

    def _variable(self) -> str:
        taken = self.lowered.taken
        text = next(t for t in ("h", *(f"h{k}" for k in range(1, 999))) if t not in taken)
        taken.add(text)
        return text

    def _function(self, outputs: Sequence[Value], function: str | None) -> str:
        """The call of a function that computes ``outputs``: of one that is there already, or of a new one."""
        inside = reachable(outputs, lambda v: id(v) not in self._given)
        used = {id(v) for v in inside}
        inputs = [self._given[id(v)] for v in inside if id(v) in self._given]
        inputs += [v for v in inside if isinstance(v, Kept)]
        inputs += [b for b in self.lowered.inputs if id(b) in used]
        if not inputs:
            raise Unwritten("a result that depends on no tensor")
        name = function or self._name(inside)
        program = Program(
            name, inputs, list(outputs), self._given, self.lowered.sizes, self.extension.helpers, self.twins
        )
        known = self._canonical.setdefault(program.canonical(), program)
        if function is not None or known is program:
            self.extension.helpers |= program.helpers
            self.extension.functions.append(program)
            known = program
        arguments = ", ".join(self.lowered.paths.get(id(b), b.text) for b in inputs)
        return f"{self.module}.{known.function}({arguments})"

    def _name(self, inside: Sequence[Value]) -> str:
        words: list[str] = []
        for value in inside:
            named = value.name in self.lowered.operators and id(value) not in self._given
            word = re.sub(r"^_+|_+$", "", value.name)
            if named and not isinstance(value, Buffer) and word not in words:
                words.append(word)
        words = words or ["move"]
        stem = "_".join(["fused", *words[-2:]])
        taken = set(self.extension.names) | {self.function}
        return next(n for n in (stem, *(f"{stem}{k}" for k in range(2, 99))) if n not in taken)

"""How a class or a plain function of a Python file is run: its annotation, what the file or the project tells."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dice_engine.source.annotation import AnnotationError, AnnotationErrors
from dice_engine.source.annotation_parse import parse_annotation
from dice_engine.source.annotation_text import DiceLine
from dice_engine.source.lines import LineMap
from dice_engine.source.plan import Plan
from dice_engine.source.project import FILE as PROJECT_FILE
from dice_engine.source.pytorch import Definition, ModuleClass

MAKERS = frozenset({"get_inputs", "get_init_inputs"})
"""Functions that make inputs: never rewritten themselves."""
_NEW = "ModelNew"


@dataclass
class Words:
    """The ``@dice`` lines of one class or function, and the faults that were found in them."""

    lines: Sequence[DiceLine]
    by_project: bool
    errors: list[AnnotationError] = field(default_factory=list)

    def plan(self, one: Definition) -> Plan:
        """The plan that the lines give; a ``no_plan`` when they have a fault."""
        what = "forward" if isinstance(one, ModuleClass) else one.name
        try:
            plan = parse_annotation(self.lines, "module").module_plan(one.inputs, what)
        except AnnotationErrors as error:
            self.errors = error.errors
            where = f"the annotation in {PROJECT_FILE}" if self.by_project else "the annotation"
            plan = Plan.none(f"{where} has a fault: {error.errors[0].message}")
        return told_by_project(plan) if self.by_project else plan


def told_by_project(plan: Plan) -> Plan:
    """A plan from the project's file: its parts name that file instead of a line."""
    origin = {
        part: PROJECT_FILE if said.startswith("annotation") else said for part, said in plan.origin.items()
    }
    reason = plan.reason
    if reason is not None and reason.startswith("annotation:"):
        reason = f"{PROJECT_FILE}: " + re.sub(r"^annotation: (?:line \d+, column \d+: )?", "", reason)
    return replace(plan, origin=origin, reason=reason)


def of_file(module: ModuleClass, classes: Sequence[ModuleClass]) -> Plan:
    """The plan that a file's ``get_inputs`` gives one of its classes."""
    named = any(one.name == "Model" for one in classes)
    if module.used_by is not None or (named and module.name != "Model"):
        owner = "Model" if named else module.used_by
        return Plan.none(f"get_inputs() makes the inputs of {owner}, not of {module.name}")
    return Plan("inputs", origin={"inputs": "get_inputs in this file"})


def replaced_by(one: Definition, classes: Sequence[ModuleClass], lines: LineMap) -> str | None:
    """Why nothing can be written below ``one``: a later ModelNew would be judged and run in its place."""
    rewritten = next((o for o in classes if o.name == _NEW and o.start > one.start), None)
    if rewritten is None:
        return None
    line = lines.position(rewritten.start)[0] + 1
    return f"{_NEW} on line {line} would replace what is written here; rewrite that one"

"""A CUDA source whose kernel is launched by a function of torch tensors, as a Python module that calls the function.

Such a source is judged as the module that a user would write around it with ``load_inline``: by the same checks, and
its host code interpreted, or compiled where it must be.
"""

from __future__ import annotations

import re

from dice_engine.source.host import HostProgram
from dice_engine.source.plan import Plan
from dice_engine.source.plan_host import is_tensor
from dice_engine.source.plans import checking_sizes, measuring_sizes

CLASS = "HostCall"
FIRST_OTHER_SEED = 3
"""Inputs of this seed and the following ones have the plan's other sizes, in order."""


def host_module(text: str, plan: Plan, timed: bool, makers: bool = True) -> str:
    """The Python text that calls ``plan.wrapper`` of ``text``; ``timed``: its first sizes are those to time.

    ``makers``: with the functions that make its inputs.
    """
    assert plan.wrapper is not None
    program = HostProgram(text)
    function = program.functions.get(plan.wrapper)
    returns = function is None or function.return_type != "void"
    written = [index for index, param in enumerate(plan.params[: len(plan.arguments)]) if is_tensor(param)]
    result = "result" if returns else f"tuple(arguments[index] for index in {written})"
    module = _TEXT.format(
        text=text,
        bound=[] if re.search(r"\bPYBIND11_MODULE\s*\(", text) else [plan.wrapper],
        function=_bound_name(text, plan.wrapper),
        name=CLASS,
        result=result,
    )
    if not makers:
        return module
    if plan.inputs_source is not None:
        return module + plan.inputs_source
    return module + _MAKERS.format(
        parameters=", ".join(sorted({name for sizes in plan.sizes for name in sizes})),
        arguments=", ".join(plan.arguments),
        sets=size_sets(plan, timed),
        first=FIRST_OTHER_SEED,
    )


def size_sets(plan: Plan, timed: bool) -> list[dict[str, int]]:
    """The sizes of the module's inputs: those of its first seeds, then the others."""
    sets = [dict(sizes) for sizes in checking_sizes(plan)]
    return [dict(measuring_sizes(plan)), *sets] if timed and plan.sizes[-1] not in sets else sets


def _bound_name(text: str, function: str) -> str:
    """What Python calls the function: its name in the file's own PYBIND11_MODULE, else its own."""
    bound = re.search(rf"\.\s*def\s*\(\s*\"(\w+)\"\s*,\s*&?\s*(?:\w+::)*{re.escape(function)}\b", text)
    return bound[1] if bound else function


_TEXT = """import torch
from torch.utils.cpp_extension import load_inline

_extension = load_inline(name="dice_host_call", cpp_sources="", cuda_sources={text!r}, functions={bound!r})


class {name}(torch.nn.Module):
    def forward(self, *arguments):
        result = _extension.{function}(*arguments)
        return {result}
"""
_MAKERS = """

_sets = {sets!r}


def _arguments({parameters}):
    return [{arguments}]


def get_inputs():
    later = torch.initial_seed() - {first} + 1
    return _arguments(**_sets[later if 0 < later < len(_sets) else 0])
"""

"""Where a rewritten module goes: below its class or function, in its place, or into a new file beside it.

A plain function is judged as a module that calls it; its rewrite is a class too, and a function of the same signature
that calls the class where it takes the place.
"""

from __future__ import annotations

import ast
import re
from pathlib import PurePosixPath

from dice_engine.source.hole import Hole

_NEW = "ModelNew"


def written_class(core: str) -> str:
    """The class that a module's core defines."""
    names = re.findall(r"^class\s+(\w+)\s*[(:]", core, re.MULTILINE)
    return _NEW if _NEW in names or not names else names[-1]


def called_class(name: str) -> str:
    """The class that stands for a function while it is judged."""
    return f"{name}_call"


def calling_class(hole: Hole, called: str, function: str = "") -> str:
    """The text of a class ``called`` whose ``forward`` is a function: the hole's, or another of its signature."""
    given = ", ".join(_parameters(hole)[0])
    call = f"{function or hole.name}({given})"
    return f"class {called}(torch.nn.Module):\n    def forward(self, {given}):\n        return {call}\n"


def calling_function(hole: Hole, core: str) -> str:
    """``core`` with its class named for the function, and the function that calls it.

    Arguments that the check left at their defaults stay there: with other values the original is called.
    """
    name = hole.name
    kernel = "".join(word[:1].upper() + word[1:] for word in name.split("_")) + "Kernel"
    renamed = re.sub(rf"\b{re.escape(written_class(core))}\b", kernel, core)
    checked, others = _parameters(hole)
    lines = [f"def {name}{hole.signature}:"]
    if others:
        differs = " or ".join(
            f"{other} {'is not' if default in _SINGLETONS else '!='} {default}" for other, default in others
        )
        whole = ", ".join([*checked, *(f"{other}={other}" for other, _ in others)])
        lines += [f"    if {differs}:", f"        return {name}_reference({whole})"]
    lines.append(f"    return _{name}({', '.join(checked)})")
    return f"{renamed.rstrip()}\n\n\n_{name} = {kernel}()\n\n\n" + "\n".join(lines) + "\n"


_SINGLETONS = ("None", "True", "False")


def _parameters(hole: Hole) -> tuple[list[str], list[tuple[str, str]]]:
    """The function's parameters that its plan gives, and the others with their defaults."""
    made = _function(f"def f{hole.signature}: ...")
    count = len(_given(hole.plan.inputs_source or ""))
    positional = [*made.args.posonlyargs, *made.args.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(made.args.defaults))
    others = [*zip(positional, [*defaults, *made.args.defaults], strict=True)][count:]
    others += zip(made.args.kwonlyargs, made.args.kw_defaults, strict=True)
    named = [(one.arg, ast.unparse(default)) for one, default in others if default is not None]
    return [one.arg for one in positional[:count]], named


def _function(text: str) -> ast.FunctionDef:
    made = ast.parse(text).body[0]
    assert isinstance(made, ast.FunctionDef)
    return made


def _given(makers: str) -> list[ast.expr]:
    """What ``get_inputs`` of a plan's text returns."""
    returned = next(
        (node.value for node in ast.walk(ast.parse(makers)) if isinstance(node, ast.Return)), None
    )
    return returned.elts if isinstance(returned, ast.List) else []


def replacing_function(hole: Hole, source: str, core: str) -> tuple[str, str]:
    """``source`` (the function) renamed to ``<name>_reference``, and what stands in for it."""
    renamed = re.sub(rf"\b{re.escape(hole.name)}\b", f"{hole.name}_reference", source)
    return renamed, calling_function(hole, core).rstrip("\n")


def replacing(name: str, source: str, core: str) -> tuple[str, str]:
    """``source`` (the class ``name``) renamed to ``<name>Reference``, and ``core`` with its class named ``name``.

    Whoever uses ``name`` gets the rewrite from then on; parameters and state_dict keys are those of the class, which
    the check has compared.
    """
    renamed = re.sub(rf"\b{re.escape(name)}\b", f"{name}Reference", source)
    return renamed, re.sub(rf"\b{re.escape(written_class(core))}\b", name, core)


def new_file(hole: Hole, core: str, document: str, stem: str) -> str:
    """A file of its own for ``core``: the document's imports, what else of it the core uses, and the core."""
    name = hole.name
    if hole.signature is not None:
        core = calling_function(hole, core)
    try:
        tree = ast.parse(document)
    except (SyntaxError, ValueError):
        tree = ast.Module([], [])
    lines = document.replace("\r\n", "\n").split("\n")
    imports, defined = [], set()
    for statement in tree.body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            imports.append("\n".join(lines[statement.lineno - 1 : statement.end_lineno]))
        elif isinstance(statement, ast.ClassDef | ast.FunctionDef):
            defined.add(statement.name)
        elif isinstance(statement, ast.Assign):
            defined |= {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    words = set(re.findall(r"\w+", core))
    borrowed = sorted((defined & words) - {written_class(core), name})
    if borrowed:
        imports.append(f"from {stem} import {', '.join(borrowed)}")
    if f"{name}_reference(" in core:
        imports.append(f"from {stem} import {name} as {name}_reference")
    head = f'"""A faster `{name}` of {stem}.py, written by DICE and verified against it."""'
    return "\n\n".join([head, "\n".join(imports), core.strip()]) + "\n"


def file_name(path: str, name: str) -> str:
    """``layers.py`` and ``Gate`` make ``layers_gate_dice.py``."""
    return f"{PurePosixPath(path).stem}_{name.lower()}_dice.py"

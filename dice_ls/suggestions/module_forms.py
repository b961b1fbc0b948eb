"""Where a rewritten module goes: below its class, in the class's place, or into a new file beside it."""

from __future__ import annotations

import ast
import re
from pathlib import PurePosixPath

_NEW = "ModelNew"


def written_class(core: str) -> str:
    """The class that a module's core defines."""
    names = re.findall(r"^class\s+(\w+)\s*[(:]", core, re.MULTILINE)
    return _NEW if _NEW in names or not names else names[-1]


def replacing(name: str, source: str, core: str) -> tuple[str, str]:
    """``source`` (the class ``name``) renamed to ``<name>Reference``, and ``core`` with its class named ``name``.

    Whoever uses ``name`` gets the rewrite from then on; parameters and state_dict keys are those of the class, which
    the check has compared.
    """
    renamed = re.sub(rf"\b{re.escape(name)}\b", f"{name}Reference", source)
    return renamed, re.sub(rf"\b{re.escape(written_class(core))}\b", name, core)


def new_file(name: str, core: str, document: str, stem: str) -> str:
    """A file of its own for ``core``: the document's imports, what else of it the core uses, and the core."""
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
    borrowed = sorted((defined & words) - {written_class(core)})
    if borrowed:
        imports.append(f"from {stem} import {', '.join(borrowed)}")
    head = f'"""A faster `{name}` of {stem}.py, written by DICE and verified against it."""'
    return "\n\n".join([head, "\n".join(imports), core.strip()]) + "\n"


def file_name(path: str, name: str) -> str:
    """``layers.py`` and ``Gate`` make ``layers_gate_dice.py``."""
    return f"{PurePosixPath(path).stem}_{name.lower()}_dice.py"

"""The PyTorch that a file with a ``load_inline`` module stands in for."""

from __future__ import annotations

import ast

from dice_engine.source import pytorch

_ENTRY = ("get_inputs", "get_init_inputs")


def reference_source(text: str) -> str | None:
    """The plain PyTorch part of a file that also has a ``load_inline`` module: imports, class and input makers.

    None when the file has no such class. It is what a ``load_inline`` source shall compute.
    """
    try:
        statements = ast.parse(text).body
    except (SyntaxError, ValueError):
        return None
    modules = pytorch.module_classes(pytorch.parse(text.encode("utf-8", "surrogatepass")))
    plain = [module.name for module in modules if not module.uses_inline]
    if not plain:
        return None
    defined = {name: statement for statement in statements for name in _defines(statement)}
    pending = ["Model" if "Model" in plain else plain[0], *_ENTRY]
    kept: set[int] = set()
    while pending:
        statement = defined.get(pending.pop())
        if statement is not None and id(statement) not in kept:
            kept.add(id(statement))
            pending += [node.id for node in ast.walk(statement) if isinstance(node, ast.Name)]
    lines = text.replace("\r\n", "\n").split("\n")
    imports, parts = [], []
    for statement in statements:
        source = "\n".join(lines[_first_line(statement) - 1 : statement.end_lineno])
        if isinstance(statement, ast.Import | ast.ImportFrom):
            if "cpp_extension" not in source:
                imports.append(source)
        elif id(statement) in kept:
            parts.append(source)
    return "\n\n\n".join(["\n".join(imports), *parts]) + "\n"


def _defines(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.ClassDef | ast.FunctionDef):
        return [statement.name]
    if isinstance(statement, ast.Assign):
        return [
            node.id for target in statement.targets for node in ast.walk(target) if isinstance(node, ast.Name)
        ]
    return []


def _first_line(statement: ast.stmt) -> int:
    decorators = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(decorator.lineno for decorator in decorators)])

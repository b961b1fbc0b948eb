"""The CUDA sources that a Python file hands to ``torch.utils.cpp_extension.load_inline``."""

from __future__ import annotations

from dataclasses import dataclass

import tree_sitter

from dice_engine.source.python_string import LiteralError, StringLiteral, read_literal
from dice_engine.source.pytorch import PythonFile

_SCOPES = frozenset({"function_definition", "class_definition", "lambda", "module"})


@dataclass(frozen=True)
class InlineSource:
    """One CUDA source of a ``load_inline`` call; byte offsets into the document.

    ``start``..``end`` is the assignment statement of the source string, or the argument itself when there is none;
    ``reason`` says why the statement cannot be rewritten, ``literal`` is None when no fixed text is known.
    """

    name: str
    start: int
    end: int
    literal: StringLiteral | None
    reason: str | None
    strings: tuple[tuple[int, int], ...] = ()
    """Where the string pieces are when there is no single literal: kernels are looked for there, to be declined."""


class _Unresolved(Exception):
    """The CUDA source has no text in this file; the message says why."""


def inline_sources(file: PythonFile) -> list[InlineSource]:
    """The CUDA sources of all ``load_inline`` calls, in document order, each once."""
    found: dict[tuple[int, int], InlineSource] = {}
    for call in file.inline_calls():
        arguments = call.child_by_field_name("arguments")
        value = _argument(file, arguments, "cuda_sources", 2)
        if value is None:
            continue
        extension = _extension_name(file, arguments)
        elements = value.named_children if value.type in ("list", "tuple") else [value]
        elements = [element for element in elements if element.type != "comment"]
        for element in elements:
            source = _source(file, call, element, extension if len(elements) == 1 else None)
            found.setdefault((source.start, source.end), source)
    return sorted(found.values(), key=lambda source: source.start)


def _source(
    file: PythonFile, call: tree_sitter.Node, element: tree_sitter.Node, extension: str | None
) -> InlineSource:
    element = _unwrapped(element)
    variable, statement, value = "", element, element
    reason: str | None = None
    if element.type == "identifier":
        variable = file.text(element)
        try:
            statement, value = _resolve(file, call, variable)
        except _Unresolved as error:
            return InlineSource(extension or variable, element.start_byte, element.end_byte, None, str(error))
    else:
        reason = (
            "its text is written inside the call; bind it to a name first to have it rewritten as a whole"
        )
    name = extension or variable or "cuda_source"
    start, end = statement.start_byte, statement.end_byte
    if value.type == "string":
        try:
            literal = read_literal(file.data, value.start_byte, value.end_byte)
            return InlineSource(name, start, end, literal, reason)
        except LiteralError as error:
            why = str(error)
    elif value.type in ("concatenated_string", "binary_operator"):
        why = "it is put together from several strings"
    else:
        why = f"it is no string literal but `{_short(file.text(value))}`"
    return InlineSource(
        name, start, end, None, f"the CUDA source cannot be rewritten: {why}", _strings(value)
    )


def _resolve(
    file: PythonFile, call: tree_sitter.Node, name: str
) -> tuple[tree_sitter.Node, tree_sitter.Node]:
    """The statement that binds ``name`` where ``call`` stands, and its value; aliases are followed."""
    seen: set[str] = set()
    place = call
    while True:
        if name in seen:
            raise _Unresolved(f"`{name}` is bound to itself")
        seen.add(name)
        assignment = _binding(file, place, name)
        value = assignment.child_by_field_name("right")
        while value is not None and value.type == "assignment":  # a = b = "..."
            value = value.child_by_field_name("right")
        if value is None:
            raise _Unresolved(f"`{name}` has no value")
        value = _unwrapped(value)
        if value.type != "identifier":
            statement = assignment
            while statement.parent is not None and statement.parent.type == "assignment":
                statement = statement.parent
            return statement, value
        name, place = file.text(value), assignment


def _binding(file: PythonFile, place: tree_sitter.Node, name: str) -> tree_sitter.Node:
    """The one assignment that gives ``name`` its value at ``place``."""
    everywhere = file.assignments(name)
    scope: tree_sitter.Node | None = place
    while scope is not None:
        scope = _scope(scope)
        if scope is None:
            break
        parameters = scope.child_by_field_name("parameters")
        if parameters is not None and name in _identifiers(file, parameters):
            raise _Unresolved(f"`{name}` is a parameter; its text is known only when the function is called")
        here = [node for node in everywhere if _scope(node) == scope]
        if len(here) > 1:
            lines = ", ".join(str(node.start_point[0] + 1) for node in here)
            raise _Unresolved(f"`{name}` is assigned more than once (lines {lines})")
        if here:
            return here[0]
    raise _Unresolved(f"`{name}` is not bound to a string in this file")


def _scope(node: tree_sitter.Node) -> tree_sitter.Node | None:
    parent = node.parent
    while parent is not None and parent.type not in _SCOPES:
        parent = parent.parent
    return parent


def _identifiers(file: PythonFile, parameters: tree_sitter.Node) -> set[str]:
    names = set()
    for node in parameters.named_children:
        target = node.child_by_field_name("name") or (node.named_children[0] if node.named_children else node)
        names.add(file.text(target))
    return names


def _argument(
    file: PythonFile, arguments: tree_sitter.Node | None, keyword: str, position: int
) -> tree_sitter.Node | None:
    positional = []
    for node in arguments.named_children if arguments else []:
        if node.type == "keyword_argument":
            name = node.child_by_field_name("name")
            if name is not None and file.text(name) == keyword:
                return node.child_by_field_name("value")
        elif node.type not in ("comment", "dictionary_splat"):
            positional.append(node)
    return positional[position] if len(positional) > position else None


def _extension_name(file: PythonFile, arguments: tree_sitter.Node | None) -> str | None:
    node = _argument(file, arguments, "name", 0)
    if node is None or node.type != "string":
        return None
    try:
        return read_literal(file.data, node.start_byte, node.end_byte).value or None
    except LiteralError:
        return None


def _unwrapped(node: tree_sitter.Node) -> tree_sitter.Node:
    while node.type == "parenthesized_expression" and len(node.named_children) == 1:
        node = node.named_children[0]
    return node


def _strings(node: tree_sitter.Node) -> tuple[tuple[int, int], ...]:
    """Byte ranges of the text pieces of all strings below ``node``, without quotes and interpolations."""
    found: list[tuple[int, int]] = []
    pending = [node]
    while pending:
        current = pending.pop()
        if current.type == "string_content":
            found.append((current.start_byte, current.end_byte))
        else:
            pending += [child for child in current.children if child.type != "interpolation"]
    return tuple(sorted(found))


def _short(text: str) -> str:
    line = text.split("\n")[0]
    return line if len(line) <= 40 else line[:37] + "..."

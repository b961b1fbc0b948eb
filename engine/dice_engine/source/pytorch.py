"""What a PyTorch file holds: CUDA sources given to ``load_inline``, nn.Module classes, input makers.

The file is only parsed, never run; a file with syntax errors still gives what can be told.
"""

from __future__ import annotations

import functools
import re
from bisect import bisect_right
from dataclasses import dataclass

import tree_sitter
import tree_sitter_python

_MODULE_BASES = frozenset({"nn.Module", "torch.nn.Module", "Module"})
_QUERY = """
(call function: [(identifier) @called (attribute attribute: (identifier) @called)]) @call
(assignment left: (identifier) @target) @assignment
(augmented_assignment left: (identifier) @augmented)
(aliased_import name: (dotted_name) @imported alias: (identifier) @alias)
(identifier) @identifier
"""


@dataclass(frozen=True)
class Definition:
    """A class or function at the top level; byte offsets. ``insert`` is the end of its last line."""

    name: str
    start: int
    end: int
    insert: int
    inputs: tuple[str, ...]
    """Names of the parameters, for a class those of ``forward`` without self."""
    uses_inline: bool
    """Whether it reaches a ``load_inline`` extension, directly or through other definitions of the file."""
    comments: tuple[tuple[int, int], ...]
    """Byte ranges of the comment lines directly above."""


@dataclass(frozen=True)
class ModuleClass(Definition):
    """An nn.Module class."""

    used_by: str | None
    """Another module class of the file that uses this one."""


@dataclass(frozen=True)
class PlainFunction(Definition):
    """A function that may be called with tensors."""

    signature: str
    """Its parameters and what it returns, as written: ``(x, scale=1.0) -> torch.Tensor``."""


@dataclass(frozen=True)
class PythonFile:
    data: bytes
    root: tree_sitter.Node
    captures: dict[str, list[tree_sitter.Node]]

    def text(self, node: tree_sitter.Node) -> str:
        return self.data[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def inline_calls(self) -> list[tree_sitter.Node]:
        """The ``load_inline(...)`` call nodes, in order."""
        names = {"load_inline"}
        for imported, alias in zip(self._list("imported"), self._list("alias"), strict=False):
            if self.text(imported).rsplit(".", 1)[-1] == "load_inline":
                names.add(self.text(alias))
        calls = []
        for called in self._list("called"):
            if self.text(called) in names:
                node: tree_sitter.Node | None = called
                while node is not None and node.type != "call":
                    node = node.parent
                if node is not None:
                    calls.append(node)
        return calls

    def assignments(self, name: str) -> list[tree_sitter.Node]:
        """Every assignment to the plain name, ``+=`` included, in order."""
        targets = [node for node in self._list("target") + self._list("augmented") if self.text(node) == name]
        return sorted((node.parent for node in targets if node.parent), key=lambda node: node.start_byte)

    def functions(self) -> set[str]:
        """Names of the functions at the top level."""
        return {
            self.text(name)
            for child in self.root.children
            if (node := _undecorated(child)).type == "function_definition"
            and (name := node.child_by_field_name("name"))
        }

    def _list(self, capture: str) -> list[tree_sitter.Node]:
        return self.captures.get(capture, [])


def parse(data: bytes) -> PythonFile:
    root = tree_sitter.Parser(_language()).parse(data).root_node
    captures = tree_sitter.QueryCursor(_query()).captures(root)
    for nodes in captures.values():
        nodes.sort(key=lambda node: node.start_byte)
    return PythonFile(data, root, captures)


def module_classes(file: PythonFile) -> list[ModuleClass]:
    """The nn.Module classes at the top level of the file, derived ones included."""
    statements = file.root.children
    mentions = _mentions(file, statements)
    reaches_inline = _reach(file, statements, mentions)
    classes: dict[str, tuple[int, tree_sitter.Node]] = {}
    for index, statement in enumerate(statements):
        node = _undecorated(statement)
        name = node.child_by_field_name("name")
        if node.type == "class_definition" and name and _is_module(file, node, classes):
            classes[file.text(name)] = (index, node)
    found = []
    for name, (index, node) in classes.items():
        users = [other for other, (at, _) in classes.items() if other != name and name in mentions[at]]
        common = _common(file, name, statements[index], _forward_inputs(file, node), index in reaches_inline)
        found.append(ModuleClass(*common, used_by=users[0] if users else None))
    return found


def plain_functions(file: PythonFile) -> list[PlainFunction]:
    """The functions at the top level that take something; of several of one name the last."""
    statements = file.root.children
    reaches_inline = _reach(file, statements, _mentions(file, statements))
    found: dict[str, PlainFunction] = {}
    for index, statement in enumerate(statements):
        node = _undecorated(statement)
        name, parameters = node.child_by_field_name("name"), node.child_by_field_name("parameters")
        if node.type != "function_definition" or name is None or parameters is None or _asynchronous(node):
            continue
        inputs = _names(file, parameters)
        returned = node.child_by_field_name("return_type")
        signature = file.text(parameters) + (f" -> {file.text(returned)}" if returned else "")
        if inputs:
            common = _common(file, file.text(name), statement, inputs, index in reaches_inline)
            found[file.text(name)] = PlainFunction(*common, signature=signature)
    return list(found.values())


def _common(
    file: PythonFile, name: str, statement: tree_sitter.Node, inputs: tuple[str, ...], uses_inline: bool
) -> tuple[str, int, int, int, tuple[str, ...], bool, tuple[tuple[int, int], ...]]:
    """The fields of every ``Definition``."""
    start, end = statement.start_byte, statement.end_byte
    while file.data[end - 1 : end] == b"\r":  # the grammar counts it into a comment before CRLF
        end -= 1
    comments = comments_above(file.data, start)
    return name, start, end, _line_end(file.data, end), inputs, uses_inline, comments


def _asynchronous(node: tree_sitter.Node) -> bool:
    return any(child.type == "async" for child in node.children)


def comments_above(data: bytes, offset: int) -> tuple[tuple[int, int], ...]:
    """Byte ranges of the ``#`` lines directly above the line of ``offset``, in order."""
    found: list[tuple[int, int]] = []
    start = data.rfind(b"\n", 0, offset) + 1
    while start > 0:
        above = data.rfind(b"\n", 0, start - 1) + 1
        line = data[above : start - 1]
        if not line.lstrip().startswith(b"#"):
            break
        found.append((above + len(line) - len(line.lstrip()), above + len(line.rstrip())))
        start = above
    return tuple(reversed(found))


def _line_end(data: bytes, offset: int) -> int:
    newline = re.compile(rb"[\r\n]").search(data, offset)
    return newline.start() if newline else len(data)


def _undecorated(node: tree_sitter.Node) -> tree_sitter.Node:
    return node.child_by_field_name("definition") or node


def _is_module(
    file: PythonFile, node: tree_sitter.Node, known: dict[str, tuple[int, tree_sitter.Node]]
) -> bool:
    bases = node.child_by_field_name("superclasses")
    return bases is not None and any(
        file.text(base) in _MODULE_BASES or file.text(base) in known for base in bases.named_children
    )


def _mentions(file: PythonFile, statements: list[tree_sitter.Node]) -> list[set[str]]:
    """The identifiers that each top-level statement contains."""
    starts = [statement.start_byte for statement in statements]
    mentions: list[set[str]] = [set() for _ in statements]
    for node in file.captures.get("identifier", []):
        index = bisect_right(starts, node.start_byte) - 1
        if index >= 0:
            mentions[index].add(file.text(node))
    return mentions


def _reach(file: PythonFile, statements: list[tree_sitter.Node], mentions: list[set[str]]) -> set[int]:
    """Indices of the top-level statements that call ``load_inline`` or use a name that comes from one that does."""
    starts = [statement.start_byte for statement in statements]
    defined: list[set[str]] = [set() for _ in statements]
    for target in file.captures.get("target", []):
        defined[bisect_right(starts, target.start_byte) - 1].add(file.text(target))
    for index, statement in enumerate(statements):
        node = _undecorated(statement)
        if node.type in ("function_definition", "class_definition"):
            name = node.child_by_field_name("name")
            defined[index] = {file.text(name)} if name else set()
    pending = [bisect_right(starts, call.start_byte) - 1 for call in file.inline_calls()]
    reached: set[int] = set()
    while pending:
        index = pending.pop()
        if index in reached:
            continue
        reached.add(index)
        pending += [other for other, names in enumerate(mentions) if names & defined[index]]
    return reached


def _forward_inputs(file: PythonFile, node: tree_sitter.Node) -> tuple[str, ...]:
    body = node.child_by_field_name("body")
    for child in body.children if body else []:
        function = _undecorated(child)
        name = function.child_by_field_name("name")
        if function.type == "function_definition" and name and file.text(name) == "forward":
            parameters = function.child_by_field_name("parameters")
            return _names(file, parameters)[1:] if parameters else ()
    return ()


def _names(file: PythonFile, parameters: tree_sitter.Node) -> tuple[str, ...]:
    names = [_parameter_name(file, item) for item in parameters.named_children]
    return tuple(name for name in names if name)


def _parameter_name(file: PythonFile, node: tree_sitter.Node) -> str | None:
    if node.type == "identifier":
        return file.text(node)
    name = node.child_by_field_name("name")
    if name is None and node.type == "typed_parameter":
        name = node.named_children[0]
    return file.text(name) if name is not None and name.type == "identifier" else None


@functools.cache
def _language() -> tree_sitter.Language:
    return tree_sitter.Language(tree_sitter_python.language())


@functools.cache
def _query() -> tree_sitter.Query:
    return tree_sitter.Query(_language(), _QUERY)

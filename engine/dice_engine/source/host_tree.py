"""Syntax trees of host code: the grammar's nodes copied once into plain objects.

Interpreting asks a node for its parts again and again, and crossing into the grammar's library each time is slow.
"""

from __future__ import annotations

import functools

import tree_sitter
import tree_sitter_cuda

_LANGUAGE = tree_sitter.Language(tree_sitter_cuda.language())


class Node:
    """One node without its comments. ``line`` is 1-based; ``has_error`` is that of the whole subtree."""

    __slots__ = (
        "_fields",
        "_source",
        "_span",
        "_text",
        "children",
        "has_error",
        "line",
        "named_children",
        "type",
    )

    def __init__(self, node: tree_sitter.Node, source: bytes, first_line: int) -> None:
        self.type = node.type
        self.line = node.start_point[0] + first_line
        self.has_error = node.has_error
        self.children: list[Node] = []
        self.named_children: list[Node] = []
        self._fields: dict[str, list[Node]] = {}
        self._source, self._span = source, (node.start_byte, node.end_byte)
        self._text: str | None = None
        for index, part in enumerate(node.children):
            if part.type == "comment":
                continue
            child = Node(part, source, first_line)
            self.children.append(child)
            if part.is_named:
                self.named_children.append(child)
            field = node.field_name_for_child(index)
            if field is not None:
                self._fields.setdefault(field, []).append(child)

    @property
    def text(self) -> str:
        if self._text is None:
            start, end = self._span
            self._text = self._source[start:end].decode(errors="replace")
        return self._text

    def field(self, name: str) -> Node | None:
        found = self._fields.get(name)
        return found[0] if found else None

    def fields(self, name: str) -> list[Node]:
        return self._fields.get(name, [])


def parse_tree(text: str, first_line: int = 1) -> Node:
    """Parse CUDA text that begins on ``first_line`` of its file. ``RecursionError`` for nesting beyond Python's."""
    source = text.encode(errors="replace")
    return Node(tree_sitter.Parser(_LANGUAGE).parse(source).root_node, source, first_line)


@functools.lru_cache(maxsize=1024)
def expression_tree(text: str) -> Node | None:
    """The tree of one expression; None when the grammar finds an error in it."""
    root = parse_tree(f"auto value = {text};")
    declarator = root.named_children[0].field("declarator") if root.named_children else None
    value = declarator.field("value") if declarator is not None else None
    return None if root.has_error else value

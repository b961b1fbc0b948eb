"""Notebooks: each code cell is a document, and what the other cells import and define is around it.

Of the other cells only imports, classes, functions and plain constants count: a check must not run somebody's training
loop.
"""

from __future__ import annotations

import ast
from urllib.parse import unquote

from lsprotocol import types

from dice_ls.documents import Document, Documents

_KEPT = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_PLAIN = (ast.Constant, ast.Tuple, ast.List, ast.Load, ast.UnaryOp, ast.unaryop, ast.BinOp, ast.operator)


class Notebooks:
    """The open notebooks: the order of their cells, whose texts are in ``Documents``."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._cells: dict[str, list[str]] = {}

    def open(self, params: types.DidOpenNotebookDocumentParams) -> None:
        notebook = params.notebook_document
        self._cells[unquote(notebook.uri)] = [cell.document for cell in notebook.cells]
        for item in params.cell_text_documents:
            self._open(item)

    def _open(self, item: types.TextDocumentItem) -> None:
        document = self._documents.open(item)
        if document.language == "python":
            document.around = lambda: self.around(document)

    def change(self, params: types.DidChangeNotebookDocumentParams) -> list[Document]:
        """Apply structure first, then texts; returns the documents whose text changed. Unknown cells are ignored."""
        cells = params.change.cells
        if cells is None:
            return []
        order = self._cells.setdefault(unquote(params.notebook_document.uri), [])
        if cells.structure is not None:
            array = cells.structure.array
            start = min(max(array.start, 0), len(order))
            order[start : start + max(array.delete_count, 0)] = [cell.document for cell in array.cells or ()]
            for item in cells.structure.did_open or ():
                self._open(item)
            for closed in cells.structure.did_close or ():
                self._documents.close(closed.uri)
        changed = []
        for content in cells.text_content or ():
            document = self._documents.get(content.document.uri)
            if document is not None:
                document.change(list(content.changes), content.document.version)
                changed.append(document)
        for uri in order:
            document = self._documents.get(uri)
            if document is not None and document not in changed:
                document.surroundings_changed()
        return changed

    def close(self, params: types.DidCloseNotebookDocumentParams) -> None:
        self._cells.pop(unquote(params.notebook_document.uri), None)
        for item in params.cell_text_documents:
            self._documents.close(item.uri)

    def cells(self, uri: str) -> list[str]:
        """The documents of a notebook, in order."""
        return self._cells.get(unquote(uri), [])

    def around(self, document: Document) -> tuple[str, str]:
        """What the cells before and after a Python cell define."""
        order = next((cells for cells in self._cells.values() if document.uri in cells), [document.uri])
        at = order.index(document.uri)
        before, after = (
            "".join(_definitions(self._documents.get(uri)) for uri in part)
            for part in (order[:at], order[at + 1 :])
        )
        return before, ("\n" + after if after else "")


def _definitions(document: Document | None) -> str:
    """The statements of a cell that another cell may build on; magics are no Python and are left out."""
    if document is None or document.language != "python":
        return ""
    lines = ["" if line.lstrip().startswith(("%", "!")) else line for line in document.text.splitlines()]
    try:
        statements = ast.parse("\n".join(lines)).body
    except (SyntaxError, ValueError):
        return ""
    kept = []
    for statement in statements:
        if isinstance(statement, _KEPT) or (isinstance(statement, ast.Assign) and _constant(statement.value)):
            first = min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", []))])
            kept.append("\n".join(lines[first - 1 : statement.end_lineno]))
    return "".join(f"{one}\n" for one in kept)


def _constant(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        return getattr(value.func, "attr", getattr(value.func, "id", "")) == "load_inline"
    return all(isinstance(node, _PLAIN) for node in ast.walk(value))

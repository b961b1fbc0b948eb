"""Documents: holes always belong to the present text, however edits and requests interleave."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from lsprotocol import types

from dice_ls import documents
from dice_ls.documents import Document, Documents

KERNEL = "__global__ void {name}(float* x) {{\n  x[0] = 1;\n}}\n"


def whole(text: str) -> list[types.TextDocumentContentChangeEvent]:
    return [types.TextDocumentContentChangeWholeDocument(text)]


async def names(document: Document) -> list[str]:
    return [hole.name for _, hole in await document.holes()]


@pytest.mark.asyncio
async def test_an_edit_while_holes_are_searched_gives_the_holes_of_the_new_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, going, go = documents._find, threading.Event(), threading.Event()

    def slow(*arguments: Any):
        going.set()
        assert go.wait(10)
        return real(*arguments)

    monkeypatch.setattr(documents, "_find", slow)
    document = Document("file:///a.cu", KERNEL.format(name="old"), 1, "cuda", "utf-16")
    before = asyncio.ensure_future(names(document))
    await asyncio.to_thread(going.wait, 10)
    document.change(whole(KERNEL.format(name="new")), 2)
    during = asyncio.ensure_future(names(document))
    await asyncio.sleep(0)
    go.set()
    assert await before == ["new"] and await during == ["new"]
    assert await names(document) == ["new"]


@pytest.mark.asyncio
async def test_untitled_buffers_are_read_by_their_language() -> None:
    text = KERNEL.format(name="k")
    assert await names(Document("untitled:Untitled-1", text, 1, "cuda-cpp", "utf-16")) == ["k"]
    assert await names(Document("untitled:Untitled-1", text, 1, "rust", "utf-16")) == []


def test_one_document_under_every_spelling_of_its_uri() -> None:
    opened = Documents()
    document = opened.open(types.TextDocumentItem("file:///c%3A/a%20b.cu", "cuda", 1, ""))
    assert opened.get("file:///c:/a b.cu") is document
    opened.close("file:///c:/a%20b.cu")
    assert opened.get("file:///c%3A/a%20b.cu") is None

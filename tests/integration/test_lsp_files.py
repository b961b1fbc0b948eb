"""Documents of every kind: buffers without a file, odd URIs, byte order marks, notebooks, renamed and deleted files."""

from __future__ import annotations

import time
from typing import Any

import pytest
from conftest import Workplace
from lsp_client import Client
from test_lsp import CURSOR, FAST, SAXPY, VERDICTS, rewrites, searched

pytestmark = pytest.mark.asyncio


def opened(client: Client, uri: str, text: str, language: str) -> str:
    client.texts[uri], client.versions[uri] = text, 1
    item = {"uri": uri, "languageId": language, "version": 1, "text": text}
    client.notify("textDocument/didOpen", {"textDocument": item})
    return uri


async def found(client: Client, uri: str, cursor: int = CURSOR) -> None:
    """Ask for a faster version at the cursor and wait for the end of the search."""
    before = len(client.messages())
    await client.command((await client.actions(uri, cursor))[0]["command"])
    await client.wait(lambda: len(client.messages()) > before)
    assert "verified" in client.messages()[-1]


@pytest.mark.parametrize(
    ("uri", "language"),
    [
        ("untitled:Untitled-1", "cuda"),
        ("untitled:Untitled-2", "cuda-cpp"),
        ("file:///c%3A/Users/%E5%BE%88/a%20b.cu", "cuda"),
        ("file:///C:/work/a.cu", "cuda"),
        ("vscode-vfs://github/owner/a.cu", "cuda"),
        ("zed://elsewhere/a.cuh", "cuda"),
    ],
)
async def test_documents_with_odd_uris_work_like_files(workplace: Workplace, uri: str, language: str) -> None:
    await workplace.start_engine(cores=[FAST], verdicts=VERDICTS)
    client = await workplace.client()
    opened(client, uri, SAXPY, language)
    await found(client, uri)
    (action,) = rewrites(await client.actions(uri, CURSOR))
    assert action["edit"]["documentChanges"][0]["textDocument"]["uri"] == uri, "as the client wrote it"
    client.apply(uri, action["edit"])
    assert FAST in client.texts[uri]


async def test_one_file_may_be_spelled_in_two_ways(workplace: Workplace) -> None:
    client = await workplace.client()
    opened(client, "file:///c%3A/a.cu", SAXPY, "cuda")
    assert await client.lenses("file:///c:/a.cu") == ["DICE: find faster"]


async def test_a_byte_order_mark_stays_and_moves_nothing(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[FAST], verdicts=VERDICTS)
    client = await workplace.client()
    text = "\ufeff" + SAXPY
    uri = client.open(workplace.workspace / "a.cu", text, "cuda")
    await found(client, uri, text.index("dst[k] ="))
    (action,) = rewrites(await client.actions(uri, text.index("dst[k] =")))
    client.apply(uri, action["edit"])
    start, end = text.index("{") + 1, text.index("}\n}") + 2
    assert client.texts[uri] == text[:start] + FAST + text[end:]


async def test_results_go_with_a_renamed_file_and_folder(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[FAST], verdicts=VERDICTS)
    client = await workplace.client()
    uri = await searched(workplace, client)
    new = (workplace.workspace / "moved.cu").as_uri()
    client.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
    client.notify("workspace/didRenameFiles", {"files": [{"oldUri": uri, "newUri": new}]})
    opened(client, new, SAXPY, "cuda")
    assert await client.lenses(new) == ["DICE: 2.31x verified"]
    folder = workplace.workspace.as_uri()
    client.notify("workspace/didRenameFiles", {"files": [{"oldUri": folder, "newUri": folder + "2"}]})
    newest = opened(client, folder + "2/moved.cu", SAXPY, "cuda")
    assert await client.lenses(newest) == ["DICE: 2.31x verified"]
    client.notify("workspace/didDeleteFiles", {"files": [{"uri": folder + "2"}]})
    assert await client.lenses(newest) == ["DICE: find faster"]


async def test_a_closed_folder_ends_its_searches(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[FAST], verdicts=VERDICTS)
    workplace.hold()
    client = await workplace.client()
    other = workplace.workspace.parent / "other"
    other.mkdir()
    folders = [{"uri": other.as_uri(), "name": "other"}]
    client.notify("workspace/didChangeWorkspaceFolders", {"event": {"added": folders, "removed": []}})
    uri = client.open(other / "a.cu", SAXPY, "cuda")
    await client.command((await client.actions(uri, CURSOR))[0]["command"])
    await workplace.until_requested("generate")
    client.notify("workspace/didChangeWorkspaceFolders", {"event": {"added": [], "removed": folders}})
    await workplace.until_requested("cancel")


async def test_a_file_of_20000_lines(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[FAST], verdicts=VERDICTS)
    client = await workplace.client()
    filler = "".join(f"static const int value_{i} = {i};  // 很好 😀\n" for i in range(20_000))
    text = filler + SAXPY
    uri = client.open(workplace.workspace / "a.cu", text, "cuda")
    await found(client, uri, len(filler) + CURSOR)
    at = client.position(uri, len(filler) + CURSOR)
    change = {"range": {"start": at, "end": at}, "text": "/**/"}
    started = time.monotonic()
    client.notify(
        "textDocument/didChange", {"textDocument": {"uri": uri, "version": 2}, "contentChanges": [change]}
    )
    assert await client.lenses(uri) == ["DICE: find faster (the code changed since the last search)"]
    assert time.monotonic() - started < 3


CELLS = [
    "import torch\nfrom torch import nn\nSCALE = 2.0\nprint(torch.zeros(3))\n",
    "class Gate(nn.Module):\n    def forward(self, x):\n        return torch.sigmoid(x) * SCALE\n",
    "%matplotlib inline\ndef get_inputs():\n    return [torch.randn(64, 8)]\nwhile True: train()\n",
]


def cell(index: int, notebook: str = "file:///book.ipynb") -> str:
    return f"vscode-notebook-cell:/book.ipynb#W{index}sZmlsZQ%3D%3D"


async def notebook(client: Client) -> None:
    items = [
        {"uri": cell(i), "languageId": "python", "version": 1, "text": text} for i, text in enumerate(CELLS)
    ]
    client.texts |= {cell(i): text for i, text in enumerate(CELLS)}
    client.versions |= {cell(i): 1 for i in range(len(CELLS))}
    book = {
        "uri": "file:///book.ipynb",
        "notebookType": "jupyter-notebook",
        "version": 1,
        "cells": [{"kind": 2, "document": cell(i)} for i in range(len(CELLS))],
    }
    client.notify("notebookDocument/didOpen", {"notebookDocument": book, "cellTextDocuments": items})


async def changed(client: Client, cells: dict[str, Any]) -> None:
    params = {"notebookDocument": {"uri": "file:///book.ipynb", "version": 2}, "change": {"cells": cells}}
    client.notify("notebookDocument/didChange", params)


async def test_the_cells_of_a_notebook_are_one_program(workplace: Workplace) -> None:
    core = "\n\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return fast(x)\n"
    await workplace.start_engine(cores=[core], verdicts={core: VERDICTS[FAST]})
    client = await workplace.client()
    await notebook(client)
    assert await client.lenses(cell(0)) == []
    assert await client.lenses(cell(1)) == ["DICE: find faster"]
    cursor = CELLS[1].index("sigmoid")
    await found(client, cell(1), cursor)
    request = next(one for one in workplace.requests() if one["type"] == "verify")
    assert "import torch" in request["candidate"] and "SCALE = 2.0" in request["candidate"]
    assert "def get_inputs" in request["candidate"]
    assert "train()" not in request["candidate"] and "print(" not in request["candidate"]
    action = rewrites(await client.actions(cell(1), cursor))[0]
    client.apply(cell(1), action["edit"])
    assert client.texts[cell(1)].rstrip().endswith("return fast(x)")


async def test_cells_change_come_and_go(workplace: Workplace) -> None:
    client = await workplace.client()
    await notebook(client)
    assert await client.lenses(cell(1)) == ["DICE: find faster"]
    start, end = {"line": 1, "character": 4}, {"line": 1, "character": 14}
    text = {
        "document": {"uri": cell(2), "version": 2},
        "changes": [{"range": {"start": start, "end": end}, "text": "inputs"}],
    }
    await changed(client, {"textContent": [text]})
    assert await client.lenses(cell(1)) == [], "nothing makes its inputs any more"
    added = {
        "uri": cell(3),
        "languageId": "python",
        "version": 1,
        "text": "def get_inputs():\n    return []\n",
    }
    array = {"start": 3, "deleteCount": 0, "cells": [{"kind": 2, "document": cell(3)}]}
    await changed(client, {"structure": {"array": array, "didOpen": [added]}})
    assert await client.lenses(cell(1)) == ["DICE: find faster"]
    gone = {"array": {"start": 3, "deleteCount": 1}, "didClose": [{"uri": cell(3)}]}
    await changed(client, {"structure": gone})
    assert await client.lenses(cell(1)) == []
    assert await client.lenses(cell(3)) == []
    for wrong in (
        {"structure": {"array": {"start": 99, "deleteCount": 99}}},
        {"textContent": [{**text, "document": {"uri": "x:y", "version": 1}}]},
    ):
        await changed(client, wrong)
    cells = [{"uri": cell(i)} for i in range(3)]
    client.notify(
        "notebookDocument/didClose",
        {"notebookDocument": {"uri": "file:///book.ipynb"}, "cellTextDocuments": cells},
    )
    assert await client.lenses(cell(1)) == []

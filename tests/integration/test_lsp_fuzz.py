"""Random edits, requests and cancels against a model of the document; random messages that are no requests.

``DICE_FUZZ_STEPS=10000 pytest tests/integration/test_lsp_fuzz.py`` runs longer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from conftest import Workplace
from dice_engine.source.holes import find_holes
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from lsp_client import Client, LspError
from test_lsp import FAST, SAXPY, VERIFIED

from dice_ls.suggestions.store import identify

STEPS = int(os.environ.get("DICE_FUZZ_STEPS", "400"))
PIECES = ["x", "y = 1;", "{", "}", "{ }", "(", ")", ";", "\n", "\r\n", "\t", "//", "/*", "*/", '"', "'", "\\"]
PIECES += ["#if 1\n", "#endif\n", "😀", "很好", "\u2028", "\x0c", "@dice grid=1", "  "]
PIECES += ["__global__ void n(float* x) { x[0] = 1; }\n"]
KEYS = ["textDocument", "uri", "position", "line", "character", "range", "start", "end", "context", "command"]
KEYS += ["arguments", "settings", "dice", "files", "contentChanges", "text", "version", "event", "cells"]


class Model:
    """What the document must be, kept by other code than the server's."""

    def __init__(self, client: Client, uri: str, draw: random.Random) -> None:
        self.client, self.uri, self.draw = client, uri, draw
        self.undo: list[str] = []

    @property
    def text(self) -> str:
        return self.client.texts[self.uri]

    def replace(self, start: int, end: int, put: str) -> None:
        self.undo.append(self.text)
        new = self.text[:start] + put + self.text[end:]
        low, high = self.client.position(self.uri, start), self.client.position(self.uri, end)
        self.client.texts[self.uri] = new
        self.send([{"range": {"start": low, "end": high}, "text": put}])

    def send(self, changes: list[dict[str, Any]]) -> None:
        self.client.versions[self.uri] += 1
        document = {"uri": self.uri, "version": self.client.versions[self.uri]}
        self.client.notify("textDocument/didChange", {"textDocument": document, "contentChanges": changes})

    def edit(self) -> None:
        size = len(self.text)
        start = self.draw.randrange(size + 1)
        # Not between the two characters of one line end: no editor puts a cursor there.
        start += self.text[start - 1 : start + 1] == "\r\n"
        end = min(size, start + self.draw.choice([0, 0, 0, 1, 2, 7]))
        end += self.text[end - 1 : end + 1] == "\r\n"
        self.replace(start, end, self.draw.choice(PIECES))

    def back(self) -> None:
        if self.undo:
            self.client.texts[self.uri] = self.undo.pop()
            self.send([{"text": self.text}])

    async def check(self) -> None:
        """The server's holes are those of the model's text: identities hold the digest of their code."""
        lenses = await self.client.request("textDocument/codeLens", {"textDocument": {"uri": self.uri}}) or []
        known = [hole_id for hole_id, hole in identify(find_holes(self.text, "a.cu")) if hole.editable]
        assert [lens["command"]["arguments"][0]["hole"] for lens in lenses] == [str(one) for one in known]
        for hole in find_holes(self.text, "a.cu"):
            assert hole.prefix + hole.core + hole.suffix == self.text

    async def act(self) -> None:
        """Ask at a random place; apply what is offered, and look at every byte."""
        at = self.draw.randrange(len(self.text) + 1)
        actions = await self.client.actions(self.uri, at)
        offers = [action for action in actions if "edit" in action]
        if offers:
            holes = find_holes(self.text, "a.cu")
            before = self.text
            self.undo.append(before)
            self.client.apply(self.uri, offers[0]["edit"])
            written = [h.prefix + FAST.replace("\n", h.newline) + h.suffix for h in holes if h.editable]
            assert self.text in written
        elif actions and self.draw.random() < 0.5 and "command" in actions[0]:
            with contextlib.suppress(LspError):  # one clear line, for code that is half typed
                await self.client.command(actions[0]["command"])

    async def cancelled(self) -> None:
        """A request taken back at once, or a hover whose answer is waited for."""
        at = self.client.position(self.uri, self.draw.randrange(len(self.text) + 1))
        method = self.draw.choice(["textDocument/hover", "textDocument/inlineCompletion"])
        params = {"textDocument": {"uri": self.uri}, "position": at, "context": {"triggerKind": 2}}
        waiting = asyncio.ensure_future(self.client.request(method, params))
        await asyncio.sleep(0)
        if self.draw.random() < 0.7:
            self.client.notify("$/cancelRequest", {"id": self.client.last_id})
        try:
            await waiting
        except LspError as error:
            assert error.code == -32800


@pytest.mark.asyncio
@pytest.mark.parametrize(("seed", "encoding"), [(0, "utf-16"), (1, "utf-8")])
async def test_random_edits_requests_and_cancels(workplace: Workplace, seed: int, encoding: str) -> None:
    await workplace.start_engine(cores=[FAST], verdicts={"fmaf(alpha": VERIFIED})
    client = await workplace.client(encoding=encoding, options={"trusted": True, "ghostTextDelayMs": 0})
    client.answers["workspace/applyEdit"] = lambda _: {"applied": False}
    draw = random.Random(seed)
    for turn in range(max(1, STEPS // 200)):
        uri = client.open(workplace.workspace / f"a{turn}.cu", SAXPY + SAXPY.replace("axpb", "other"), "cuda")
        model = Model(client, uri, draw)
        for step in range(min(STEPS, 200) // 2):
            kind = draw.random()
            if kind < 0.55:
                model.edit()
            elif kind < 0.7:
                model.back()
            elif kind < 0.85:
                await model.act()
            else:
                await model.cancelled()
            if step % 5 == 4:
                await model.check()
        while model.undo:
            model.back()
        await model.check()
        assert model.text == SAXPY + SAXPY.replace("axpb", "other")
        client.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
    assert await client.stop() == 0


METHODS = (
    *("initialize", "shutdown_", "textDocument/didOpen", "textDocument/didChange", "textDocument/didClose"),
    *("textDocument/didSave", "textDocument/codeAction", "codeAction/resolve", "textDocument/codeLens"),
    *(
        "textDocument/hover",
        "textDocument/inlineCompletion",
        "textDocument/inlayHint",
        "workspace/executeCommand",
    ),
    *("workspace/didChangeConfiguration", "workspace/didRenameFiles", "workspace/didChangeWorkspaceFolders"),
    *(
        "notebookDocument/didOpen",
        "notebookDocument/didChange",
        "window/workDoneProgress/cancel",
        "$/cancelRequest",
    ),
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from(["", "file:///a.cu", "dice.cancel", "\ud83d"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
MESSAGE = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.sampled_from(["2.0", "1.0", 2]),
        "id": st.integers(0, 3) | st.text(max_size=3) | st.none() | st.booleans() | st.just([]),
        "method": st.sampled_from(METHODS) | JSON,
        "params": JSON,
        "result": JSON,
        "error": JSON,
    },
)


@settings(deadline=None, max_examples=6, phases=[Phase.explicit, Phase.generate])
@given(
    st.lists(
        MESSAGE.map(lambda one: json.dumps(one).encode()) | st.binary(max_size=30), min_size=10, max_size=60
    )
)
def test_random_messages_leave_the_server_alive(messages: list[bytes]) -> None:
    asyncio.run(_survives(messages))


async def _survives(messages: list[bytes]) -> None:
    client = await Client.start()
    try:
        for message in messages:
            client.send(message)
        client.skip_ids(1000)  # answers to what was sent above are not answers to this
        status = await client.command({"command": "dice.status"})
        assert status["state"] in ("idle", "paused")
        shown = [str(params) for _, params in client.notifications]
        assert not [one for one in shown if "Traceback" in one]
        assert await client.stop() == 0
    finally:
        await client.kill()


@pytest.mark.asyncio
async def test_versions_that_go_backwards_lose_no_edit(workplace: Workplace) -> None:
    client = await workplace.client()
    uri = client.open(Path(workplace.workspace / "a.cu"), SAXPY, "cuda")
    model = Model(client, uri, random.Random(3))
    for version in (9, 3, 3, -1, 0):
        client.versions[uri] = version
        model.replace(SAXPY.index("dst[k]"), SAXPY.index("dst[k]"), " ")
    await model.check()

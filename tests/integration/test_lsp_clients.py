"""Clients that answer badly, and URIs that nobody can read: each costs one thing, never the session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import Workplace
from lsp_client import CAPABILITIES, LspError

pytestmark = pytest.mark.asyncio

KERNEL = """__global__ void k(float* x, int n) {
  int i = threadIdx.x;
  if (i < n) x[i] = 1;
}
void run(float* x, int n) { k<<<1, 256>>>(x, n); }
"""
AT = {"line": 1, "character": 3}
ASKED = {
    "configuration": True,
    "didChangeConfiguration": {"dynamicRegistration": True},
    "didChangeWatchedFiles": {"dynamicRegistration": True},
}
CHATTY: dict[str, Any] = {
    **CAPABILITIES,
    "window": {**CAPABILITIES["window"], "showDocument": {"support": True}},
    "workspace": {**CAPABILITIES["workspace"], **ASKED},
}


def refuse(_: Any) -> Any:
    raise LspError({"code": -32601, "message": "no such method here"})


def garbage(_: Any) -> Any:
    return ["garbage"]


@pytest.mark.parametrize("answer", [refuse, garbage])
async def test_a_client_that_can_answer_nothing(workplace: Workplace, tmp_path: Path, answer: Any) -> None:
    log = tmp_path / "log"
    methods = (
        *("workspace/configuration", "client/registerCapability", "window/showMessageRequest"),
        *("workspace/applyEdit", "window/showDocument", "window/workDoneProgress/create"),
    )
    client = await workplace.client(
        capabilities=CHATTY, options={}, answers=dict.fromkeys(methods, answer), log=log
    )
    uri = client.open(workplace.workspace / "a.cu", KERNEL, "cuda")
    where = {"uri": uri, "position": AT}
    await client.command({"command": "dice.findFaster", "arguments": [where]})
    await client.wait(lambda: any("dice.trustWorkspace" in said for said in client.messages()), timeout=20)
    assert (await client.command({"command": "dice.status"}))["waiting_for"] == ""
    await client.command({"command": "dice.showEvidence", "arguments": [{**where, "show": True}]})
    assert any("`k`" in said or "k:" in said for said in client.messages())
    unplanned = client.open(workplace.workspace / "b.cu", KERNEL.partition("void run")[0], "cuda")
    with pytest.raises(LspError) as error:
        await client.command({"command": "dice.insertAnnotation", "arguments": [{**where, "uri": unplanned}]})
    assert "\n" not in str(error.value)
    # The project's files are followed all the same.
    (workplace.workspace / "dice.toml").write_text("[k]\nnonsense = 1\n")
    await client.wait(lambda: any("dice.toml" in said for said in client.messages()), timeout=20)
    await client.stop()
    assert "Traceback" not in log.read_text()


async def test_an_answer_without_a_result_is_an_answer(workplace: Workplace) -> None:
    client = await workplace.client(options={})
    answered = client.send
    client.send = lambda message: answered(  # type: ignore[method-assign]
        {"id": message["id"]} if isinstance(message, dict) and "result" in message else message
    )
    uri = client.open(workplace.workspace / "b.cu", KERNEL.partition("void run")[0], "cuda")
    with pytest.raises(LspError, match="answer cannot be read"):
        await client.command(
            {"command": "dice.insertAnnotation", "arguments": [{"uri": uri, "position": AT}]}
        )


async def test_uris_that_cannot_be_read_are_buffers_without_a_file(
    workplace: Workplace, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    client = await workplace.client(log=log)
    at = {"start": AT, "end": AT}
    for uri in (
        "file://[bad.cu",
        "\0",
        "file:///a%00b.cu",
        "a" * 5000 + ".cu",
        "file:///" + "d/" * 3000 + "a.cu",
    ):
        item = {"uri": uri, "languageId": "cuda", "version": 1, "text": KERNEL}
        client.notify("textDocument/didOpen", {"textDocument": item})
        assert await client.lenses(uri) == ["DICE: find faster"]
        asked = {"textDocument": {"uri": uri}, "range": at, "context": {"diagnostics": []}}
        assert await client.request("textDocument/codeAction", asked)
        client.notify("textDocument/didSave", {"textDocument": {"uri": uri}})
        with pytest.raises(LspError, match="there is no other version of it"):
            await client.command({"command": "dice.checkKernel", "arguments": [{"uri": uri, "position": AT}]})
    await client.stop()
    assert "Traceback" not in log.read_text()


async def test_folders_that_cannot_be_read_are_left_out(workplace: Workplace) -> None:
    client = await workplace.client(initialize=False)
    bad = {"uri": "file://[bad", "name": "bad"}
    good = {"uri": workplace.workspace.as_uri(), "name": "good"}
    params = {"processId": None, "rootUri": bad["uri"], "workspaceFolders": [bad], "capabilities": {}}
    await client.request("initialize", params, timeout=20)
    client.notify("initialized", {})
    event = {"added": [bad, good], "removed": [bad]}
    client.notify("workspace/didChangeWorkspaceFolders", {"event": event})
    told = await client.command({"command": "dice.trustWorkspace"})
    assert told["roots"] == [str(workplace.workspace)]

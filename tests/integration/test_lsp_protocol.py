"""Bad input: an answer or an error each time, and the server goes on."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from conftest import Workplace
from lsp_client import Client, LspError

pytestmark = pytest.mark.asyncio

KERNEL = "__global__ void k(float* x) {\n  x[0] = 1;\n}\n"


async def alive(client: Client) -> None:
    status = await client.command({"command": "dice.status"})
    assert status["state"] == "idle"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("textDocument/codeAction", {"textDocument": 5}),
        ("textDocument/codeAction", {"range": "everything"}),
        ("textDocument/codeLens", []),
        ("textDocument/codeLens", "x"),
        ("workspace/executeCommand", {"command": "dice.nothing"}),
        ("workspace/executeCommand", {"command": "dice.findFaster"}),
        ("workspace/executeCommand", {"command": "dice.findFaster", "arguments": [7]}),
        ("workspace/executeCommand", {"command": "dice.findFaster", "arguments": [{"uri": "file:///none"}]}),
        ("workspace/executeCommand", {"command": "dice.applySuggestion", "arguments": [{}, {}]}),
        ("workspace/executeCommand", {"command": "dice.trustWorkspace", "arguments": [{"uri": 3}]}),
        (
            "workspace/executeCommand",
            {"command": "dice.trustWorkspace", "arguments": [{"uri": "file:///%00"}]},
        ),
        (
            "workspace/executeCommand",
            {"command": "dice.selectCheckpoint", "arguments": [{"path": "/" + "a" * 5000}]},
        ),
        ("workspace/executeCommand", {"command": "dice.selectCheckpoint", "arguments": [{"path": "/\0"}]}),
        ("textDocument/unknown", {}),
    ],
)
async def test_bad_requests_get_one_clear_error(workplace: Workplace, method: str, params: object) -> None:
    client = await workplace.client()
    with pytest.raises(LspError) as error:
        await client.request(method, params, timeout=10)
    assert "\n" not in str(error.value) and "Traceback" not in str(error.value)
    assert error.value.code in (-32601, -32602)
    await alive(client)


async def test_positions_of_commands_that_are_none(workplace: Workplace) -> None:
    client = await workplace.client()
    uri = client.open(workplace.workspace / "k.cu", KERNEL, "cuda")
    for number in (-1, 2**31, 2**80, True, 1.5, "1", None):
        at = {"line": 1, "character": number}
        where = {"uri": uri, "position": at, "range": {"start": at, "end": at}}
        for command in ("dice.findFaster", "dice.rewriteSelection", "dice.showEvidence", "dice.cancel"):
            with pytest.raises(LspError, match="expected") as error:
                await client.command({"command": command, "arguments": [where]})
            assert error.value.code == -32602


async def test_unknown_documents_and_positions_outside_the_text(workplace: Workplace) -> None:
    client = await workplace.client()
    assert await client.lenses("file:///nowhere.cu") == []
    uri = client.open(workplace.workspace / "k.cu", KERNEL, "cuda")
    far = {"line": 10_000, "character": 10_000}
    params = {
        "textDocument": {"uri": uri},
        "range": {"start": far, "end": far},
        "context": {"diagnostics": []},
    }
    await client.request("textDocument/codeAction", params)
    edits = [{"range": {"start": far, "end": far}, "text": "// end\n"}]
    client.notify(
        "textDocument/didChange",
        {"textDocument": {"uri": uri, "version": -3}, "contentChanges": edits},
    )
    client.notify(
        "textDocument/didChange",
        {"textDocument": {"uri": "file:///nowhere.cu", "version": 1}, "contentChanges": edits},
    )
    client.notify("textDocument/didClose", {"textDocument": {"uri": "file:///nowhere.cu"}})
    client.notify("window/workDoneProgress/cancel", {"token": "unknown"})
    client.notify("$/cancelRequest", {"id": 999})
    client.notify("textDocument/didChange", {"textDocument": 1})
    client.notify("someone/else", {"a": 1})
    await alive(client)


async def test_bodies_that_are_no_messages_are_answered(workplace: Workplace, tmp_path: Path) -> None:
    log = tmp_path / "log"
    client = await workplace.client(log=log)
    deep, long = b"[" * 100_000, b'{"jsonrpc": "2.0", "id": %s}' % (b"9" * 5000)
    bodies = {
        -32700: (b"{", b"\xff\xfe", deep, b'{"a":' * 100_000, long),
        -32600: (
            *(b"[]", b"3", b'"x"', b"null", b"{}", b'{"id": 4}', b'{"jsonrpc": "2.0"}'),
            b'[{"jsonrpc": "2.0", "id": 77, "method": "shutdown"}]',
            *(
                b'{"jsonrpc": "2.0", "id": %s, "method": "shutdown"}' % one
                for one in (b"{}", b"[1]", b"null")
            ),
            *(b'{"jsonrpc": "2.0", "id": 4, "method": %s}' % one for one in (b"5", b"null", b"{}")),
        ),
    }
    for code, wrong in bodies.items():
        for body in wrong:
            client.notifications.clear()
            client.send(body)
            (_, answer), *_ = await client.wait(lambda: client.notifications, timeout=10)
            assert answer["id"] is None and answer["error"]["code"] == code, body[:80]
            assert "data" not in answer["error"] and "\n" not in answer["error"]["message"]
    await alive(client)
    assert "Traceback" not in log.read_text()


async def test_wrong_params_are_named_as_they_are_sent(workplace: Workplace, tmp_path: Path) -> None:
    log = tmp_path / "log"
    client = await workplace.client(log=log)
    at = {"line": -1, "character": 0}
    for params, reason in (
        (5, "@ params"),
        ({}, "required field missing @ params.textDocument"),
        ({"textDocument": {"uri": "file:///a.cu"}, "position": at}, "Position.line should be in range"),
        ({"textDocument": {"uri": "file:///a.cu"}, "position": {"line": 1}}, "params.position.character"),
    ):
        with pytest.raises(LspError, match=reason) as error:
            await client.request("textDocument/hover", params, timeout=10)
        assert error.value.code == -32602
    client.notify("textDocument/didChange", 5)
    client.notify("$/cancelRequest", {"id": [1]})
    await alive(client)
    assert "Traceback" not in log.read_text()


async def test_a_request_is_no_notification_and_the_other_way_round(workplace: Workplace) -> None:
    client = await workplace.client()
    item = {"uri": "file:///a.cu", "languageId": "cuda", "version": 1, "text": KERNEL}
    for method, params in (("textDocument/didOpen", {"textDocument": item}), ("exit", None)):
        with pytest.raises(LspError, match="is a notification"):
            await client.request(method, params, timeout=10)
    client.notify("shutdown", None)
    await alive(client)


async def test_objects_inside_params_are_no_messages(workplace: Workplace) -> None:
    client = await workplace.client()
    inner = {"jsonrpc": "2.0", "id": 900, "method": "shutdown"}
    with pytest.raises(LspError, match="expected one object"):
        await client.command({"command": "dice.status", "arguments": [[inner]]})
    client.notify("workspace/didChangeConfiguration", {"settings": {"dice": {"candidates": inner}}})
    await client.wait(lambda: client.messages())
    await alive(client)
    assert not [params for name, params in client.notifications if name == "response without a request"]


@pytest.mark.parametrize(
    "header", [b"content-length: 1\r\n\r\n", b"Content-Length: 1\n\n", b"X: y\r\nContent-Length:1\r\n\r\n"]
)
async def test_headers_of_every_spelling(workplace: Workplace, header: bytes) -> None:
    client = await workplace.client()
    assert client.process.stdin is not None
    client.process.stdin.write(header + b"5")
    await alive(client)


async def test_a_length_beyond_all_measure_ends_the_session(workplace: Workplace, tmp_path: Path) -> None:
    log = tmp_path / "log"
    client = await workplace.client(log=log)
    assert client.process.stdin is not None
    client.process.stdin.write(b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n")
    await asyncio.wait_for(client.process.wait(), 10)
    assert "more than a gigabyte" in log.read_text() and "Traceback" not in log.read_text()


async def test_requests_before_initialize_and_after_shutdown(workplace: Workplace) -> None:
    client = await workplace.client(initialize=False)
    with pytest.raises(LspError) as error:
        await client.request("textDocument/codeLens", {"textDocument": {"uri": "file:///a.cu"}}, timeout=10)
    assert error.value.code == -32002
    capabilities: dict[str, object] = {}
    params = {"processId": None, "rootUri": None, "capabilities": capabilities}
    await client.request("initialize", params)
    with pytest.raises(LspError, match="twice"):
        await client.request("initialize", params, timeout=10)
    await client.request("shutdown", None)
    with pytest.raises(LspError) as error:
        await client.request("textDocument/codeLens", {"textDocument": {"uri": "file:///a.cu"}}, timeout=10)
    assert error.value.code == -32600
    client.notify("exit", None)
    assert await asyncio.wait_for(client.process.wait(), 10) == 0


async def test_a_client_that_dies_ends_the_server(workplace: Workplace) -> None:
    client = await workplace.client()
    assert client.process.stdin is not None
    client.process.stdin.close()
    await asyncio.wait_for(client.process.wait(), 10)


async def test_leaving_without_shutdown_is_an_error(workplace: Workplace) -> None:
    client = await workplace.client()
    client.notify("exit", None)
    assert await asyncio.wait_for(client.process.wait(), 10) == 1


async def test_unknown_and_wrong_settings_are_named(workplace: Workplace) -> None:
    options = {"trusted": True, "candidates": "many", "chekpoint": "/x"}
    client = await workplace.client(options=options)
    await client.wait(lambda: len(client.messages()) == 2)
    assert "'candidates' must be a number from 1 to 64" in client.messages()[0]
    assert "unknown setting 'chekpoint'" in client.messages()[1]
    await alive(client)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_prints_do_not_reach_the_protocol(workplace: Workplace) -> None:
    """Whatever writes to descriptor 1 in the server's process must not end the session."""
    client = await Client.start(workplace.environment, initialize=False)
    workplace.clients.append(client)
    await client.request("initialize", {"processId": None, "rootUri": None, "capabilities": {}})
    client.notify("initialized", {})
    links = Path(f"/proc/{client.process.pid}/fd")
    assert (links / "1").readlink() == (links / "2").readlink()
    assert (links / "0").readlink() == Path("/dev/null")
    await alive(client)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
async def test_answers_are_not_kept(workplace: Workplace) -> None:
    client = await workplace.client()
    text = "__global__ void k(const float* x, float* y, int n) { y[0] = x[n]; }\n" * 3
    uri = client.open(workplace.workspace / "a.cu", text, "cuda")
    at = [{"uri": uri, "position": {"line": 0, "character": 60}}]
    place = {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 0}}

    async def work(times: int) -> None:
        for _ in range(times):
            client.change(uri, [{"range": place, "newText": " "}])
            client.change(uri, [{"range": {**place, "end": {"line": 0, "character": 1}}, "newText": ""}])
            await client.command({"command": "dice.showEvidence", "arguments": at})

    await work(200)
    before = resident_kb(client.process.pid)
    await work(400)
    assert resident_kb(client.process.pid) - before < 1000


def resident_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))

"""A language client for tests: raw JSON-RPC to the real ``dice-ls`` process, with a document model of its own.

The document is kept as a list of code units of the agreed encoding, so an edit is applied exactly as an editor
would apply it, by other code than the server's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

CAPABILITIES: dict[str, Any] = {
    "general": {"positionEncodings": ["utf-16"]},
    "window": {"workDoneProgress": True},
    "workspace": {
        "applyEdit": True,
        "codeLens": {"refreshSupport": True},
        "workspaceEdit": {"documentChanges": True, "changeAnnotationSupport": {"groupsOnLabel": False}},
    },
    "textDocument": {
        "codeAction": {
            "codeActionLiteralSupport": {"codeActionKind": {"valueSet": ["refactor.rewrite", "quickfix"]}},
            "disabledSupport": True,
            "tagSupport": {"valueSet": [1]},
            "isPreferredSupport": True,
        }
    },
}


class LspError(Exception):
    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.code = error["code"]


def encoded(text: str, encoding: str) -> list[str]:
    """The characters of ``text`` spread over its code units: a character's further units are empty strings."""
    result = []
    for char in text:
        size = {"utf-8": len(char.encode()), "utf-16": 1 + (char > "\uffff"), "utf-32": 1}[encoding]
        result += [char] + [""] * (size - 1)
    return result


def apply_edit(text: str, edit: dict[str, Any], encoding: str) -> str:
    """``text`` after one LSP text edit."""
    offsets = []
    for point in (edit["range"]["start"], edit["range"]["end"]):
        before = 0
        rest = text
        for _ in range(point["line"]):
            cut = rest.index("\n") + 1
            before += cut
            rest = rest[cut:]
        line = rest.split("\n")[0]
        before += len("".join(encoded(line, encoding)[: point["character"]]))
        offsets.append(before)
    return text[: offsets[0]] + edit["newText"] + text[offsets[1] :]


class Client:
    """One session with a server process. Requests of the server are answered by ``answers[method](params)``."""

    def __init__(self, process: asyncio.subprocess.Process, encoding: str) -> None:
        self.process = process
        self.encoding = encoding
        self.notifications: list[tuple[str, Any]] = []
        self.requests: list[tuple[str, Any]] = []
        self.answers: dict[str, Callable[[Any], Any]] = {"workspace/applyEdit": self._apply}
        self.texts: dict[str, str] = {}
        self.versions: dict[str, int] = {}
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._next = 0
        self._arrived = asyncio.Condition()
        self._reader = asyncio.ensure_future(self._read())

    @staticmethod
    async def start(
        environment: dict[str, str] | None = None,
        capabilities: dict[str, Any] | None = None,
        options: dict[str, Any] | None = None,
        root: Path | None = None,
        encoding: str = "utf-16",
        initialize: bool = True,
        answers: dict[str, Callable[[Any], Any]] | None = None,
        log: Path | None = None,
    ) -> Client:
        """``log``: where the server's standard error goes."""
        said = log.open("ab") if log is not None else None
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "dice_ls.server",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=said,
            env={**os.environ, **(environment or {})},
        )
        if said is not None:
            said.close()
        client = Client(process, encoding)
        client.answers.update(answers or {})
        if initialize:
            known = CAPABILITIES if capabilities is None else capabilities
            capabilities = {**known, "general": {"positionEncodings": [encoding]}}
            folders = [{"uri": root.as_uri(), "name": root.name}] if root else None
            await client.request(
                "initialize",
                {
                    "processId": os.getpid(),
                    "rootUri": root.as_uri() if root else None,
                    "workspaceFolders": folders,
                    "capabilities": capabilities,
                    "initializationOptions": {"trusted": True} if options is None else options,
                },
            )
            client.notify("initialized", {})
        return client

    @property
    def last_id(self) -> int:
        """The id of the request that was sent last."""
        return self._next

    def skip_ids(self, to: int) -> None:
        """Later requests have ids above ``to``."""
        self._next = max(self._next, to)

    def send(self, message: dict[str, Any] | bytes) -> None:
        body = message if isinstance(message, bytes) else json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)

    def notify(self, method: str, params: Any) -> None:
        self.send({"method": method, "params": params})

    async def request(self, method: str, params: Any, timeout: float = 90) -> Any:
        self._next += 1
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending[self._next] = future
        self.send({"id": self._next, "method": method, "params": params})
        return await asyncio.wait_for(future, timeout)

    async def wait(self, what: Callable[[], Any], timeout: float = 90) -> Any:
        """Wait until ``what()`` is true after some message arrived; returns its value."""

        async def until() -> Any:
            async with self._arrived:
                while not (value := what()):
                    await self._arrived.wait()
                return value

        return await asyncio.wait_for(until(), timeout)

    def open(self, path: Path, text: str, language: str) -> str:
        uri = path.as_uri()
        self.texts[uri], self.versions[uri] = text, 1
        item = {"uri": uri, "languageId": language, "version": 1, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": item})
        return uri

    def change(self, uri: str, edits: list[dict[str, Any]]) -> None:
        """Apply LSP text edits here and tell the server incrementally."""
        for edit in edits:
            self.texts[uri] = apply_edit(self.texts[uri], edit, self.encoding)
        self.versions[uri] += 1
        self.notify(
            "textDocument/didChange",
            {
                "textDocument": {"uri": uri, "version": self.versions[uri]},
                "contentChanges": [{"range": edit["range"], "text": edit["newText"]} for edit in edits],
            },
        )

    def position(self, uri: str, offset: int) -> dict[str, int]:
        before = self.texts[uri][:offset]
        line = before.rpartition("\n")[2]
        return {"line": before.count("\n"), "character": len(encoded(line, self.encoding))}

    async def actions(self, uri: str, offset: int) -> list[dict[str, Any]]:
        at = self.position(uri, offset)
        params = {
            "textDocument": {"uri": uri},
            "range": {"start": at, "end": at},
            "context": {"diagnostics": []},
        }
        return await self.request("textDocument/codeAction", params) or []

    async def lenses(self, uri: str) -> list[str]:
        answer = await self.request("textDocument/codeLens", {"textDocument": {"uri": uri}})
        return [lens["command"]["title"] for lens in answer or []]

    async def command(self, command: dict[str, Any]) -> Any:
        params = {"command": command["command"], "arguments": command.get("arguments")}
        return await self.request("workspace/executeCommand", params)

    def messages(self, method: str = "window/showMessage") -> list[str]:
        return [params["message"] for name, params in self.notifications if name == method]

    def progress(self) -> list[dict[str, Any]]:
        return [params["value"] for name, params in self.notifications if name == "$/progress"]

    def apply(self, uri: str, edit: dict[str, Any]) -> None:
        """Apply a workspace edit as an editor does; one for another version is refused."""
        for change in edit["documentChanges"]:
            assert change["textDocument"] == {"uri": uri, "version": self.versions[uri]}
            self.change(uri, change["edits"])

    async def stop(self) -> int:
        """shutdown and exit; returns the exit code."""
        await self.request("shutdown", None)
        self.notify("exit", None)
        code = await asyncio.wait_for(self.process.wait(), 10)
        self._reader.cancel()
        return code

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        self._reader.cancel()

    def _apply(self, params: dict[str, Any]) -> dict[str, Any]:
        change = params["edit"]["documentChanges"][0]
        self.apply(change["textDocument"]["uri"], params["edit"])
        return {"applied": True}

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while True:
            length = 0
            while header := (await self.process.stdout.readline()).strip():
                name, _, value = header.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            if not length:
                return
            self._received(json.loads(await self.process.stdout.readexactly(length)))
            async with self._arrived:
                self._arrived.notify_all()

    def _received(self, message: dict[str, Any]) -> None:
        if "method" not in message:
            future = self._pending.pop(message.get("id") or -1, None)
            if future is None or future.done():
                self.notifications.append(("response without a request", message))
            elif "error" in message:
                future.set_exception(LspError(message["error"]))
            else:
                future.set_result(message.get("result"))
        elif "id" in message:
            self.requests.append((message["method"], message.get("params")))
            answer = self.answers.get(message["method"], lambda _: None)
            try:
                self.send({"id": message["id"], "result": answer(message.get("params"))})
            except LspError as error:
                self.send({"id": message["id"], "error": {"code": error.code, "message": str(error)}})
        else:
            self.notifications.append((message["method"], message.get("params")))

"""The scenarios for a client that is nothing but the protocol: pytest-lsp, whose capabilities are those of VS Code."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_lsp
from applied import compiles, value_of
from conftest import Place
from lsprotocol import types
from pytest_lsp import ClientServerConfig, LanguageClient, client_capabilities, make_test_lsp_client
from samples import EMOJI_CRLF, FAST, FILES, IN_PYTHON, SAXPY


def make_client() -> LanguageClient:
    client = make_test_lsp_client()
    client.applied = []  # type: ignore[attr-defined]
    client.questions = []  # type: ignore[attr-defined]

    @client.feature(types.WORKSPACE_CODE_LENS_REFRESH)
    def refresh(_params: None) -> None:
        return None

    @client.feature(types.CLIENT_REGISTER_CAPABILITY)
    def register(_params: types.RegistrationParams) -> None:
        return None

    @client.feature(types.WORKSPACE_APPLY_EDIT)
    def apply(params: types.ApplyWorkspaceEditParams) -> types.ApplyWorkspaceEditResult:
        client.applied.append(params.edit)  # type: ignore[attr-defined]
        return types.ApplyWorkspaceEditResult(applied=True)

    @client.feature(types.WINDOW_SHOW_MESSAGE_REQUEST)
    def ask(params: types.ShowMessageRequestParams) -> types.MessageActionItem:
        client.questions.append(params.message)  # type: ignore[attr-defined]
        return types.MessageActionItem("Do not trust")

    return client


class Session:
    """One client with one server, and the files of the place."""

    def __init__(self, client: LanguageClient, place: Place) -> None:
        self.client, self.place, self.version = client, place, 1

    def open(self, name: str, text: str | None = None) -> str:
        uri = (self.place.workspace / name).as_uri()
        language = "python" if name.endswith(".py") else "cuda-cpp"
        item = types.TextDocumentItem(uri, language, self.version, FILES[name] if text is None else text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        return uri

    def change(self, uri: str, text: str) -> None:
        self.version += 1
        whole = types.TextDocumentContentChangeWholeDocument(text)
        document = types.VersionedTextDocumentIdentifier(self.version, uri)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(document, [whole]))

    async def lens(self, uri: str, title: str, command: str = "") -> types.Command:
        """The command of the lens whose title contains ``title``, once there is one."""

        async def there() -> types.Command | None:
            params = types.CodeLensParams(types.TextDocumentIdentifier(uri))
            lenses = await self.client.text_document_code_lens_async(params) or []
            commands = [one.command for one in lenses if one.command and title in one.command.title]
            return next((one for one in commands if command in one.command), None)

        return await self.until(there, title)

    async def until(self, what: Callable[[], Any], name: str) -> Any:
        for _ in range(1800):
            found = what()
            if found := await found if asyncio.iscoroutine(found) else found:
                return found
            await asyncio.sleep(0.05)
        raise AssertionError(f"waited in vain for: {name}")

    async def actions(self, uri: str, text: str, at: str = "dst[k] =") -> list[types.CodeAction]:
        where = position(text, text.index(at))
        context = types.CodeActionContext([])
        document = types.TextDocumentIdentifier(uri)
        params = types.CodeActionParams(document, types.Range(where, where), context)
        found = await self.client.text_document_code_action_async(params) or []
        return [one for one in found if isinstance(one, types.CodeAction)]

    async def find(self, uri: str) -> None:
        """What a click on the lens does. (lsprotocol reads a code action with a command as a bare command.)"""
        found = await self.lens(uri, "DICE: ", "dice.findFaster")
        await self.run(found.command, *(found.arguments or []))

    async def run(self, command: str, *arguments: Any) -> Any:
        params = types.ExecuteCommandParams(command, list(arguments))
        return await self.client.workspace_execute_command_async(params)

    async def rewrite(self, uri: str, text: str) -> str:
        """The document with the best verified rewrite."""
        action = next(one for one in await self.actions(uri, text) if "2.31x faster" in one.title)
        if action.edit is None:
            action = await self.client.code_action_resolve_async(action)
        assert action.edit is not None and action.edit.document_changes
        (change,) = action.edit.document_changes
        assert isinstance(change, types.TextDocumentEdit)
        assert change.text_document.version == self.version
        (edit,) = change.edits
        assert isinstance(edit, types.TextEdit | types.AnnotatedTextEdit)
        return replaced(text, edit)


def position(text: str, offset: int) -> types.Position:
    line = text[:offset].rpartition("\n")[2]
    return types.Position(text[:offset].count("\n"), len(line.encode("utf-16-le")) // 2)


def replaced(text: str, edit: types.TextEdit | types.AnnotatedTextEdit) -> str:
    lines = text.split("\n")

    def offset(at: types.Position) -> int:
        before = lines[at.line].encode("utf-16-le")[: 2 * at.character].decode("utf-16-le")
        return sum(len(line) + 1 for line in lines[: at.line]) + len(before)

    return text[: offset(edit.range.start)] + edit.new_text + text[offset(edit.range.end) :]


def make_session(trusted: bool | None, client: str = "visual_studio_code") -> Any:
    command = [sys.executable, "-m", "dice_ls.server"]
    config = ClientServerConfig(server_command=command, client_factory=make_client)

    @pytest_lsp.fixture(config=config)
    async def session(lsp_client: LanguageClient) -> Any:
        capabilities = client_capabilities(client)
        params = types.InitializeParams(capabilities, initialization_options={"trusted": trusted})
        await lsp_client.initialize_session(params)
        yield
        await lsp_client.shutdown_session()

    return session


@pytest.fixture
def placed(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """The server that pytest-lsp starts belongs to the place."""
    for name, value in place.environment.items():
        monkeypatch.setenv(name, value)
    return place


trusted = make_session(True)
unanswered = make_session(None)
pytestmark = pytest.mark.asyncio


async def test_ask_progress_apply(placed: Place, trusted: LanguageClient) -> None:
    one = Session(trusted, placed)
    uri = one.open("saxpy.cu")
    await one.lens(uri, "DICE: find faster")
    placed.hold()
    await one.find(uri)
    await one.lens(uri, "DICE: checking 1/8")
    placed.release()
    await one.lens(uri, "2.31x verified")
    after = await one.rewrite(uri, SAXPY)
    assert after == SAXPY[: SAXPY.index("{") + 1] + FAST + SAXPY[SAXPY.index("}\n\nvoid") :]
    compiles(after, placed.folder)


async def test_cancel_and_edit_while_it_runs(placed: Place, trusted: LanguageClient) -> None:
    one = Session(trusted, placed)
    uri = one.open("saxpy.cu")
    placed.hold()
    await one.find(uri)
    await one.lens(uri, "DICE: checking 1/8")
    await one.run("dice.cancel")
    await one.until(lambda: placed.requests("cancel"), "the engine to be told")
    await one.lens(uri, "DICE: find faster")
    await one.find(uri)
    await one.lens(uri, "DICE: checking 1/8")
    edited = SAXPY.replace("dst[k] =", "/* typed */ dst[k] =")
    one.change(uri, edited)
    await one.until(lambda: len(placed.requests("cancel")) == 2, "the search to be cancelled")
    placed.release()
    assert [action.title for action in await one.actions(uri, edited) if "Rewrite" in action.title] == []


async def test_ghost_text(placed: Place, trusted: LanguageClient) -> None:
    one = Session(trusted, placed)
    text = FILES["typing.cu"].replace("    \n", "    dst[k] =\n")
    uri = one.open("typing.cu", text)
    where = position(text, text.index("dst[k] =") + len("dst[k] ="))
    context = types.InlineCompletionContext(types.InlineCompletionTriggerKind.Automatic)
    params = types.InlineCompletionParams(context, types.TextDocumentIdentifier(uri), where)
    found = await trusted.text_document_inline_completion_async(params)
    items = found.items if isinstance(found, types.InlineCompletionList) else found or []
    assert [item.insert_text for item in items] == [" alpha * lhs[k] + rhs[k];"]


async def test_evidence_and_trace(placed: Place, trusted: LanguageClient) -> None:
    one = Session(trusted, placed)
    uri = one.open("saxpy.cu")
    await one.find(uri)
    await one.lens(uri, "2.31x verified")
    at = position(SAXPY, SAXPY.index("dst[k] ="))
    place = {"uri": uri, "position": {"line": at.line, "character": at.character}}
    evidence = await one.run("dice.showEvidence", place)
    offered = [candidate["core"] for candidate in evidence["candidates"] if candidate["offerable"]]
    assert offered == [FAST] and "2.31x faster" in evidence["markdown"]
    trace = await one.run("dice.showTrace", place)
    assert "".join(token["text"] for token in trace["tokens"]) == FAST


async def test_python_string(placed: Place, trusted: LanguageClient) -> None:
    one = Session(trusted, placed)
    uri = one.open("inline.py")
    await one.until(lambda: trusted.diagnostics.get(uri), "the diagnostic")
    at = IN_PYTHON.index("outt")
    place = trusted.diagnostics[uri][0].range
    assert place == types.Range(position(IN_PYTHON, at), position(IN_PYTHON, at + 4))
    text = IN_PYTHON.replace("outt", "out")
    one.change(uri, text)
    await one.find(uri)
    await one.lens(uri, "2.31x verified")
    assert FAST in value_of(await one.rewrite(uri, text), "SOURCE")


async def test_emoji_and_crlf(placed: Place, trusted: LanguageClient) -> None:
    one = Session(trusted, placed)
    uri = one.open("emoji.cu")
    await one.find(uri)
    await one.lens(uri, "2.31x verified")
    start, end = EMOJI_CRLF.index("{ // 😀") + 1, EMOJI_CRLF.index("}\r\n\r\nvoid")
    wanted = EMOJI_CRLF[:start] + FAST.replace("\n", "\r\n") + EMOJI_CRLF[end:]
    assert await one.rewrite(uri, EMOJI_CRLF) == wanted


async def test_nothing_runs_in_an_untrusted_workspace(placed: Place, unanswered: LanguageClient) -> None:
    one = Session(unanswered, placed)
    uri = one.open("saxpy.cu")
    await one.find(uri)
    await one.until(lambda: "not trusted" in " ".join(m.message for m in unanswered.messages), "the refusal")
    assert unanswered.questions  # type: ignore[attr-defined]
    assert not placed.requests("generate") and not placed.requests("verify")


async def test_a_killed_engine_is_told_and_comes_back(placed: Place, trusted: LanguageClient) -> None:
    one = Session(trusted, placed)
    uri = one.open("saxpy.cu")
    placed.hold()
    await one.find(uri)
    await one.lens(uri, "DICE: checking 1/8")
    placed.kill_engine()

    async def unavailable() -> bool:
        return (await one.run("dice.status"))["state"] == "unavailable"

    await one.until(unavailable, "the status to say so")
    placed.release()
    placed.start_engine()
    await one.find(uri)
    await one.lens(uri, "2.31x verified")


async def test_the_server_is_the_one_of_this_tree(placed: Place, trusted: LanguageClient) -> None:
    assert Path(os.environ["DICE_RUNTIME_DIR"]) == placed.runtime
    assert trusted.capabilities is not None

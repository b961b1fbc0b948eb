"""The commands of the server. Each takes one object: ``uri`` and ``hole`` (from an action, a lens) or ``position``."""

from __future__ import annotations

import asyncio
from typing import Any

from dice_engine.source.hole import Hole
from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams

from dice_ls.documents import Document
from dice_ls.features import edits, trust
from dice_ls.features.code_actions import hole_at_range
from dice_ls.language_server import DiceServer
from dice_ls.suggestions import wording
from dice_ls.suggestions.store import HoleId


def register(server: DiceServer) -> None:
    background: set[asyncio.Task[Any]] = set()

    @server.command("dice.findFaster")
    async def find_faster(ls: DiceServer, *arguments: Any) -> dict[str, Any]:
        document, hole_id, hole = await _target(ls, arguments)
        if not hole.editable:
            raise JsonRpcInvalidParams(f"`{hole.name}` cannot be rewritten: {hole.reason}")
        if not hole.plan.runnable:
            raise JsonRpcInvalidParams(f"`{hole.name}` cannot be checked: {hole.plan.reason}")
        task = asyncio.ensure_future(_start(ls, document, hole_id))
        background.add(task)
        task.add_done_callback(background.discard)
        return {"hole": str(hole_id)}

    @server.command("dice.applySuggestion")
    async def apply_suggestion(ls: DiceServer, *arguments: Any) -> dict[str, Any]:
        document, hole_id, hole = await _target(ls, arguments)
        record, candidates = edits.offers(ls, document, hole_id, hole)
        wanted = arguments[0].get("candidate")
        chosen = next((item for item in candidates if wanted is None or item.index == wanted), None)
        if record is None or chosen is None or chosen.verdict is None:
            raise JsonRpcInvalidParams(f"no verified rewrite of `{hole.name}` for the text as it is now")
        label = f"Rewrite `{hole.name}`: {wording.offer_title(chosen.verdict)}"
        return await _apply(ls, label, edits.rewrite(ls, document, record, hole, chosen))

    @server.command("dice.insertAnnotation")
    async def insert_annotation(ls: DiceServer, *arguments: Any) -> dict[str, Any]:
        document, _, hole = await _target(ls, arguments)
        try:
            edit = edits.stub(ls, document, hole)
        except edits.NoStub as error:
            raise JsonRpcInvalidParams(str(error)) from error
        return await _apply(ls, f"Insert @dice above `{hole.name}`", edit)

    @server.command("dice.cancel")
    async def cancel(ls: DiceServer, *arguments: Any) -> dict[str, Any]:
        """Cancel the job of one hole, or all jobs when no hole is named."""
        if not arguments:
            return {"cancelled": ls.jobs.cancel_all()}
        document, hole_id, _ = await _target(ls, arguments)
        return {"cancelled": ls.jobs.cancel_hole(document.uri, hole_id)}

    @server.command("dice.status")
    async def status(ls: DiceServer, *arguments: Any) -> dict[str, Any]:
        """The status as JSON; for a hole with a running request its progress is shown as well."""
        if arguments:
            document, hole_id, hole = await _target(ls, arguments)
            record = ls.store.get(document.uri, hole_id)
            if record is None:
                ls.show(f"`{hole.name}`: {hole.plan.reason or 'nothing was asked for it yet'}")
            else:
                ls.show(f"`{hole.name}`: {wording.progress(record) if record.active else record.message}")
        return ls.status.to_json()

    @server.command("dice.trustWorkspace")
    def trust_workspace(ls: DiceServer, *arguments: Any) -> dict[str, Any]:
        return trust.answer(ls, arguments, trusted=True)

    @server.command("dice.untrustWorkspace")
    def untrust_workspace(ls: DiceServer, *arguments: Any) -> dict[str, Any]:
        ls.jobs.cancel_all("the workspace is not trusted any more")
        return trust.answer(ls, arguments, trusted=False)


async def _start(ls: DiceServer, document: Document, hole_id: HoleId) -> None:
    """Submit a job once the workspace is trusted, for the hole as it is then."""
    if not await trust.ensure(ls, document):
        return
    current = ls.documents.get(document.uri)
    found = await _find(current, str(hole_id)) if current is not None else None
    if current is None or found is None:
        ls.show(f"`{hole_id.name}` was edited meanwhile; ask again", types.MessageType.Warning)
        return
    ls.jobs.submit(current, *found)


async def _apply(ls: DiceServer, label: str, edit: types.WorkspaceEdit) -> dict[str, Any]:
    """Send an edit to the client. Whether it took effect is known only from the didChange that follows."""
    result = await ls.workspace_apply_edit_async(types.ApplyWorkspaceEditParams(edit, label))
    if not result.applied:
        ls.show(
            f"the editor did not apply the edit: {result.failure_reason or 'no reason given'}",
            types.MessageType.Warning,
        )
    return {"applied": result.applied}


async def _find(document: Document, hole_id: str) -> tuple[HoleId, Hole] | None:
    """The hole whose identity (as text) is ``hole_id`` in the document's present text."""
    return next((pair for pair in await document.holes() if str(pair[0]) == hole_id), None)


async def _target(ls: DiceServer, arguments: tuple[Any, ...]) -> tuple[Document, HoleId, Hole]:
    """The hole that a command's argument names. Raises JsonRpcInvalidParams with what is wrong with it."""
    if len(arguments) != 1 or not isinstance(arguments[0], dict):
        raise JsonRpcInvalidParams("expected one object with `uri` and `hole` or `position`")
    where = arguments[0]
    uri, name, at = where.get("uri"), where.get("hole"), where.get("position")
    document = ls.documents.get(uri) if isinstance(uri, str) else None
    if document is None:
        raise JsonRpcInvalidParams(f"no open document {uri!r}")
    if isinstance(name, str):
        found = await _find(document, name)
        if found is None:
            raise JsonRpcInvalidParams("the code was edited since this was offered; ask again")
        return document, *found
    if isinstance(at, dict) and type(at.get("line")) is int and type(at.get("character")) is int:
        position = types.Position(at["line"], at["character"])
        found = await hole_at_range(document, types.Range(position, position))
        if found is None:
            raise JsonRpcInvalidParams("there is no kernel or module at this position")
        return document, *found
    raise JsonRpcInvalidParams("expected `hole` (text) or `position` ({line, character}) beside `uri`")

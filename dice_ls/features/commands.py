"""The commands that ask for rewrites and apply them. What their argument names: ``targets.py`` and docs/protocol.md."""

from __future__ import annotations

import asyncio
from typing import Any

from dice_engine.source.hole import Hole
from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams

from dice_ls.documents import Document
from dice_ls.features import edits, targets, trust
from dice_ls.language_server import DiceServer
from dice_ls.suggestions import wording
from dice_ls.suggestions.store import HoleId


def register(server: DiceServer) -> None:
    background: set[asyncio.Task[Any]] = set()

    def start(ls: DiceServer, document: Document, hole_id: HoleId, hole: Hole) -> dict[str, Any]:
        if not hole.editable:
            raise JsonRpcInvalidParams(f"`{hole.name}` cannot be rewritten: {hole.reason}")
        if not hole.plan.runnable:
            raise JsonRpcInvalidParams(f"`{hole.name}` cannot be checked: {hole.plan.reason}")
        task = asyncio.ensure_future(_start(ls, document, hole_id))
        background.add(task)
        task.add_done_callback(background.discard)
        return {"hole": str(hole_id)}

    @server.command("dice.findFaster")
    async def find_faster(ls: DiceServer, *arguments: Any) -> dict[str, Any]:
        return start(ls, *await targets.target(ls, arguments))

    @server.command("dice.rewriteKernel")
    async def rewrite_kernel(ls: DiceServer, *arguments: Any) -> dict[str, Any]:
        return start(ls, *await targets.target(ls, arguments, targets.SOURCES))

    @server.command("dice.rewriteModule")
    async def rewrite_module(ls: DiceServer, *arguments: Any) -> dict[str, Any]:
        return start(ls, *await targets.target(ls, arguments, ("module",)))

    @server.command("dice.rewriteSelection")
    async def rewrite_selection(ls: DiceServer, *arguments: Any) -> dict[str, Any]:
        document, area = targets.selection(ls, arguments)
        found = await document.select(area)
        if found is None:
            raise JsonRpcInvalidParams("the selection lies in no kernel that can be rewritten")
        return start(ls, document, *found)

    @server.command("dice.applySuggestion")
    async def apply_suggestion(ls: DiceServer, *arguments: Any) -> dict[str, Any]:
        document, hole_id, hole = await targets.target(ls, arguments)
        record, candidates = edits.offers(ls, document, hole_id, hole)
        wanted = arguments[0].get("candidate")
        chosen = next((item for item in candidates if wanted is None or item.index == wanted), None)
        if record is None or chosen is None or chosen.verdict is None:
            raise JsonRpcInvalidParams(f"no verified rewrite of `{hole.name}` for the text as it is now")
        label = f"Rewrite `{hole.name}`: {wording.offer_title(chosen.verdict)}"
        form = edits.form(ls, document, hole, arguments[0].get("form"))
        return await _apply(ls, label, edits.rewrite(ls, document, record, hole, chosen, form))

    @server.command("dice.insertAnnotation")
    async def insert_annotation(ls: DiceServer, *arguments: Any) -> dict[str, Any]:
        document, _, hole = await targets.target(ls, arguments)
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
        document, hole_id, _ = await targets.target(ls, arguments)
        return {"cancelled": ls.jobs.cancel_hole(document.uri, hole_id)}

    @server.command("dice.status")
    async def status(ls: DiceServer, *arguments: Any) -> dict[str, Any]:
        """The status as JSON; for a hole with a running request its progress is shown as well."""
        if arguments and arguments[0]:
            document, hole_id, hole = await targets.target(ls, arguments)
            record = ls.store.get(document.uri, hole_id)
            if record is None:
                ls.show(f"`{hole.name}`: {hole.plan.reason or 'nothing was asked for it yet'}")
            else:
                ls.show(f"`{hole.name}`: {wording.progress(record) if record.active else record.message}")
        return dict(ls.status.current)


async def _start(ls: DiceServer, document: Document, hole_id: HoleId) -> None:
    """Submit a job once the workspace is trusted, for the hole as it is then."""
    if not await trust.ensure(ls, document):
        return
    current = ls.documents.get(document.uri)
    if current is not None:
        await current.settled()
    found = await targets.find(current, str(hole_id)) if current is not None else None
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

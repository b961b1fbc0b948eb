"""Code actions at the cursor: find a faster version, the verified rewrites, insert an annotation.

Asked at every cursor move: everything here reads what is known already. No engine, GPU or build work.
"""

from __future__ import annotations

from dice_engine.source.hole import Hole
from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams

from dice_ls.documents import Document
from dice_ls.features import edits
from dice_ls.features.targets import find, hole_at_range
from dice_ls.language_server import DiceServer
from dice_ls.suggestions import wording
from dice_ls.suggestions.store import Candidate, HoleId, Record

REWRITE = types.CodeActionKind.RefactorRewrite
FIX = types.CodeActionKind.QuickFix
SHOW = types.CodeActionKind.Empty
_MOST = 3
"""Rewrites in the menu: the best ones."""


def register(server: DiceServer) -> None:
    options = types.CodeActionOptions(code_action_kinds=[REWRITE, FIX], resolve_provider=True)

    @server.feature(types.TEXT_DOCUMENT_CODE_ACTION, options)
    async def code_action(
        ls: DiceServer, params: types.CodeActionParams
    ) -> list[types.CodeAction | types.Command] | None:
        document = ls.documents.get(params.text_document.uri)
        if document is None:
            return None
        found = await hole_at_range(document, params.range)
        if found is None:
            return None
        actions = _actions(ls, document, *found)
        if params.range.start != params.range.end:
            actions += await _selection_actions(ls, document, params.range)
        actions = [action for action in actions if _wanted(action.kind, params.context.only)]
        if ls.supports("text_document.code_action.code_action_literal_support"):
            return list(actions)
        for action in actions:
            if action.command is not None:
                action.command.title = action.title
        return [
            action.command for action in actions if action.command is not None and action.disabled is None
        ]

    @server.feature(types.CODE_ACTION_RESOLVE)
    async def resolve(ls: DiceServer, action: types.CodeAction) -> types.CodeAction:
        """The edit of an action that was sent without it; every other action is as it was."""
        data = action.data if isinstance(action.data, dict) else {}
        document = ls.documents.get(data["uri"]) if isinstance(data.get("uri"), str) else None
        if document is None or not isinstance(data.get("hole"), str):
            return action
        found = await find(document, data["hole"])
        if found is None:
            raise JsonRpcInvalidParams("the code was edited since this was offered; ask again")
        record, candidates = edits.offers(ls, document, *found)
        chosen = next((item for item in candidates if item.index == data.get("candidate")), None)
        if record is None or chosen is None:
            raise JsonRpcInvalidParams("this rewrite is not offered any more; ask again")
        form = edits.form(ls, document, found[1], data.get("form"))
        action.edit = edits.rewrite(ls, document, record, found[1], chosen, form)
        return action


def command(title: str, name: str, document: Document, hole_id: HoleId, **more: object) -> types.Command:
    """A command that acts on a hole of a document."""
    return types.Command(title, name, arguments=[{"uri": document.uri, "hole": str(hole_id), **more}])


def _wanted(kind: types.CodeActionKind | str | None, only: object) -> bool:
    if not only:
        return True
    name = kind.value if isinstance(kind, types.CodeActionKind) else str(kind)
    prefixes = [one.value if isinstance(one, types.CodeActionKind) else str(one) for one in only]  # type: ignore[attr-defined]
    return any(prefix == "" or name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def _actions(ls: DiceServer, document: Document, hole_id: HoleId, hole: Hole) -> list[types.CodeAction]:
    title = f"Find a faster version of `{hole.name}`"
    if not hole.editable:
        return _disabled(ls, title, hole.reason or "this code cannot be edited safely")
    if not hole.plan.runnable:
        actions = _disabled(
            ls, title, hole.plan.reason or "no plan to run this code: add an @dice annotation"
        )
        if edits.can_annotate(hole):
            name = f"Insert a @dice annotation above `{hole.name}`"
            insert = command(name, "dice.insertAnnotation", document, hole_id)
            actions.insert(0, types.CodeAction(name, FIX, command=insert))
        return actions
    record, candidates = edits.offers(ls, document, hole_id, hole)
    actions: list[types.CodeAction] = []
    for rank, candidate in enumerate(candidates[:_MOST]):
        if record is None or candidate.verdict is None:
            continue
        offer = f"Rewrite `{hole.name}`: {wording.offer_title(candidate.verdict)}"
        if any(action.title == offer for action in actions):
            offer += f", candidate {candidate.index}"
        for form, addition in edits.forms(ls, document, hole):
            action = _offer(ls, document, hole_id, hole, record, candidate, form)
            action.title = offer + addition
            action.is_preferred = (rank == 0 and form == "core") or None
            actions.append(action)
    if record is not None and record.candidates:
        show = command(
            f"Show the evidence for `{hole.name}`", "dice.showEvidence", document, hole_id, show=True
        )
        actions.append(types.CodeAction(show.title, SHOW, command=show))
    if record is not None and record.active:
        cancel = command(f"Cancel the search for `{hole.name}`", "dice.cancel", document, hole_id)
        actions.append(types.CodeAction(cancel.title, REWRITE, command=cancel))
    else:
        find = command(title, "dice.findFaster", document, hole_id)
        actions.append(types.CodeAction(title, REWRITE, command=find))
    return actions


def _offer(
    ls: DiceServer,
    document: Document,
    hole_id: HoleId,
    hole: Hole,
    record: Record,
    candidate: Candidate,
    form: edits.Form,
) -> types.CodeAction:
    """One rewrite: its edit at once or when the client resolves the action; a command for the plainest clients."""
    action = types.CodeAction("", REWRITE)
    which = {"uri": document.uri, "hole": str(hole_id), "candidate": candidate.index, "form": form}
    if "edit" in ls.resolves("text_document.code_action.resolve_support"):
        action.data = which
    else:
        action.edit = edits.rewrite(ls, document, record, hole, candidate, form)
    if not ls.supports("text_document.code_action.code_action_literal_support"):
        action.command = types.Command("", "dice.applySuggestion", arguments=[which])
    if ls.supports("text_document.code_action.tag_support"):
        action.tags = [types.CodeActionTag.LlmGenerated]
    return action


async def _selection_actions(ls: DiceServer, document: Document, area: types.Range) -> list[types.CodeAction]:
    """Asking for a part of a kernel alone."""
    from dice_engine.source.selection import select

    start, end = document.positions.offset(area.start), document.positions.offset(area.end)
    hole = select((hole for _, hole in await document.holes()), start, max(start, end))
    if hole is None or hole.kind != "selection" or not hole.plan.runnable:
        return []
    lines = document.positions.range(hole.start_byte, hole.end_byte)
    title = f"Find a faster version of lines {lines.start.line + 1} to {lines.end.line + 1} of `{hole.name}`"
    arguments = [{"uri": document.uri, "range": {"start": _json(area.start), "end": _json(area.end)}}]
    return [
        types.CodeAction(
            title, REWRITE, command=types.Command(title, "dice.rewriteSelection", arguments=arguments)
        )
    ]


def _json(position: types.Position) -> dict[str, int]:
    return {"line": position.line, "character": position.character}


def _disabled(ls: DiceServer, title: str, reason: str) -> list[types.CodeAction]:
    if not ls.supports("text_document.code_action.disabled_support"):
        return []
    return [types.CodeAction(title, REWRITE, disabled=types.CodeActionDisabled(reason))]

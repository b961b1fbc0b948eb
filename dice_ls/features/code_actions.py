"""Code actions at the cursor: find a faster version, the verified rewrites, insert an annotation.

Asked at every cursor move: everything here reads what is known already. No engine, GPU or build work.
"""

from __future__ import annotations

from dice_engine.source.hole import Hole
from lsprotocol import types

from dice_ls.documents import Document
from dice_ls.features import edits
from dice_ls.language_server import DiceServer
from dice_ls.suggestions import wording
from dice_ls.suggestions.store import HoleId

REWRITE = types.CodeActionKind.RefactorRewrite
FIX = types.CodeActionKind.QuickFix
_MOST = 3
"""Rewrites in the menu: the best ones."""


def register(server: DiceServer) -> None:
    options = types.CodeActionOptions(code_action_kinds=[REWRITE, FIX])

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
        actions = [
            action for action in _actions(ls, document, *found) if _wanted(action.kind, params.context.only)
        ]
        if ls.supports("text_document.code_action.code_action_literal_support"):
            return list(actions)
        return [
            action.command for action in actions if action.command is not None and action.disabled is None
        ]


async def hole_at_range(document: Document, where: types.Range) -> tuple[HoleId, Hole] | None:
    """The hole that a cursor or selection means: at its start, else at its end."""
    from dice_engine.source.holes import hole_at

    pairs = await document.holes()
    holes = [hole for _, hole in pairs]
    for position in (where.start, where.end):
        hole = hole_at(holes, document.positions.offset(position))
        if hole is not None:
            return next(pair for pair in pairs if pair[1] is hole)
    return None


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
        action = types.CodeAction(
            offer,
            REWRITE,
            is_preferred=rank == 0 or None,
            edit=edits.rewrite(ls, document, record, hole, candidate),
        )
        if not ls.supports("text_document.code_action.code_action_literal_support"):
            action.command = command(
                offer, "dice.applySuggestion", document, hole_id, candidate=candidate.index
            )
        if ls.supports("text_document.code_action.tag_support"):
            action.tags = [types.CodeActionTag.LlmGenerated]
        actions.append(action)
    if record is not None and record.active:
        cancel = command(f"Cancel the search for `{hole.name}`", "dice.cancel", document, hole_id)
        actions.append(types.CodeAction(cancel.title, REWRITE, command=cancel))
    else:
        find = command(title, "dice.findFaster", document, hole_id)
        actions.append(types.CodeAction(title, REWRITE, command=find))
    return actions


def _disabled(ls: DiceServer, title: str, reason: str) -> list[types.CodeAction]:
    if not ls.supports("text_document.code_action.disabled_support"):
        return []
    return [types.CodeAction(title, REWRITE, disabled=types.CodeActionDisabled(reason))]

"""Asking for, giving and taking back trust. Without it no code of the workspace is compiled, imported or run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams

from dice_ls.documents import Document
from dice_ls.language_server import DiceServer
from dice_ls.uris import path_of

_YES = "Trust and run"
_NO = "Do not trust"


def register(server: DiceServer) -> None:
    @server.command("dice.trustWorkspace")
    def trust_workspace(ls: DiceServer, *arguments: Any) -> dict[str, Any]:
        return _answer(ls, arguments, trusted=True)

    @server.command("dice.untrustWorkspace")
    def untrust_workspace(ls: DiceServer, *arguments: Any) -> dict[str, Any]:
        ls.jobs.cancel_all("the workspace is not trusted any more")
        return _answer(ls, arguments, trusted=False)


def known(ls: DiceServer, document: Document) -> bool:
    """Whether the document's workspace is trusted, without asking anybody."""
    if ls.settings.trusted is not None:
        return ls.settings.trusted
    return ls.trust.get(ls.root_of(document)) is True


async def ensure(ls: DiceServer, document: Document) -> bool:
    """Whether the document's workspace is trusted; asks once when nobody has said so."""
    if ls.settings.trusted is True:
        return True
    root = ls.root_of(document)
    trusted = ls.trust.get(root) if ls.settings.trusted is None else False
    if trusted is None:
        async with ls.asking:
            trusted = ls.trust.get(root)
            if trusted is None:
                ls.status.update(waiting_for="an answer about trust")
                try:
                    trusted = await _ask(ls, root)
                finally:
                    ls.status.update(waiting_for="")
    if trusted is False:
        ls.show(
            f"{root} is not trusted: its code is not compiled or run. The command dice.trustWorkspace changes that.",
            types.MessageType.Warning,
        )
    return trusted is True


async def _ask(ls: DiceServer, root: Path) -> bool | None:
    """Ask the user; closing the question means neither yes nor no and is not stored."""
    question = types.ShowMessageRequestParams(
        type=types.MessageType.Warning,
        message=f"To check a rewrite, DICE compiles and runs code of {root}. Do you trust this code?",
        actions=[types.MessageActionItem(_YES), types.MessageActionItem(_NO)],
    )
    try:
        chosen = await ls.window_show_message_request_async(question)
    except JsonRpcException:
        ls.show(
            f"{root} is not trusted yet, and the editor could not ask: the command dice.trustWorkspace answers.",
            types.MessageType.Warning,
        )
        return None
    if chosen is None or chosen.title not in (_YES, _NO):
        return None
    _store(ls, root, chosen.title == _YES)
    return chosen.title == _YES


def _answer(ls: DiceServer, arguments: tuple[Any, ...], trusted: bool) -> dict[str, Any]:
    """``dice.trustWorkspace`` and ``dice.untrustWorkspace``: for the folder in ``uri``, else for every root."""
    if arguments and not (isinstance(arguments[0], dict) and isinstance(arguments[0].get("uri"), str)):
        raise JsonRpcInvalidParams("expected one object with `uri`, or nothing")
    if arguments:
        document = ls.documents.get(arguments[0]["uri"])
        path = path_of(arguments[0]["uri"])
        roots = [ls.root_of(document)] if document else [Path(path)] if path else []
    else:
        roots = ls.roots()
    if not roots:
        raise JsonRpcInvalidParams("no workspace folder is open: name one by `uri`")
    if ls.settings.trusted is not None and ls.settings.trusted != trusted:
        raise JsonRpcInvalidParams("the client's setting `trusted` decides; change it there")
    for root in roots:
        _store(ls, root, trusted)
    return {"roots": [str(root) for root in roots], "trusted": trusted}


def _store(ls: DiceServer, root: Path, trusted: bool) -> None:
    if problem := ls.trust.set(root, trusted):
        ls.show(f"DICE: {problem}", types.MessageType.Warning)

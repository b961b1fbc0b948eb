""" "Check my kernel": what its author wrote against its reference, once, when asked. Nothing is decoded."""

from __future__ import annotations

import asyncio
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams

from dice_ls.documents import Document
from dice_ls.features import targets, trust
from dice_ls.features.diagnostics import Found
from dice_ls.language_server import DiceServer
from dice_ls.progress import ProgressBar
from dice_ls.suggestions import wording


def register(server: DiceServer) -> None:
    @server.command("dice.checkKernel")
    async def check_kernel(ls: DiceServer, *arguments: Any) -> dict[str, Any]:
        from dice_engine.client import EngineError

        from dice_ls.suggestions.references import NotCheckable, check_of

        document, hole_id, hole = await targets.target(ls, arguments)
        if not hole.editable and hole.kind != "module":
            raise JsonRpcInvalidParams(f"`{hole.name}` cannot be checked: {hole.reason}")
        if not await trust.ensure(ls, document):
            raise JsonRpcInvalidParams("the workspace is not trusted: its code is not run")
        work = asyncio.current_task()
        bar = ProgressBar(ls, lambda: work.cancel() if work is not None else None)
        await bar.begin(f"DICE: checking `{hole.name}`", "building")
        said = "cancelled"
        try:
            check = await check_of(
                document.text,
                document.path,
                document.opened_text,
                hole,
                ls.settings.device,
                ls.project_of(document),
            )
            client = await ls.engine.client()
            verdict = await client.verify(check.request)
            said = _say(hole.name, check.reference, verdict)
        except NotCheckable as error:
            raise JsonRpcInvalidParams(f"`{hole.name}` cannot be checked: {error}") from None
        except EngineError as error:
            said = str(error)
            raise JsonRpcInvalidParams(f"`{hole.name}`: {error}") from None
        finally:
            bar.end(said)
        wrong = verdict.verdict not in ("verified", "no_gain", "correct_unmeasured")
        ls.show(said, types.MessageType.Warning if wrong else types.MessageType.Info)
        if await targets.find(document, str(hole_id)) is not None:
            _publish(ls, document, hole.anchor, hole.name, said if wrong else None, verdict.verdict)
        return {"hole": str(hole_id), "reference": check.reference, "verdict": verdict.to_json()}


def _say(name: str, reference: str, verdict: Any) -> str:
    if verdict.verdict == "mismatch":
        return f"`{name}` disagrees with {reference}: {verdict.reason}"
    if verdict.verdict in ("verified", "no_gain", "correct_unmeasured"):
        ratio = f", {verdict.speedup:.2f}x as fast" if verdict.speedup else ""
        return f"`{name}` agrees with {reference} on {wording.plural(verdict.trials, 'input')}{ratio}"
    return f"`{name}` against {reference}: {wording.rejection(verdict)}"


def _publish(
    ls: DiceServer, document: Document, anchor: tuple[int, int], name: str, said: str | None, verdict: str
) -> None:
    """A disagreement is a diagnostic on the kernel's name until the kernel is edited; an agreement takes it away."""
    found = ls.board.kept(document, "check", outside=anchor)
    if said is not None:
        data = document.positions.data
        at = data.find(name.encode(), *anchor)
        place = (at, at + len(name.encode())) if at >= 0 else (anchor[0], anchor[0] + 1)
        whole = document.mark(*anchor)
        found.append(Found(document.mark(*place), said, types.DiagnosticSeverity.Warning, verdict, whole))
    ls.board.put(document, "check", found)

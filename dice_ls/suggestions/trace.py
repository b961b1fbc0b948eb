"""The denoising trace of a candidate: its tokens as text, with the block and the step at which each was settled."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from typing import TYPE_CHECKING

from dice_engine import NANO

from dice_ls.suggestions.store import Candidate, HoleId

if TYPE_CHECKING:
    from dice_ls.contract import Trace, TraceToken


class NoTrace(Exception):
    """There is nothing to show; the message says why."""


def trace(hole: HoleId, candidate: Candidate, checkpoint: str | None) -> Trace:
    """Read with the checkpoint's own tokenizer. Raises NoTrace."""
    kept = candidate.trace
    if kept is None or not kept.steps:
        raise NoTrace(f"the engine gave no trace for candidate {candidate.index}")
    texts = _texts(kept.tokens, Path(checkpoint) if checkpoint else NANO)
    tokens: list[TraceToken] = [
        {"text": text, "step": step, "block": bisect_right(kept.ends, place)}
        for place, (text, step) in enumerate(zip(texts, kept.steps, strict=False))
    ]
    sizes = [end - start for start, end in zip((0, *kept.ends), kept.ends, strict=False)]
    return {
        "hole": str(hole),
        "candidate": candidate.index,
        "block_size": max(sizes, default=len(tokens)),
        "tokens": tokens,
    }


def _texts(ids: tuple[int, ...], folder: Path) -> list[str]:
    """The text of each token; a character made of several tokens is the text of its last."""
    try:
        from dice_engine.model.tokenizer import DiceTokenizer

        tokenizer = DiceTokenizer.load(folder)
    except Exception as error:
        raise NoTrace(f"the tokens cannot be read: {error}") from error
    texts, pending = [], []
    for number in ids:
        pending.append(number)
        text = tokenizer.decode(pending)
        whole = not text.endswith("\ufffd")
        texts.append(text if whole else "")
        if whole:
            pending = []
    if pending:
        texts[-1] = tokenizer.decode(pending)
    return texts

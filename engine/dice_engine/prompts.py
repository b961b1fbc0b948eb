"""From a request to tokens, and from decoded text back to a core. No torch here.

Two formats, chosen by the checkpoint: ``fim`` (reference, prefix, suffix, then the core), in which this project's
models are trained, and ``chat`` for the published ones (see ``dice_engine.chat``). Prefix and suffix are the user's
bytes: a prompt may show less of them, but what comes back is a core and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from dice_engine.source.hole import HoleKind


class PromptError(Exception):
    """A request that does not fit the model's context, or a kind that the format does not know."""


class Encoder(Protocol):
    """The part of a tokenizer that prompts need."""

    def encode(self, text: str) -> list[int]: ...

    def special(self, token: str) -> int: ...


@dataclass(frozen=True)
class CoreRequest:
    """What is asked of the model: the core between ``prefix`` and ``suffix``.

    ``reference`` is what the core shall do faster: the existing core for ``kernel_body``; the PyTorch module's source
    (or the existing core where there is none) for ``load_inline_core``; empty for ``module``, whose prefix ends with
    the class itself.
    """

    kind: HoleKind
    prefix: str
    suffix: str
    reference: str
    begin: str = ""
    """The beginning of the core, when it stands already: the reply goes on from there."""


FIM_KINDS = ("kernel_body", "load_inline_core", "module")


def core_request(
    kind: HoleKind, prefix: str, core: str, suffix: str, pytorch: str | None = None
) -> CoreRequest:
    """The request for a hole as it stands in a file. ``pytorch``: the source of the module a ``load_inline_core``
    implements, where it is known."""
    if kind == "module":
        reference = ""
    elif kind == "load_inline_core" and pytorch:
        reference = pytorch
    else:
        reference = core
    return CoreRequest(kind, prefix, suffix, reference)


def build_fim_prompt(request: CoreRequest, tokenizer: Encoder, budget: int | None = None) -> list[int]:
    """KIND <|reference|> reference <|prefix|> prefix <|suffix|> suffix <|core|>, in at most ``budget`` tokens.

    Over budget, the prefix loses lines at its start and the suffix at its end; the reference stays whole. Raises
    :class:`PromptError` when it alone does not fit.
    """
    # A selection is code inside a kernel: it is asked for like a kernel body.
    kind = "kernel_body" if request.kind == "selection" else request.kind
    if kind not in FIM_KINDS:
        raise PromptError(f"holes of kind {request.kind} cannot be written by this model")
    reference = tokenizer.encode(request.reference)
    prefix, suffix = tokenizer.encode(request.prefix), tokenizer.encode(request.suffix)
    if budget is not None:
        available = budget - len(reference) - 5
        if available < 0:
            raise PromptError(
                f"the code to rewrite is {len(reference)} tokens long, the model's context has room for {budget - 5}; "
                "choose a smaller kernel or a checkpoint with a longer context"
            )
        if len(prefix) + len(suffix) > available:
            head, tail = trim(
                request.prefix, request.suffix, available, lambda text: len(tokenizer.encode(text))
            )
            prefix, suffix = tokenizer.encode(head), tokenizer.encode(tail)
    return [
        tokenizer.special(f"<|{kind}|>"),
        tokenizer.special("<|reference|>"),
        *reference,
        tokenizer.special("<|prefix|>"),
        *prefix,
        tokenizer.special("<|suffix|>"),
        *suffix,
        tokenizer.special("<|core|>"),
    ]


def build_prompt(
    request: CoreRequest, tokenizer: Encoder, budget: int | None = None, format: str = "fim"
) -> list[int]:
    """The prompt of ``request`` in a checkpoint's ``format`` (``fim`` or ``chat``), in at most ``budget`` tokens."""
    begin = tokenizer.encode(request.begin) if request.begin else []
    if budget is not None:
        budget -= len(begin)
    if format == "fim":
        return build_fim_prompt(request, tokenizer, budget) + begin
    if format == "chat":
        from dice_engine.chat import build_chat_prompt

        return build_chat_prompt(request, tokenizer, budget) + begin
    raise PromptError(f"the checkpoint's prompt format {format!r} is not known: it is neither fim nor chat")


def parse_core(kind: HoleKind, text: str, format: str = "fim", suffix: str = "") -> str:
    """The core in a decoded reply. In ``fim`` the reply is the core; a chat reply goes on past it, and is cut where
    the core's own closing delimiter stands or the suffix begins."""
    if format == "fim":
        return text
    from dice_engine.chat import core_end

    end = core_end(kind, text, suffix)
    return text if end is None else text[:end]


def trim(prefix: str, suffix: str, available: int, count: Callable[[str], int]) -> tuple[str, str]:
    """Prefix and suffix that count at most ``available`` together, cut at line starts; each may use what the other
    leaves, and half is safe for both."""
    size, other = count(prefix), count(suffix)
    for_suffix = min(other, max(available // 2, available - size))
    tail = _head(suffix, for_suffix, count)
    return _tail(prefix, available - count(tail), count), tail


def _head(text: str, limit: int, count: Callable[[str], int]) -> str:
    """The most whole lines from the start of ``text`` that count at most ``limit``."""
    lines = text.splitlines(keepends=True)
    return "".join(lines[: _most(len(lines), lambda n: count("".join(lines[:n])) <= limit)])


def _tail(text: str, limit: int, count: Callable[[str], int]) -> str:
    """The most whole lines at the end of ``text`` that count at most ``limit``."""
    lines = text.splitlines(keepends=True)
    return "".join(
        lines[len(lines) - _most(len(lines), lambda n: count("".join(lines[len(lines) - n :])) <= limit) :]
    )


def _most(total: int, fits: Callable[[int], bool]) -> int:
    """The largest n in 0..total that fits (0 always does); more lines never count less."""
    low, high = 0, total
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low

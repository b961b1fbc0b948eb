"""Judgements that all runs on a cluster share, by the digest of everything they depend on."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from dice_engine.verify import cache
from dice_engine.verify.verdict import Verdict

from dice_training.pool.work import Judgement, Options, Share

LIMIT = 200_000
_MATTERS = ("kind", "kernel", "prefix", "suffix", "reference", "original", "pytorch", "class_name", "around")
"""The fields of a row that a verdict depends on."""

Entry = dict[str, Any]


def keys(share: Share, options: Options, device: str) -> dict[str, str]:
    """For each core of ``share`` the digest of what its judgement depends on, on this machine's ``device``."""
    row = {name: share.row[name] for name in _MATTERS if name in share.row}
    fixed = {"row": row, "options": asdict(options), "plain": share.plain, "device": device}
    return {core: cache.key(**fixed, core=core) for core in share.items}


def entry(judgement: Judgement) -> Entry | None:
    """JSON of what may be kept; None for what the machine or a busy moment may be to blame for."""
    if not cache.keeps(judgement.verdict):
        return None
    return {"verdict": judgement.verdict.to_json(), "plain": judgement.plain}


def judgement(kept: Entry) -> Judgement:
    return Judgement(Verdict.from_json(kept["verdict"]), kept["plain"])


class Verdicts:
    """An actor that holds ``LIMIT`` entries; the oldest make room."""

    def __init__(self) -> None:
        self._entries: OrderedDict[str, Entry] = OrderedDict()

    def get(self, keys: Sequence[str]) -> list[Entry | None]:
        return [self._entries.get(key) for key in keys]

    def put(self, entries: Mapping[str, Entry]) -> None:
        self._entries.update(entries)
        while len(self._entries) > LIMIT:
            self._entries.popitem(last=False)

    def count(self) -> int:
        return len(self._entries)

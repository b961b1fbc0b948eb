"""Results by document and hole. A result belongs to the exact text of a hole, wherever it stands in the document.

A hole is recognised by kind, name and the text of its anchor (the whole kernel or class). Edits elsewhere move it;
an edit inside makes its results stale at once, and undoing that edit makes them good again.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote

from dice_engine.source.hole import Hole
from dice_engine.source.plan import Plan
from dice_engine.verify.verdict import CORRECT, Verdict

State = Literal["queued", "starting", "decoding", "checking", "done", "failed", "cancelled"]
ACTIVE: frozenset[str] = frozenset({"queued", "starting", "decoding", "checking"})
_LIMIT = 512


@dataclass(frozen=True)
class HoleId:
    """A hole's identity: what it is, and the digest of its text. ``twin`` numbers textually equal holes."""

    kind: str
    name: str
    digest: str
    twin: int = 0

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}:{self.digest}:{self.twin}"


@dataclass(frozen=True)
class Candidate:
    """A decoded core and what became of it; ``verdict`` is None until it was judged."""

    index: int
    core: str
    verdict: Verdict | None = None
    seconds: float = 0.0
    trace: Trace | None = None


@dataclass(frozen=True)
class Trace:
    """The ids of a candidate's tokens and the step inside its block at which each was settled."""

    tokens: tuple[int, ...]
    steps: tuple[int, ...]
    ends: tuple[int, ...]
    """How many tokens there were after each block."""


@dataclass
class Record:
    """The newest request for one hole and its results."""

    hole: HoleId
    context: str
    """Digest of the document around the hole when it was checked."""
    state: State = "queued"
    expected: int = 0
    """Candidates that were asked for."""
    decoded: int = 0
    tokens: dict[int, int] = field(default_factory=dict)
    """Tokens decoded so far, by candidate."""
    ends: dict[int, list[int]] = field(default_factory=dict)
    """How many tokens there were after each block, by candidate."""
    candidates: dict[int, Candidate] = field(default_factory=dict)
    message: str = ""
    plan: Plan | None = None
    """How the candidates are run."""
    checkpoint: str | None = None
    """The model's folder; None: the embedded one."""
    loaded: bool = False
    """Whether the engine had the model in memory when it was asked."""
    when: str = ""
    """When the request ended, ISO 8601."""

    @property
    def active(self) -> bool:
        return self.state in ACTIVE

    @property
    def judged(self) -> int:
        return sum(1 for item in self.candidates.values() if item.verdict is not None)

    @property
    def correct(self) -> int:
        return sum(1 for item in self.candidates.values() if item.verdict and item.verdict.verdict in CORRECT)

    def restart(self) -> None:
        """Back to the beginning: what was decoded and judged so far is given up."""
        self.state, self.expected, self.decoded = "queued", 0, 0
        self.tokens, self.ends, self.candidates = {}, {}, {}

    def offers(self) -> list[Candidate]:
        return ranked(self.candidates.values())


def ranked(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The candidates that may be offered, best first: measured ones by speedup, then unmeasured in their order.

    Of candidates that differ in nothing but spacing only the first is there.
    """
    offers = [
        (-(item.verdict.speedup or 0.0), item.index, item)
        for item in candidates
        if item.verdict is not None and item.verdict.offerable
    ]
    different: dict[str, Candidate] = {}
    for _, _, item in sorted(offers, key=lambda offer: offer[:2]):
        different.setdefault(squeezed(item.core), item)
    return list(different.values())


def squeezed(core: str) -> str:
    """A core with every stretch of white space as one space: what two texts have in common that say the same."""
    return " ".join(core.split())


def identify(holes: list[Hole]) -> list[tuple[HoleId, Hole]]:
    """The identity of every hole of a document, in their order."""
    data = holes[0].data if holes else b""
    seen: dict[HoleId, int] = {}
    result = []
    for hole in holes:
        anchor = data[hole.anchor[0] : hole.anchor[1]]
        core = data[hole.start_byte : hole.end_byte]
        digest = hashlib.sha256(anchor + b"\0" + core).hexdigest()[:16]
        base = HoleId(hole.kind, hole.name, digest)
        twin = seen.get(base, 0)
        seen[base] = twin + 1
        result.append((HoleId(hole.kind, hole.name, digest, twin), hole))
    return result


def context_digest(text: str, hole: Hole) -> str:
    """The digest of everything outside the hole's anchor: equal digests mean checked in exactly this file."""
    data = text.encode("utf-8", "surrogatepass")
    return hashlib.sha256(data[: hole.anchor[0]] + b"\0" + data[hole.anchor[1] :]).hexdigest()[:16]


class Store:
    """Records by document and hole, the oldest forgotten beyond a limit."""

    def __init__(self) -> None:
        self._records: OrderedDict[tuple[str, HoleId], Record] = OrderedDict()

    def get(self, uri: str, hole: HoleId) -> Record | None:
        return self._records.get((unquote(uri), hole))

    def put(self, uri: str, record: Record) -> Record:
        self._records[(unquote(uri), record.hole)] = record
        self._records.move_to_end((unquote(uri), record.hole))
        for key in list(self._records):
            if len(self._records) <= _LIMIT:
                break
            if not self._records[key].active:
                del self._records[key]
        return record

    def stale(self, uri: str, hole: HoleId) -> Record | None:
        """The newest results for an earlier text of this hole, when there are none for its present one."""
        if self.get(uri, hole) is not None:
            return None
        for (of, known), record in reversed(self._records.items()):
            if of == unquote(uri) and known.kind == hole.kind and known.name == hole.name and record.offers():
                return record
        return None

    def move(self, old: str, new: str) -> None:
        """A file or folder has another URI now."""
        for uri, hole in list(self._records):
            if _at_or_below(uri, unquote(old)):
                moved = unquote(new) + uri[len(unquote(old)) :]
                self._records[(moved, hole)] = self._records.pop((uri, hole))

    def forget(self, uri: str) -> None:
        """A file or folder is gone."""
        for key in [key for key in self._records if _at_or_below(key[0], unquote(uri))]:
            del self._records[key]

    def clear(self) -> int:
        """Forget everything that is finished; returns how many records that were."""
        ended = [key for key, record in self._records.items() if not record.active]
        for key in ended:
            del self._records[key]
        return len(ended)


def _at_or_below(uri: str, folder: str) -> bool:
    return uri == folder or uri.startswith(folder.rstrip("/") + "/")

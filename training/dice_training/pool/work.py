"""What a worker of a pool is asked, and how it answers: cores to judge, rows to make and check. Nothing of it waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from dice_engine.verify.verdict import CORRECT, Verdict

from dice_training.cuke.verify import Row, measurements, same_outputs, verify_row

if TYPE_CHECKING:
    from dice_engine.verify.session import Baseline, VerifySession

Make = Callable[[int], Row]
Device = Literal["cpu", "cuda"]
PATIENCE = 50.0
"""A candidate on a GPU may run this many times as long as its reference (and some seconds in any case)."""


@dataclass(frozen=True)
class Options:
    """How a pool judges: what verdicts depend on. Seconds: ``budget``, ``timeout`` and ``build_timeout`` are those of
    ``VerifySession``; ``trusted`` is for programs of our own making, which cannot mean to deceive."""

    device: Device
    baseline: Baseline = "eager"
    budget: float = 15.0
    timeout: float = 30.0
    build_timeout: float = 180.0
    trusted: bool = False

    def session(self, threads: int) -> VerifySession:
        """A session of that kind whose runners take ``threads`` CPU threads each."""
        from dice_engine.verify.session import VerifySession

        options = asdict(self)
        trusted = options.pop("trusted")
        return VerifySession(
            **options,
            isolation="warm",
            trusted_reference=True,
            trusted_candidate=trusted,
            threads=threads,
            # On a CPU kernels are emulated: how long the reference takes says nothing there.
            patience=None if self.device == "cpu" else PATIENCE,
        )


@dataclass(frozen=True)
class Judgement:
    verdict: Verdict
    plain: bool | None = None
    """Whether the outputs agree when nothing else is checked; None where that was not asked."""

    @property
    def correct(self) -> bool:
        return self.verdict.verdict in CORRECT


class Work(Protocol):
    """Some questions that one worker answers, one after another. Picklable."""

    @property
    def items(self) -> Sequence[Any]: ...

    @property
    def alone(self) -> bool:
        """Whether its GPU must do nothing else meanwhile."""
        ...

    def answer(self, session: VerifySession, item: Any) -> Any: ...

    def lost(self, item: Any, reason: str) -> Any:
        """The answer when nobody could give one: our fault."""
        ...


@dataclass(frozen=True)
class Share:
    """Cores of one row, whose reference is loaded once for all of them."""

    row: Row
    items: tuple[str, ...]
    measure: bool = False
    plain: bool = False

    @property
    def alone(self) -> bool:
        return self.measure

    def answer(self, session: VerifySession, item: str) -> Judgement:
        try:
            verdict = verify_row(session, self.row, item, measure=self.measure)
            plain = None
            if self.plain:
                plain = verdict.verdict in CORRECT or (
                    verdict.verdict in ("mismatch", "deceptive") and same_outputs(session, self.row, item)
                )
            return Judgement(verdict, plain)
        except Exception as error:  # the verifier's own failure is never the candidate's
            return self.lost(item, _own_failure(error))

    def lost(self, item: str, reason: str) -> Judgement:
        return Judgement(Verdict("infra_error", reason=reason))


@dataclass(frozen=True)
class Making:
    """Rows that are written (``make``, picklable, writes the row of an index) and then checked.

    ``measure``: timed too, in the checking process. The clock's lock keeps other clocks away, not others' checks.
    """

    make: Make
    items: tuple[int, ...]
    alone: bool = False
    measure: bool = False

    def answer(self, session: VerifySession, item: int) -> Row:
        row = self.make(item)
        if "verdict" not in row:  # a task that the teacher could not write has one already
            try:
                row |= measurements(verify_row(session, row, measure=self.measure))
            except Exception as error:  # a build of thousands of rows does not end for one of them
                row["verdict"] = Verdict("infra_error", reason=_own_failure(error)).to_json()
        return row

    def lost(self, item: int, reason: str) -> Row:
        verdict = Verdict("infra_error", reason=reason)
        return {"id": str(item), "kind": "", "family": "", "verdict": verdict.to_json()}


def _own_failure(error: Exception) -> str:
    return f"the verifier failed: {type(error).__name__}: {error}"

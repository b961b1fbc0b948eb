"""The processes that a session judges in: who gets a fresh one, a warm one, or one that is already open."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from dice_engine.verify.folder import SessionFolder
from dice_engine.verify.sandbox import Limits
from dice_engine.verify.spares import Spares
from dice_engine.verify.worker import Failed, Worker
from dice_engine.verify.zygote import Zygote, ZygoteError

_WARM_USES = 64
_SPARE_USES = 512


class Runners:
    """Opens, keeps and closes the runners of one session, below ``folder``.

    ``warm``: a candidate's runner that went well may serve the next one. ``ahead``: on a GPU the next candidate's is
    opened while the last verdict is read. ``one_reference``: the runner of a reference that makes room serves the
    next reference.
    """

    def __init__(
        self, folder: SessionFolder, cuda: bool, limits: Limits, warm: bool, ahead: bool, one_reference: bool
    ):
        self._folder = folder
        self._cuda = cuda
        self._limits = limits
        self._prefer_warm = warm
        self._warm: list[tuple[Worker, int]] = []
        self._one_reference = one_reference
        self.spare: list[Worker] = []
        """Of references that made room."""
        self._spares = Spares(self._open) if ahead else None
        self._retired = 0
        with contextlib.suppress(ZygoteError):
            Zygote.shared()
            self.prepare_next()

    def close(self) -> None:
        for worker in (*self.spare, *(worker for worker, _ in self._warm)):
            worker.close()
        if self._spares is not None:
            self._spares.close()

    @contextlib.contextmanager
    def for_candidate(self, kept: bool) -> Iterator[Worker]:
        """A runner for one candidate; it is ``kept`` for the next one where it went well."""
        worker, used = self._warm.pop() if kept and self._warm else (self._fresh(), 0)
        try:
            yield worker
        except Failed as failure:
            if failure.verdict not in ("mismatch", "build_error", "no_plan", "deceptive"):
                kept = False
            raise
        except BaseException:
            kept = False
            raise
        finally:
            if kept and not worker.dead and used < _WARM_USES:
                self._warm.append((worker, used + 1))
            elif self._spares is not None:
                self._spares.bury(worker)
            else:
                worker.close()

    def for_reference(self) -> Worker:
        """A runner that stays open; ``retire`` takes it back."""
        worker = self.spare.pop() if self.spare else self._open()
        worker.for_reference = True
        return worker

    def retire(self, worker: Worker) -> None:
        self._retired += 1
        fresh = self._retired % _SPARE_USES != 0  # a process for ever would meet its limit of CPU time
        if self._one_reference and fresh and not worker.dead and not self.spare:
            self.spare.append(worker)
        else:
            worker.close()

    def prepare_next(self) -> None:
        if self._spares is not None and not (self._prefer_warm and self._warm):
            self._spares.refill()

    def settle(self) -> None:
        """Nothing of ours may open or close a GPU while the clock runs."""
        if self._spares is not None:
            self._spares.settle()

    def _fresh(self) -> Worker:
        return self._spares.take() if self._spares is not None else self._open()

    def _open(self) -> Worker:
        try:
            zygote = Zygote.shared()
        except ZygoteError as error:
            raise Failed("infra_error", str(error)) from error
        self._folder.restore()
        return Worker(zygote, self._folder.path, self._cuda, self._limits)

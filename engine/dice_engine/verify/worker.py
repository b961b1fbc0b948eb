"""The judge's handle on one runner: requests with deadlines, and what its silence or its death means."""

from __future__ import annotations

import contextlib
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from dice_engine.verify.protocol import Channel, Closed, Deadline, ProtocolError
from dice_engine.verify.sandbox import Limits
from dice_engine.verify.verdict import VerdictName
from dice_engine.verify.zygote import NOT_SERVED, Child, Zygote, ZygoteError

NEEDS_HOST = "needs_host"
"""The rule of a Failed that asks the judge for precompiled headers; it never leaves the judge."""

NEEDS_COMPILER = "needs_compiler"
"""The rule of a Failed that asks for ``compile_hosts`` before the same request once more."""

_KINDS: dict[str, tuple[VerdictName, str | None]] = {
    "build_error": ("build_error", None),
    "unsafe": ("unsafe", None),
    "crash": ("crash", None),
    "host_error": ("crash", None),
    "launch_error": ("crash", "launch_error"),
    "no_plan": ("no_plan", None),
    "infra_error": ("infra_error", None),
    "needs_host": ("build_error", NEEDS_HOST),
    "needs_compiler": ("build_error", NEEDS_COMPILER),
}
_LOG_TAIL = 4096
_KILL_SECONDS = 15.0
"""A GPU may take seconds to let a process go; a zygote that reports no end for longer is stuck."""


class Failed(Exception):
    """A runner did not give an answer: ``verdict`` and ``rule`` say what that means for its program.

    ``doubtful``: it may be the machine's doing; judge once more before it counts.
    ``by_reference``: the program is the reference, which says nothing about the candidate.
    """

    by_reference = False

    def __init__(
        self,
        verdict: VerdictName,
        reason: str,
        rule: str | None = None,
        log: str = "",
        doubtful: bool = False,
    ):
        super().__init__(reason)
        self.doubtful = doubtful or verdict == "infra_error"
        self.verdict: VerdictName = verdict
        self.reason = reason
        self.rule = rule
        self.log = log


class Worker:
    """One forked runner with its own folder. Use as a context manager, or call ``close``.

    ``for_reference``: what it runs is the user's own; its failures are not a candidate's.
    """

    for_reference = False

    def __init__(self, zygote: Zygote, base: Path, cuda: bool, limits: Limits):
        self.folder = Path(tempfile.mkdtemp(prefix="run", dir=base))
        self._zygote = zygote
        self.dead = False
        try:
            self._child: Child = zygote.fork(self.folder, limits, cuda)
        except ZygoteError as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise Failed("infra_error", str(error)) from error
        self._channel = Channel(self._child.sock, self._child.nonce)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> bool:
        """Kill the runner and everything it started, and remove its folder. False when its zygote does not answer:
        then that is ended too, and a new one serves whoever comes next."""
        answered = True
        if not self.dead:
            self.dead = True
            self._channel.close()
            if self._zygote.kill(self._child, _KILL_SECONDS) is None and self._zygote.alive:
                answered = False
                self._zygote.abandon()
        shutil.rmtree(self.folder, ignore_errors=True)
        return answered

    def ask(self, request: str, timeout: float, *, building: float = 0.0, **fields: Any) -> Any:
        """One request and its answer. Raises Failed when there is none in time, or an error.

        ``timeout`` seconds are for the program; ``building`` more for its compilers, and only while they run.
        """
        try:
            return self._ask(request, timeout, building, fields)
        except Failed as failure:
            failure.by_reference = self.for_reference
            raise

    def _ask(self, request: str, timeout: float, building: float, fields: dict[str, Any]) -> Any:
        if self.dead:
            raise Failed("infra_error", "the process that ran this program has ended")
        doing = request.replace("_", " ")
        try:
            self._channel.send({"op": request, **fields}, timeout)
            reply = self._reply(timeout, building)
        except Deadline as deadline:
            if not self.close():
                reason = "the process that runners are forked from does not answer; a new one is started"
                raise Failed("infra_error", reason) from None
            raise Failed("timeout", f"no result after {deadline} ({doing})") from None
        except (Closed, ProtocolError) as error:
            raise self._obituary(error) from None
        except TypeError as error:
            raise Failed("no_plan", str(error)) from error
        if not isinstance(reply, dict) or not ("value" in reply or isinstance(reply.get("error"), dict)):
            raise self._obituary(ProtocolError("an answer of the wrong shape"))
        if "value" in reply:
            return reply["value"]
        error = reply["error"]
        verdict, rule = _KINDS.get(str(error.get("kind")), ("crash", None))
        raise Failed(verdict, str(error.get("message", "")), rule, str(error.get("log", "")))

    def _reply(self, running: float, building: float) -> Any:
        """The answer; messages before it say that compilers start or end. Raises Deadline with the seconds spent."""
        left, limit, compiles = {False: running, True: building}, {False: running, True: building}, False
        while True:
            begun = time.monotonic()
            try:
                if left[compiles] <= 0:
                    raise Deadline
                reply = self._channel.receive(max(0.1, left[compiles]))
            except Deadline:
                what = " of building" if compiles else ""
                raise Deadline(f"{limit[compiles]:.0f} s{what}") from None
            if not (isinstance(reply, dict) and set(reply) == {"building"}):
                return reply
            left[compiles] -= time.monotonic() - begun
            compiles = bool(reply["building"]) and building > 0

    def run_module(self, timeout: float, build_timeout: float, **fields: Any) -> Any:
        """A ``run_module`` request. Host code that must be compiled for it gets the time of a build, not of a run."""
        try:
            return self.ask("run_module", timeout, building=build_timeout, **fields)
        except Failed as failure:
            if failure.rule != NEEDS_COMPILER:
                raise
            self.ask("compile_hosts", build_timeout, reason=failure.reason)
        return self.ask("run_module", timeout, building=build_timeout, **fields)

    def _obituary(self, error: Exception) -> Failed:
        ended = self._zygote.wait(self._child, 2.0)
        words = self.log()
        self.close()
        if self.for_reference:  # it has no reason to deceive: whatever ended it, once more
            return Failed("crash", f"its process ended ({ended or error})", None, words, doubtful=True)
        if isinstance(error, ProtocolError):
            return Failed("crash", f"it sent {error}", "forged_result", words)
        if ended is None:
            if not self._zygote.alive:
                return Failed("infra_error", "the process that runners are forked from has died; try again")
            return Failed("crash", "it closed its connection to the judge", "forged_result", words)
        if ended.code == 0 or '"verdict"' in words:
            return Failed("crash", f"its process ended ({ended}) without an answer", "forged_result", words)
        last = words.strip().splitlines()[-1][:200] if words.strip() else ""
        reason = f"its process ended: {ended}{': ' + last if last else ''}"
        return Failed(
            "crash", reason, None, words, doubtful=ended.signal == signal.SIGKILL or ended.code == NOT_SERVED
        )

    def log(self) -> str:
        """The end of what the program printed."""
        with contextlib.suppress(OSError), (self.folder / "output.log").open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _LOG_TAIL))
            return file.read().decode(errors="replace")
        return ""

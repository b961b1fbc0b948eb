"""Verify children for one device: started when needed, one request each at a time, killed and replaced when stuck."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys

from dice_engine import wire
from dice_engine.devices import gpu_name
from dice_engine.verify.verdict import Verdict

log = logging.getLogger(__name__)

ANSWER_TIMEOUT = 600.0
"""The session has its own, much shorter limits for each stage; this one is for a session that is itself stuck."""
END_TIMEOUT = 3.0
COMMAND = (sys.executable, "-m", "dice_engine.verify_worker")


class VerifyPool:
    def __init__(self, device: wire.Device) -> None:
        self._device = device
        # Timing must have the GPU to itself; on a CPU nothing is timed, and builds use one core each.
        alone = device == "cuda" or (device == "auto" and gpu_name() is not None)
        self._free = asyncio.Semaphore(1 if alone else max(1, min(4, os.cpu_count() or 1)))
        self._idle: list[asyncio.subprocess.Process] = []
        self._ending: set[asyncio.Task[None]] = set()
        self._busy = 0
        self._warming: asyncio.Task[None] | None = None

    def warm(self) -> None:
        """Start a child while the first candidates are still being decoded: its imports take seconds."""
        if not self._idle and not self._busy and (self._warming is None or self._warming.done()):
            self._warming = asyncio.ensure_future(self._warm())

    async def _warm(self) -> None:
        with contextlib.suppress(OSError):  # the verification that comes says what is wrong
            self._idle.append(await self._start())

    async def verify(self, request: wire.VerifyRequest) -> Verdict:
        """The verdict; ``infra_error`` when the child dies or does not answer. Cancelling ends the child."""
        if self._warming is not None:
            await asyncio.shield(self._warming)
        async with self._free:
            child = self._take()
            self._busy += 1
            keep = False
            try:
                child = child or await self._start()
                verdict = await asyncio.wait_for(_ask(child, request), ANSWER_TIMEOUT)
                keep = verdict is not None
                return verdict or await self._died(child)
            except asyncio.TimeoutError:
                return Verdict(
                    "infra_error", reason=f"the verifier gave no answer within {ANSWER_TIMEOUT:.0f} s"
                )
            except OSError as error:
                return Verdict("infra_error", reason=f"the verifier cannot be run: {error}")
            finally:
                self._busy -= 1
                if child is not None:
                    if keep:
                        self._idle.append(child)
                    else:
                        self._end_later(child)

    async def close(self) -> None:
        """End the idle children and wait for those that are ending. Children at work are ended by cancelling their
        requests."""
        if self._warming is not None:
            await self._warming
        children, self._idle = self._idle, []
        await asyncio.gather(*(_end(child) for child in children), *self._ending)

    def _end_later(self, child: asyncio.subprocess.Process) -> None:
        # Not awaited: this runs while the request's own task is being cancelled.
        task = asyncio.ensure_future(_end(child))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _take(self) -> asyncio.subprocess.Process | None:
        while self._idle:
            child = self._idle.pop()
            if child.returncode is None:
                return child
        return None

    async def _start(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *COMMAND,
            "--device",
            self._device,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=wire.MAX_FRAME,
        )

    async def _died(self, child: asyncio.subprocess.Process) -> Verdict:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(child.wait(), 2)
        how = f"exit {child.returncode}" if (child.returncode or 0) >= 0 else f"signal {-child.returncode}"  # type: ignore[operator]
        log.warning("a verify child died: %s", how)
        return Verdict("infra_error", reason=f"the verifier itself died ({how}); the engine's log has more")


async def _ask(child: asyncio.subprocess.Process, request: wire.VerifyRequest) -> Verdict | None:
    """None: the child died before it answered."""
    assert child.stdin is not None and child.stdout is not None
    try:
        child.stdin.write(wire.encode(request))
        await child.stdin.drain()
        answer = await wire.read(child.stdout)
    except (OSError, wire.WireError):
        return None
    return answer.verdict if isinstance(answer, wire.VerdictEvent) else None


async def _end(child: asyncio.subprocess.Process) -> None:
    """SIGTERM first, so that the session can end its own children (they are sessions of their own)."""
    with contextlib.suppress(ProcessLookupError):
        if child.returncode is None:
            child.terminate()
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(child.wait(), END_TIMEOUT)
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            if hasattr(os, "killpg"):
                os.killpg(child.pid, signal.SIGKILL)
            else:
                child.kill()
        await child.wait()

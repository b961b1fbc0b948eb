"""The compiler behind diagnostics and ghost text: a child process that is asked, and replaced when it dies or hangs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

_LIMIT_S = 20.0
_LINE_LIMIT = 64 * 2**20


@dataclass(frozen=True)
class Problem:
    """As ``dice_engine.compile_check.Problem``: line from 0, column in bytes from 0."""

    line: int
    column: int
    severity: str
    message: str


@dataclass(frozen=True)
class Report:
    """``backend`` is empty when nothing could be checked; ``error`` says why."""

    backend: str
    problems: list[Problem]
    seconds: float
    error: str


class Compiler:
    """At most one child, started when it is needed. Only for code of workspaces that are trusted."""

    def __init__(self) -> None:
        self._child: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def check(
        self,
        text: str,
        flags: Sequence[str] = (),
        instances: Sequence[tuple[str, tuple[str, ...]]] = (),
    ) -> Report:
        """The compiler's view of a CUDA text. Never raises for what the compiler or its process does."""
        async with self._turn:
            work = asyncio.ensure_future(
                self._ask({"text": text, "flags": list(flags), "instances": instances})
            )
            try:
                return await asyncio.shield(work)
            except asyncio.CancelledError:
                # The child is still busy with this question: its answer must be read before the next one.
                await asyncio.wait([work])
                raise

    def close(self) -> None:
        if self._child is not None and self._child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._child.kill()
        self._child = None

    async def _ask(self, question: dict[str, object]) -> Report:
        try:
            child = await self._started()
            assert child.stdin is not None and child.stdout is not None
            child.stdin.write(json.dumps(question).encode() + b"\n")
            await child.stdin.drain()
            line = await asyncio.wait_for(child.stdout.readline(), _LIMIT_S)
            answer = json.loads(line)
        except asyncio.TimeoutError:
            self.close()
            return Report("", [], _LIMIT_S, f"the compiler gave no answer within {_LIMIT_S:.0f} s")
        except (OSError, ValueError) as error:
            self.close()
            return Report("", [], 0.0, f"the compiler's process ended: {error}")
        problems = [Problem(**problem) for problem in answer["problems"]]
        return Report(answer["backend"], problems, answer["seconds"], answer["error"])

    async def _started(self) -> asyncio.subprocess.Process:
        if self._child is None or self._child.returncode is not None:
            self._child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "dice_engine.compile_check"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                cwd=tempfile.gettempdir(),
                env={**os.environ, "PYTHONSAFEPATH": "1"},
                limit=_LINE_LIMIT,
            )
        return self._child

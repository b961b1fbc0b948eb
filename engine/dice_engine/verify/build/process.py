"""Run a compiler as a killable process group."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from dice_engine.verify.build.interface import BuildError, InfraError

# What the drivers of GCC, Clang and nvcc, and GCC's collect2, say of a child that was killed.
_KILLED = re.compile(
    r"Killed signal terminated program|terminated with signal 9|killed by signal 9|unable to execute command: Killed"
    r"|died due to signal 9"
)


class Builds:
    """Tells one listener when this process starts to compile and when it has done: builds have a time of their own."""

    listener: Callable[[bool], None] | None = None
    _lock = threading.Lock()
    _running = 0
    _groups: ClassVar[set[int]] = set()
    """Process groups of the compilers that run now."""

    @classmethod
    def kill(cls) -> None:
        """Kill every compiler that this process runs."""
        for group in tuple(cls._groups):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)

    @classmethod
    @contextlib.contextmanager
    def killable(cls, group: int) -> Iterator[None]:
        """Around the life of a compiler."""
        cls._groups.add(group)
        try:
            yield
        finally:
            cls._groups.discard(group)

    @classmethod
    @contextlib.contextmanager
    def one(cls) -> Iterator[None]:
        """Around a build; builds may overlap and nest."""
        cls._count(1)
        try:
            yield
        finally:
            cls._count(-1)

    @classmethod
    def _count(cls, change: int) -> None:
        with cls._lock:
            before, cls._running = cls._running, cls._running + change
            if cls.listener is not None and bool(before) != bool(cls._running):
                cls.listener(bool(cls._running))


def run_compiler(command: Sequence[str | Path], folder: Path, timeout: float, what: str) -> tuple[int, str]:
    """Exit status and output of ``command`` run in ``folder``, which is also its place for temporary files.

    Everything that it started is killed after ``timeout`` seconds (BuildError) and when this call is interrupted.
    Raises InfraError when it does not start, is killed from outside or finds no room on the disk.
    """
    environment = {**os.environ, "TMPDIR": str(folder), "LC_ALL": "C", "CCACHE_DISABLE": "1"}
    try:
        process = subprocess.Popen(
            [str(part) for part in command],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise InfraError(f"{command[0]} does not start: {error.strerror}") from None
    try:
        with Builds.one(), Builds.killable(process.pid):
            output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        raise BuildError(f"{what} did not finish in {timeout:.0f} s") from None
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    log = output.decode(errors="replace")
    if process.returncode < 0 or _KILLED.search(log):
        raise InfraError(f"{what} was killed from outside: too little memory?")
    if "No space left on device" in log:
        raise InfraError(f"no room on the disk under {folder}")
    return process.returncode, log

"""Where a command's text comes from and goes to: files that end, and standard output that may be closed or full."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path


def read_text(path: Path) -> str:
    """A file's text. Raises OSError, also for a pipe or a device, which may never end, and UnicodeDecodeError."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return path.read_bytes().decode("utf-8")


def with_output(name: str, command: Callable[[], int]) -> int:
    """Run a command and see that what it printed has arrived: its exit status, or ours with one line that says why.

    Without a standard output it prints to nowhere.
    """
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  (as long as the process)
    try:
        code = command()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader (``| head``) has seen enough
        _silence()
        return 141
    except OSError as error:
        _silence()
        where = f"{error.filename}: " if error.filename else ""
        print(f"{name}: {where}{error.strerror or error}", file=sys.stderr)
        return 2
    return code


def _silence() -> None:
    """Nothing may be flushed to standard output at exit either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

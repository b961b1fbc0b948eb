"""The client's two pipes: what is read from the one and written to the other."""

from __future__ import annotations

import re
import sys
from typing import BinaryIO

_LENGTH = re.compile(rb"content-length\s*:\s*(\d+)\s*", re.IGNORECASE)
_MOST_DIGITS = 9
"""Nobody sends a gigabyte in one message."""


class Requests:
    """What the client sends. Headers come out as pygls wants them: it skips a message over a letter's case."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def readline(self) -> bytes:
        line = self._stream.readline()
        length = _LENGTH.fullmatch(line)
        if length is None:
            return line
        if len(length[1]) > _MOST_DIGITS:
            print("dice-ls: the client announces a message of more than a gigabyte: the end", file=sys.stderr)
            return b""
        return b"Content-Length: %s\r\n" % length[1]

    def read(self, size: int) -> bytes:
        return self._stream.read(size)


class Answers:
    """What the client gets. After it is gone, writing does nothing."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._gone = False

    def write(self, data: bytes) -> int:
        if not self._gone:
            try:
                self._stream.write(data)
                self._stream.flush()
            except (OSError, ValueError):
                self._gone = True
                print("dice-ls: the client closed the connection", file=sys.stderr)
        return len(data)

    def flush(self) -> None:
        """Nothing is held back: ``write`` flushes."""

    def close(self) -> None:
        self._gone = True

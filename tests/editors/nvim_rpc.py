"""Neovim driven over its own RPC: msgpack requests on the socket of ``nvim --listen``."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack


class NvimError(Exception):
    """Neovim answered with an error."""


class Nvim:
    """One session. ``lua`` runs a chunk and returns its value; ``keys`` types as a person would."""

    def __init__(self, address: Path, timeout: float = 60) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(timeout)
        deadline = time.monotonic() + timeout
        while True:
            try:
                self._socket.connect(str(address))
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
        self._unpacker = msgpack.Unpacker(raw=False, strict_map_key=False, unicode_errors="surrogateescape")
        self._next = 0

    def request(self, method: str, *arguments: Any) -> Any:
        self._next += 1
        self._socket.sendall(msgpack.packb([0, self._next, method, list(arguments)]))
        while True:
            for message in self._unpacker:
                if message[0] == 1 and message[1] == self._next:
                    if message[2] is not None:
                        raise NvimError(message[2][1])
                    return message[3]
            data = self._socket.recv(65536)
            if not data:
                raise NvimError("Neovim ended")
            self._unpacker.feed(data)

    def lua(self, code: str, *arguments: Any) -> Any:
        return self.request("nvim_exec_lua", code, list(arguments))

    def keys(self, keys: str) -> None:
        self.request("nvim_input", keys)

    def lines(self) -> list[str]:
        return self.request("nvim_buf_get_lines", 0, 0, -1, False)

    def until(self, code: str, timeout: float = 90) -> Any:
        """Wait until the Lua expression is neither nil, false nor empty; returns its value."""
        return until(lambda: self.lua(f"return {code}"), code, timeout)

    def close(self) -> None:
        self._socket.close()


def until(what: Callable[[], Any], name: str, timeout: float = 90) -> Any:
    deadline = time.monotonic() + timeout
    while not (value := what()):
        assert time.monotonic() < deadline, f"waited {timeout:.0f} s in vain for: {name}"
        time.sleep(0.03)
    return value

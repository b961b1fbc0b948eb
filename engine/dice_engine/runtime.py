"""Where the engine process is found: its folder, address, token and locks. No torch here."""

from __future__ import annotations

import os
import secrets
import socket
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

UNIX_SOCKETS = hasattr(socket, "AF_UNIX") and sys.platform != "win32"
# The limit of sun_path is 108 bytes on Linux and 104 on macOS, with the final zero.
_LONGEST_ADDRESS = 100


class EngineError(RuntimeError):
    """The engine cannot be reached or refuses; one line that says what to do."""


def socket_dir() -> Path:
    """The folder of the socket, token and log: ``DICE_RUNTIME_DIR``, else the user's runtime folder."""
    chosen = os.environ.get("DICE_RUNTIME_DIR")
    if chosen:
        return Path(chosen)
    with warnings.catch_warnings():
        # Without XDG_RUNTIME_DIR it falls back to a folder in /tmp and warns; prepare_dir checks whose that is.
        warnings.simplefilter("ignore")
        return Path(platformdirs.user_runtime_dir("dice-ls", appauthor=False))


def prepare_dir() -> Path:
    """Make :func:`socket_dir` for this user only (mode 0700). Raises :class:`EngineError` when that cannot be."""
    folder = socket_dir()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if sys.platform != "win32":
            info = folder.stat()
            if info.st_uid != os.getuid():
                raise EngineError(
                    f"{folder} belongs to another user; set DICE_RUNTIME_DIR to a folder of your own"
                )
            if info.st_mode & 0o077:
                folder.chmod(0o700)
    except OSError as error:
        raise EngineError(
            f"cannot use {folder} for the engine's socket: {error.strerror}; set DICE_RUNTIME_DIR to one of your own"
        ) from None
    if UNIX_SOCKETS and len(os.fsencode(socket_path())) > _LONGEST_ADDRESS:
        raise EngineError(
            f"{socket_path()} is too long for a socket; set DICE_RUNTIME_DIR to a shorter folder"
        )
    return folder


def socket_path() -> Path:
    return socket_dir() / "engine.sock"


def token_path() -> Path:
    """Where there are no Unix sockets: a file with the loopback port and the secret, readable by this user only."""
    return socket_dir() / "engine.token"


def host_path() -> Path:
    """While the engine of another machine is forwarded here: a file with that machine's name."""
    return socket_dir() / "engine.host"


def forwarded_from() -> str | None:
    """The machine whose engine is forwarded here; None when that is not so (any more)."""
    try:
        host = host_path().read_text(encoding="utf-8")
        with lock("engine.lock", wait=False) as held:
            return None if held else host
    except OSError:
        return None


def log_path() -> Path:
    return socket_dir() / "engine.log"


def share_cores() -> None:
    """Let the threads of torch sleep while they wait for each other; to be called before torch is imported.

    They spin by default, which next to compilers that want the same cores made a decoding pass 2 to 4 times slower
    (nano's shape, 2 cores, load 6 to 8, runs of both kinds in turn).
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def write_token(port: int) -> str:
    token = secrets.token_hex(32)
    path = token_path()
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(f"{port} {token}")
    return token


def read_token() -> tuple[int, str] | None:
    """(port, token) of the running service; None when there is none."""
    try:
        port, token = token_path().read_text().split()
        return int(port), token
    except (OSError, ValueError):
        return None


@contextmanager
def lock(name: str, wait: bool) -> Iterator[bool]:
    """An exclusive lock between processes, freed when its holder dies. Yields False when ``wait`` is False and another
    process holds it."""
    path = socket_dir() / name
    with path.open("a+b") as file:
        held = _lock(file.fileno(), wait)
        try:
            yield held
        finally:
            if held:
                _unlock(file.fileno())


if sys.platform == "win32":
    import msvcrt
    import time

    def _lock(descriptor: int, wait: bool) -> bool:
        while True:
            try:
                os.lseek(descriptor, 0, os.SEEK_SET)
                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
                return True
            except OSError:
                if not wait:
                    return False
                time.sleep(0.1)

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int, wait: bool) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            return True
        except BlockingIOError:
            return False

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)

"""Ctrl-C while a session judges: all that it started ends, its folder goes, and so does this process, at once."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator

INTERRUPTED = 130


@contextlib.contextmanager
def ends_at_once(abandon: Callable[[], None]) -> Iterator[None]:
    """Call ``abandon`` and end this process with status 130 when SIGINT comes. For the main thread.

    A thread of its own does it, because the main one may be in torch or wait for others, and an exception there would
    first have to find its way out of all of them.
    """
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)

    def wait() -> None:
        while (numbers := ours.recv(16)) and signal.SIGINT not in numbers:
            pass
        if numbers:
            with contextlib.suppress(Exception):
                abandon()
            os._exit(INTERRUPTED)

    threading.Thread(target=wait, name="interrupt", daemon=True).start()
    before = signal.signal(signal.SIGINT, lambda *_: None)
    wakeup = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGINT, before)
        theirs.close()

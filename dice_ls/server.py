"""``dice-ls``: the language server's entry point and its wiring. Features are one file each under ``features/``."""

from __future__ import annotations

import gc
import logging
import os
import sys
from typing import TYPE_CHECKING, BinaryIO, cast

if TYPE_CHECKING:
    from dice_ls.language_server import DiceServer


def create_server() -> DiceServer:
    """A server with every feature registered. Imports happen here, so that ``main`` controls when."""
    from dice_ls import lazy_types

    lazy_types.load()

    from dice_ls import features
    from dice_ls.language_server import DiceServer

    server = DiceServer()
    for feature in features.all_features():
        feature.register(server)
    return server


def main() -> None:
    """Serve on standard input and output, or as ``--tcp`` or ``--ws`` say (``--host``, ``--port``)."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="dice-ls: %(levelname)s %(message)s")
    # What a client has sent wrongly is answered, and said by ``protocol.py`` in one line; pygls adds its traceback.
    logging.getLogger("pygls").setLevel(logging.CRITICAL)
    arguments = sys.argv[1:]
    stdio = not {"--tcp", "--ws", "-h", "--help", "--version"}.intersection(arguments)
    requests, answers = _take_stdio() if stdio else (None, None)
    # Nothing that is made while modules are imported is garbage.
    gc.disable()
    server = create_server()
    gc.freeze()
    gc.enable()
    # Looking at everything that lives takes longer than any answer: that waits until nobody types (``diagnostics.py``).
    gc.set_threshold(20_000, 20, 1_000)
    # Large files are read in a thread: requests get their turn after a millisecond of that, not after five.
    sys.setswitchinterval(0.001)
    if requests is not None and answers is not None:
        from dice_ls.pipes import Answers, Requests

        server.start_io(cast(BinaryIO, Requests(requests)), cast(BinaryIO, Answers(answers)))
        sys.exit(0 if server.protocol.was_shut_down else 1)
    if "--version" in arguments:
        print(f"dice-ls {server.version}")
        return
    from pygls.cli import start_server

    start_server(server, arguments)


def _take_stdio() -> tuple[BinaryIO, BinaryIO]:
    """The client's pipe, moved away from descriptors 0 and 1.

    Standard output is the protocol: whatever else prints there, here or in a child, would end the session. After
    this, descriptor 1 is standard error and descriptor 0 is empty for us and for every child.
    """
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdout = sys.stderr
    return requests, answers


if __name__ == "__main__":
    main()

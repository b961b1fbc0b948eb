"""``python -m dice_engine.start MODULE ARGUMENTS``: a part of the command line that Ctrl-C ends from its first moment.

While a part imports what it needs (torch takes seconds, and does not look up meanwhile) Ctrl-C ends the process as
it ends a C program: at once and without a word. A part that leaves something behind takes the signal over itself.
"""

from __future__ import annotations

import signal
import sys
from importlib import import_module
from importlib.util import find_spec

from dice_engine.streams import with_output


def main(arguments: list[str]) -> int:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    name, *rest = arguments
    whole = find_spec(name)
    if whole is not None and whole.submodule_search_locations is not None:
        name += ".__main__"
    return with_output("dice", lambda: int(import_module(name).main(rest) or 0))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

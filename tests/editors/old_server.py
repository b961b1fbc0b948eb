"""``dice-ls`` as it was before lenses, ghost text and evidence: the same code with those features left out."""

from __future__ import annotations

import os
import sys

from dice_ls.features import code_actions, commands, configuration, documents, lifecycle
from dice_ls.language_server import DiceServer
from dice_ls.status import StatusReporter

OLD = {"dice.findFaster", "dice.applySuggestion", "dice.insertAnnotation", "dice.cancel"}


def main() -> None:
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    server = DiceServer()
    for feature in (lifecycle, configuration, documents, code_actions, commands):
        feature.register(server)
    for name in set(server.protocol.fm.commands) - OLD:
        del server.protocol.fm.commands[name]
    server.status = StatusReporter(lambda _method, _status: None)
    server.start_io(requests, answers)


if __name__ == "__main__":
    sys.exit(main())

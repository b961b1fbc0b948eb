"""``python -m dice_training cuke|train|eval|verify-pool ...``: dispatches, importing only what the command needs."""

from __future__ import annotations

import signal
import sys

_USE = "usage: python -m dice_training {cuke,train,eval,verify-pool} ..."


def main(argv: list[str] | None = None) -> int:
    args = sys.argv[1:] if argv is None else argv
    if not args or args[0] in ("-h", "--help"):
        print(_USE)
        return 0 if args else 2
    command, rest = args[0], args[1:]
    if command == "cuke":
        from dice_training.cuke.cli import main as run
    elif command == "train":
        from dice_training.train_cli import main as run
    elif command == "eval":
        from dice_training.evaluate.cli import main as run
    elif command == "verify-pool":
        from dice_training.pool.command import main as run
    else:
        print(f"error: unknown command {command!r}; {_USE}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGINT, signal.default_int_handler)  # from here on each command stops in its own way
    return run(rest)


if __name__ == "__main__":
    sys.exit(main())

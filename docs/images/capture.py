"""Runs a command in a terminal of 110 columns and saves what it shows as an SVG: how the pictures here are made.

python docs/images/capture.py docs/images/suggest.svg dice suggest examples/tanh_norm.py -n 4
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import sys
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS, LINES = 110, 46


def run(command: list[str]) -> str:
    """What ``command`` prints to a terminal, with colours, carriage returns resolved."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS))
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 200, COLUMNS, 0, 0))
    shown = io.BytesIO()
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:
            break
        if not data:
            break
        shown.write(data)
    os.waitpid(child, 0)
    return shown.getvalue().decode("utf-8", "replace").replace("\r\n", "\n")


def main() -> int:
    target, command = Path(sys.argv[1]), sys.argv[2:]
    lines = [line.split("\r")[-1] for line in run(command).split("\n")]
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(f"$ {' '.join(command)}"))
    for line in lines[:LINES]:
        console.print(Text.from_ansi(line))
    console.save_svg(str(target), title=command[0])
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A terminal for editors that need one: tmux of 124 columns, whose picture becomes an SVG."""

from __future__ import annotations

import io
import os
import subprocess
from pathlib import Path

from conftest import needs
from rich.ansi import AnsiDecoder
from rich.console import Console
from rich.terminal_theme import TerminalTheme

COLUMNS, LINES = 124, 38
_NORMAL = [(62, 68, 81), (224, 108, 117), (152, 195, 121), (229, 192, 123)]
_NORMAL += [(97, 175, 239), (198, 120, 221), (86, 182, 194), (197, 200, 198)]
_BRIGHT = [(140, 148, 158), (255, 123, 114), (126, 231, 135), (240, 206, 130)]
_BRIGHT += [(121, 192, 255), (210, 168, 255), (118, 227, 234), (255, 255, 255)]
THEME = TerminalTheme((20, 22, 27), (197, 200, 198), _NORMAL, _BRIGHT)
"""The background is Neovim's own: cells that name it must not stand out."""


class Screen:
    """One tmux server of its own, ended by ``close``."""

    def __init__(self, folder: Path, command: list[str], environment: dict[str, str], cwd: Path) -> None:
        self._tmux = [
            needs("tmux", "tmux"),
            "-f",
            os.devnull,
            "-S",
            str(folder / f"tmux-{len(list(folder.glob('tmux*')))}"),
        ]
        size = ["-x", str(COLUMNS), "-y", str(LINES)]
        given = {
            **os.environ,
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
            **environment,
        }
        for name in ("TMUX", "COLUMNS", "LINES"):  # of the terminal that the tests run in
            given.pop(name, None)
        start = [
            *self._tmux,
            "-u",
            "new-session",
            "-d",
            "-s",
            "editor",
            *size,
            "-c",
            str(cwd),
            "--",
            *command,
        ]
        subprocess.run(start, env=given, check=True, timeout=20)
        subprocess.run([*self._tmux, "set", "-g", "status", "off"], check=True, timeout=20)

    def text(self, colours: bool = False) -> str:
        extra = ["-e"] if colours else []
        command = [*self._tmux, "capture-pane", "-p", *extra, "-t", "editor"]
        return subprocess.run(command, check=True, timeout=20, capture_output=True, text=True).stdout

    def keys(self, *keys: str) -> None:
        subprocess.run([*self._tmux, "send-keys", "-t", "editor", *keys], check=True, timeout=20)

    def save(self, path: Path, title: str, whole: bool = True) -> None:
        """The picture of the terminal as an SVG; not ``whole``: without empty lines at its end."""
        console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
        decoder = AnsiDecoder()  # one for all lines: colours go on over their ends
        text = self.text(colours=True)
        for line in (text if whole else text.rstrip()).split("\n")[:LINES]:
            console.print(decoder.decode_line(line), overflow="crop", no_wrap=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        console.save_svg(str(path), title=title, theme=THEME)

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], timeout=20, capture_output=True)

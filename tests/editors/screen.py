"""A terminal for editors that need one: tmux of 124 columns, whose picture becomes an SVG."""

from __future__ import annotations

import io
import os
import subprocess
from pathlib import Path

from conftest import needs
from rich.ansi import AnsiDecoder
from rich.color_triplet import ColorTriplet
from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME as THEME

COLUMNS, LINES = 124, 38
BACKGROUND = ColorTriplet(20, 22, 27)
"""Neovim's own: cells that name it must not stand out."""


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
        given.pop("TMUX", None)
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
        THEME.background_color = BACKGROUND
        console.save_svg(str(path), title=title, theme=THEME)

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], timeout=20, capture_output=True)

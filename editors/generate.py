"""Writes what editors know of the server's settings and commands, from the server's own schema.

``python editors/generate.py`` writes the files; ``--check`` only says which of them are out of date (exit 1).
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

from dice_ls.settings import schema

HERE = Path(__file__).parent


def main(arguments: list[str]) -> int:
    stale = []
    for path, render in FILES.items():
        before = path.read_text(encoding="utf-8")
        after = render(before)
        if before == after:
            continue
        stale.append(path.relative_to(HERE))
        if "--check" not in arguments:
            path.write_text(after, encoding="utf-8")
    for path in stale:
        print(
            f"editors/{path}: {'out of date, run editors/generate.py' if '--check' in arguments else 'written'}"
        )
    return 1 if stale and "--check" in arguments else 0


def between(before: str, start: str, end: str, text: str) -> str:
    """``before`` with what stands between the lines ``start`` and ``end`` replaced."""
    pattern = re.compile(rf"({re.escape(start)}\n).*?(?=^{re.escape(end)})", re.DOTALL | re.MULTILINE)
    assert pattern.search(before), f"no place for generated text after {start!r}"
    return pattern.sub(lambda found: found[1] + text, before)


def vim_help(before: str) -> str:
    lines = []
    for one in schema():
        if one["side"] == "client":
            continue
        name = one["key"].removeprefix("dice.")
        allowed = ", ".join(one.get("enum", []))
        limits = f"{one['minimum']} to {one['maximum']}" if "minimum" in one else ""
        about = one["description"] + (f" ({allowed or limits})" if allowed or limits else "")
        default = {None: "nil"}.get(one["default"], json.dumps(one["default"]).replace('"', "'"))
        lines.append(f"{name}  (default {default})")
        lines += textwrap.wrap(about, 74, initial_indent="    ", subsequent_indent="    ")
    return between(
        before,
        "They go into `settings` of |dice.setup()|.",
        "=====",
        "\n" + "\n".join(lines) + "\n\n",
    )


FILES: dict[Path, Callable[[str], str]] = {HERE / "neovim" / "doc" / "dice.txt": vim_help}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What `make demo` runs: `dice suggest -n 3` on three files, with the model that ships with the package.

Nothing is written into the files. Exit status 1 when fewer than two of them got a rewrite that may be offered.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich import box
from rich.table import Table

from dice_ls.suggest_view import console

ROOT = Path(__file__).resolve().parents[1]
DICE = [sys.executable, "-m", "dice_ls.cli"]
NEEDED = 2
CANDIDATES = 3
"""Fewer than the eight that `dice suggest` decodes by itself: a correct one takes some seconds to check without a GPU."""


def main() -> int:
    started = time.monotonic()
    screen = console()
    summary = Table(box=box.SIMPLE, title="dice suggest", title_justify="left")
    for heading in ("place", "outcome", "seconds"):
        summary.add_column(heading, justify="right" if heading == "seconds" else "left")
    places, offered = _places(), 0
    with tempfile.TemporaryDirectory(prefix="dice-demo-") as runtime:
        environment = _environment(runtime)
        try:
            for place in places:
                screen.rule(f"dice suggest {place} -n {CANDIDATES}", align="left")
                begun = time.monotonic()
                status, outcome = _suggest(place, environment)
                if status not in (0, 1):
                    _show_log(Path(runtime) / "engine.log")
                    return status
                offered += status == 0
                summary.add_row(place, outcome, f"{time.monotonic() - begun:.1f}")
        finally:
            # The first `dice suggest` has started the engine, the others have used it.
            subprocess.run([*DICE, "serve", "--stop"], env=environment, cwd=ROOT, capture_output=True)
    screen.print(summary)
    screen.print(
        f"{offered} of {len(places)} files got a rewrite that may be offered; {time.monotonic() - started:.0f} seconds"
    )
    if offered < NEEDED:
        screen.print(f"the demo has failed: it needs {NEEDED}", style="red")
    return 0 if offered >= NEEDED else 1


def _places() -> list[str]:
    """A CUDA kernel, the CUDA source inside a Python file, and a plain PyTorch module."""
    inline = Path("examples/gated_rms_norm.py")
    lines = (ROOT / inline).read_text(encoding="utf-8").splitlines()
    core = next(number for number, line in enumerate(lines, 1) if line.startswith("cuda_source ="))
    return ["examples/row_magnitude.cu", f"{inline}:{core}", "examples/tanh_norm.py"]


def _environment(runtime: str) -> dict[str, str]:
    """An engine of the demo's own, and the terminal's looks although the output passes through this process."""
    environment = {**os.environ, "DICE_RUNTIME_DIR": runtime}
    if sys.stdout.isatty():
        environment.setdefault("FORCE_COLOR", "1")
        environment.setdefault("COLUMNS", str(shutil.get_terminal_size().columns))
    return environment


def _show_log(log: Path) -> None:
    """What the engine said last: the file is gone when the demo has ended."""
    if log.is_file():
        print("".join(log.read_text(errors="replace").splitlines(keepends=True)[-20:]), file=sys.stderr)


def _suggest(place: str, environment: dict[str, str]) -> tuple[int, str]:
    """Run `dice suggest`, showing what it says as it comes; its exit status and its sentence about the outcome."""
    said = b""
    command = [*DICE, "suggest", place, "-n", str(CANDIDATES)]
    with subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while chunk := os.read(process.stdout.fileno(), 1 << 16):
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
            said += chunk
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said.decode(errors="replace"))
    sentences = re.findall(r"^`\w+`: (.*)", text, re.MULTILINE)
    return process.returncode, sentences[-1].strip() if sentences else "no answer"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)

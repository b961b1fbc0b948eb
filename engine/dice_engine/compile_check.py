"""Compiler errors of CUDA text, without building anything: ``python -m dice_engine.compile_check`` answers on a pipe.

One JSON object a line: ``{"text", "flags", "instances"}`` in, ``{"backend", "problems", "seconds", "error"}`` out. It
is a process of its own so that a compiler that crashes or hangs takes nobody with it. NVRTC where it is installed (no
GPU and no toolkit needed), else g++ with the CPU backend's headers. No torch here.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from dice_engine.source.lines import to_bytes
from dice_engine.verify.build.cpu_header import shim_options
from dice_engine.verify.build.cpu_text import cpu_text
from dice_engine.verify.build.device_source import DeviceSource, split
from dice_engine.verify.build.interface import BuildError, InfraError
from dice_engine.verify.build.nvrtc import TORCH_FLAGS, build_cubin

ARCH = "sm_90"
_GPP_FLAGS = ("-std=c++17", "-w", "-fdiagnostics-color=never", "-fmax-errors=20")
_LIMIT_S = 20
_NVRTC_LINE = re.compile(r"^(?:kernel\.cu)\((\d+)\): (?:catastrophic )?(error|warning)(?: #[\w-]+)?: (.*)$")
_GPP_LINE = re.compile(r"^kernel\.cu:(\d+):(?:(\d+):)? (?:fatal )?(error): (.*)$")
_SHOWN = 2
"""Spaces that NVRTC puts before the line it shows."""


@dataclass(frozen=True)
class Problem:
    """What the compiler says about one place: line from 0, column in bytes from 0."""

    line: int
    column: int
    severity: Literal["error", "warning"]
    message: str


@dataclass(frozen=True)
class Report:
    """``backend`` is ``nvrtc`` or ``cpu``; empty when nothing could be checked, with the ``error`` that says why."""

    backend: str = ""
    problems: list[Problem] = field(default_factory=list)
    seconds: float = 0.0
    error: str = ""


def check(
    text: str, flags: Sequence[str] = (), instances: Sequence[tuple[str, tuple[str, ...]]] = ()
) -> Report:
    """Compile the device part of ``text``. ``flags``: ``-I`` and ``-D`` of the project; ``instances``: kernel templates
    to compile, with their arguments."""
    started = time.perf_counter()
    source = split(text)
    if not source.kernels and "__device__" not in text:
        return Report("nvrtc")
    torch_flags = TORCH_FLAGS if any(name.startswith("torch/") for name in source.dropped) else ()
    known = [instance for instance in instances if instance[0] in source.kernels]
    try:
        build_cubin(source, ARCH, known, [*torch_flags, *flags])
        return Report("nvrtc", seconds=time.perf_counter() - started)
    except BuildError as error:
        problems = _nvrtc_problems(error.log, to_bytes(source.text).split(b"\n"))
        return Report("nvrtc", problems, time.perf_counter() - started)
    except (InfraError, ImportError):
        return _by_gpp(source, flags, started)


def _nvrtc_problems(log: str, lines: list[bytes]) -> list[Problem]:
    """The problems of a log: each is a line with the place, then the source line, then a caret under the column."""
    said, found = log.splitlines(), []
    for at, text in enumerate(said):
        match = _NVRTC_LINE.match(text)
        if match is None or match.group(2) == "warning":
            continue
        line, column = int(match.group(1)) - 1, 0
        caret = next((i for i in range(at + 1, min(at + 12, len(said))) if said[i].strip() == "^"), None)
        source = lines[line] if line < len(lines) else b""
        if caret is not None and 0 <= line < len(lines):
            shown = to_bytes(said[caret - 1])
            lead = len(shown) - len(shown.lstrip())
            start = source.find(shown.strip())
            column = said[caret].index("^") - lead + (start if start >= 0 else lead - _SHOWN)
        message = " ".join(
            [match.group(3), *(one.strip() for one in said[at + 1 : (caret or at + 2) - 1])]
        ).strip()
        found.append(Problem(line, min(max(column, 0), len(source)), "error", message))
    return found


def _by_gpp(source: DeviceSource, flags: Sequence[str], started: float) -> Report:
    compiler = shutil.which("g++")
    if compiler is None:
        return Report(error="neither NVRTC nor g++ is installed: see dice doctor")
    try:
        text = cpu_text(source)
    except BuildError as error:
        return Report(error=str(error))
    with tempfile.TemporaryDirectory(prefix="dice-check-") as folder:
        code = Path(folder) / "kernel.cpp"
        code.write_text(f'#line 1 "kernel.cu"\n{text}\n', encoding="utf-8", errors="surrogatepass")
        shim = shim_options(compiler, _GPP_FLAGS, None)
        command = [
            compiler,
            *_GPP_FLAGS,
            "-fdiagnostics-column-unit=byte",
            *shim,
            *flags,
            "-fsyntax-only",
            str(code),
        ]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_LIMIT_S,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "LC_ALL": "C"},
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return Report(error=f"g++ did not answer: {type(error).__name__}")
    matches = [match for line in done.stderr.splitlines() if (match := _GPP_LINE.match(line))]
    problems = [Problem(int(m.group(1)) - 1, int(m.group(2) or 1) - 1, "error", m.group(4)) for m in matches]
    return Report("cpu", problems, time.perf_counter() - started)


def _answer(line: str) -> dict[str, Any]:
    request = json.loads(line)
    instances = [(kernel, tuple(arguments)) for kernel, arguments in request.get("instances", ())]
    try:
        return asdict(check(request["text"], request.get("flags", ()), instances))
    except Exception as error:  # whatever the text is, the next request must be answered
        return asdict(Report(error=f"the check failed inside: {type(error).__name__}: {error}"))


def main() -> int:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        print(json.dumps(_answer(line)), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

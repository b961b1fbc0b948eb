"""``dice doctor``: what of this machine DICE can use, and what to do about the rest. Never imports torch itself."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from dice_engine import NANO
from dice_engine.arguments import Arguments
from dice_engine.sizing import fitting_model

from dice_ls import __version__


@dataclass(frozen=True)
class Check:
    """One line of the report. ``missing`` is needed for the main job; ``absent`` only for a part of it."""

    name: str
    state: Literal["ok", "absent", "missing"]
    detail: str
    advice: str = ""


def main(argv: list[str]) -> int:
    parser = Arguments(prog="dice doctor", description="What works on this machine.")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--checkpoint", help="folder of the model to look at instead of the embedded one")
    options = parser.parse_args(argv)
    checks = examine(options.checkpoint)
    missing = any(check.state == "missing" for check in checks)
    if options.json:
        print(json.dumps({"version": __version__, "ok": not missing, "checks": [asdict(c) for c in checks]}))
    else:
        _print(checks)
    return 1 if missing else 0


def examine(checkpoint: str | None = None) -> list[Check]:
    """Every check, in the order of the main job: decode, build, run."""
    gpu = _gpu()
    return [
        Check("python", "ok", f"{sys.version.split()[0]} at {sys.executable}"),
        _torch(gpu.state == "ok"),
        _checkpoint(checkpoint),
        _gxx(),
        gpu,
        _models(gpu.state == "ok"),
        _nvrtc(gpu.state == "ok"),
        _nvcc(),
        _sandbox(),
        _sockets(),
    ]


def _output(*command: str, seconds: float = 60) -> str | None:
    """What a command prints, or None when it cannot be run or fails."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _torch(gpu: bool) -> Check:
    version = _version("torch")
    if version is None or find_spec("torch") is None:
        return Check("torch", "missing", "not installed", "pip install 'dice-ls[engine]'")
    if not gpu:
        return Check("torch", "ok", version)
    sees = _output(sys.executable, "-c", "import torch; print(torch.cuda.is_available())")
    if sees == "True":
        return Check("torch", "ok", f"{version}, sees the GPU")
    return Check("torch", "absent", f"{version}, does not see the GPU", "install a CUDA build of torch")


def _checkpoint(path: str | None) -> Check:
    folder = Path(path) if path else NANO
    weights = sorted(folder.glob("*.safetensors"))
    if not weights or not (folder / "config.json").is_file():
        advice = "name a folder with config.json and *.safetensors" if path else "reinstall dice-ls"
        return Check("checkpoint", "missing", f"no model in {folder}", advice)
    faults = [
        fault
        for file in (*weights, folder / "config.json", folder / "tokenizer.json")
        if (fault := _fault(file))
    ]
    if faults:
        advice = "copy it there again" if path else "reinstall dice-ls"
        return Check("checkpoint", "missing", f"{folder}: {'; '.join(faults)}", advice)
    size = sum(file.stat().st_size for file in weights) / 2**20
    return Check("checkpoint", "ok", f"{folder} ({size:.1f} MiB)")


def _fault(file: Path) -> str | None:
    """What is wrong with a file of a checkpoint, as far as its form shows; weights are not read."""
    try:
        if file.suffix == ".json":
            json.loads(file.read_bytes())
            return None
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            if length > file.stat().st_size:
                return f"{file.name} is cut short"
            entries = json.loads(opened.read(length))
        ends = [entry["data_offsets"][1] for name, entry in entries.items() if name != "__metadata__"]
        return (
            None if 8 + length + max(ends, default=0) == file.stat().st_size else f"{file.name} is cut short"
        )
    except OSError as error:
        return f"{file.name}: {error.strerror}"
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return f"{file.name} cannot be read"


def _models(gpu: bool) -> Check:
    if not gpu:
        return Check("models", "ok", "without a GPU: the embedded nano, on the CPU")
    memory = _output("nvidia-smi", "--query-gpu=memory.free,memory.total", "--format=csv,noheader,nounits")
    try:
        free, total = (int(mebibytes) * 2**20 for mebibytes in (memory or "").splitlines()[0].split(","))
    except (IndexError, ValueError):
        return Check("models", "absent", "the GPU does not say how much memory it has", "see nvidia-smi")
    return Check("models", "ok", fitting_model(free, total))


def _gxx() -> Check:
    found = shutil.which(os.environ.get("CXX", "g++"))
    version = _output(found, "-dumpfullversion") if found else None
    if found is None or version is None:
        return Check("g++", "missing", "not found", "apt install g++ (candidates are checked with it)")
    return Check("g++", "ok", f"{version} at {found}")


def _gpu() -> Check:
    advice = "without one, rewrites are checked on the CPU and not timed"
    if find_spec("pynvml") is not None:
        import pynvml

        try:
            pynvml.nvmlInit()
            try:
                names = [_gpu_name(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
                driver = pynvml.nvmlSystemGetDriverVersion()
            finally:
                pynvml.nvmlShutdown()
        except pynvml.NVMLError as error:
            return Check("GPU", "absent", f"no NVIDIA GPU ({error})", advice)
        return Check("GPU", "ok", f"{'; '.join(names)}; driver {driver}")
    query = _output("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")
    if not query:
        return Check("GPU", "absent", "no NVIDIA GPU (nvidia-smi does not answer)", advice)
    return Check("GPU", "ok", "; ".join(query.splitlines()))


def _gpu_name(pynvml, index: int) -> str:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    total = pynvml.nvmlDeviceGetMemoryInfo(handle).total / 2**30
    return f"{pynvml.nvmlDeviceGetName(handle)} ({total:.0f} GiB)"


def _nvrtc(gpu: bool) -> Check:
    program = "from cuda.bindings import nvrtc; e, a, b = nvrtc.nvrtcVersion(); assert int(e) == 0; print(f'{a}.{b}')"
    version = _output(sys.executable, "-c", program)
    if version:
        return Check("NVRTC", "ok", f"{version} through cuda-bindings {_version('cuda-bindings')}")
    state = "missing" if gpu else "absent"
    advice = "pip install 'cuda-bindings' nvidia-cuda-nvrtc (only needed with a GPU)"
    return Check("NVRTC", state, "not usable", "" if not gpu else advice)


def _nvcc() -> Check:
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    found = shutil.which("nvcc") or shutil.which("nvcc", path=str(Path(home) / "bin"))
    text = _output(found, "--version") if found else None
    if found is None or text is None:
        return Check("nvcc", "absent", "not found", "only sources that cannot be split need it")
    release = re.search(r"release ([\d.]+)", text)
    return Check("nvcc", "ok", f"{release[1] if release else 'unknown release'} at {found}")


def _sandbox() -> Check:
    program = "import json; from dice_engine.verify import sandbox; print(json.dumps(sandbox.active()))"
    answer = _output(sys.executable, "-c", program)
    try:
        walls = json.loads(answer) if answer else None
    except ValueError:
        walls = None
    if walls is None:
        return Check("sandbox", "absent", "unknown: the verifier does not start", "see torch and g++ above")
    if not walls:
        advice = "candidates run as you, with limits only: use DICE on code you trust"
        return Check("sandbox", "absent", "no kernel walls here", advice)
    return Check("sandbox", "ok", ", ".join(map(str, walls)))


def _sockets() -> Check:
    from dice_engine.client import socket_dir

    folder = socket_dir()
    probe = folder
    while not probe.exists() and probe != probe.parent:
        probe = probe.parent
    if not os.access(probe, os.W_OK):
        return Check(
            "socket folder",
            "missing",
            f"{folder} is not writable",
            "set XDG_RUNTIME_DIR to a folder of yours",
        )
    return Check("socket folder", "ok", str(folder))


def _print(checks: list[Check]) -> None:
    from rich import box
    from rich.table import Table

    from dice_ls.suggest_view import console

    marks = {"ok": "[green]ok[/]", "absent": "[yellow]absent[/]", "missing": "[red]missing[/]"}
    table = Table(box=box.SIMPLE)
    for heading in ("what", "state", "found", "what to do"):
        table.add_column(heading, overflow="fold")
    for check in checks:
        table.add_row(check.name, marks[check.state], check.detail, check.advice)
    console().print(table)

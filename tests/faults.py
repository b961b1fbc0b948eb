"""Faults to inject while a verdict is made, and what verdicts they may lead to (CPU backend, Linux)."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from dice_engine.verify.session import VerifySession
from dice_engine.verify.verdict import Verdict
from dice_engine.verify.zygote import Zygote

ORIGINAL = """
// @dice sizes(n=1000; n=77)
__global__ void axpb(const float* x, float* y, float a, float b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + b;  // MARK
}
void run(const float* x, float* y, int n) { axpb<<<(n + 127) / 128, 128>>>(x, y, 2.0f, 1.0f, n); }
"""
RIGHT, WRONG = ORIGINAL, ORIGINAL.replace("+ b;", "- b;")
ENDLESS = ORIGINAL.replace("if (i < n)", "while (clock64() != 0) {}\n  if (i < n)")
WILD = ORIGINAL.replace("if (i < n) y[i]", "y[i + (1ll << 40)]")
TRAP = ORIGINAL.replace("if (i < n) y[i]", "if (i == 3) __trap();\n  if (i < n) y[i]")


def descendants(pid: int) -> list[int]:
    """Processes below ``pid``, parents first."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


@dataclass
class Place:
    """What a fault can get at."""

    session: VerifySession
    folder: Path
    random: random.Random
    stopped: list[int]

    @property
    def zygote(self) -> int:
        return Zygote.shared()._process.pid

    def signal_one(self, wanted: Callable[[int], bool], number: int, seconds: float = 3.0) -> None:
        """Send a signal to one process below the zygote, as soon as there is one that is wanted."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            found = [pid for pid in descendants(self.zygote) if wanted(pid)]
            if found:
                pid = self.random.choice(found)
                with contextlib.suppress(OSError):
                    os.kill(pid, number)
                    if number == signal.SIGSTOP:
                        self.stopped.append(pid)
                return
            time.sleep(0.01)


def _compiles(pid: int) -> bool:
    return command(pid) in ("cc1plus", "g++", "as", "ld", "collect2", "nm")


def _kill_zygote(place: Place) -> None:
    os.kill(place.zygote, signal.SIGKILL)


def _fill_disk(place: Place) -> None:
    with contextlib.suppress(OSError), (place.folder / "filler").open("wb") as file:
        while True:
            file.write(bytes(1 << 16))


def _remove_folder(place: Place) -> None:
    shutil.rmtree(place.session._folder.path, ignore_errors=True)


def _close_line(place: Place) -> None:
    workers = [held.worker for held in place.session._kernels.values()]
    for worker in workers[:1]:
        worker._channel.sock.shutdown(2)


# name -> what is done at a random moment of the verdict on an honest candidate, and the verdicts that are fair then
FAULTS: dict[str, tuple[Callable[[Place], None], frozenset[str]]] = {
    "kill a runner": (
        lambda place: place.signal_one(lambda pid: True, signal.SIGKILL),
        frozenset({"correct_unmeasured"}),
    ),
    "terminate a runner": (
        lambda place: place.signal_one(lambda pid: True, signal.SIGTERM),
        frozenset({"correct_unmeasured", "crash", "build_error", "infra_error", "no_plan"}),
    ),
    "kill a compiler": (
        lambda place: place.signal_one(_compiles, signal.SIGKILL),
        frozenset({"correct_unmeasured"}),
    ),
    "kill the zygote": (_kill_zygote, frozenset({"correct_unmeasured", "infra_error"})),
    "stop a runner": (
        lambda place: place.signal_one(lambda pid: not _compiles(pid), signal.SIGSTOP),
        frozenset({"correct_unmeasured", "timeout", "no_plan", "infra_error"}),
    ),
    "fill the disk": (_fill_disk, frozenset({"correct_unmeasured", "infra_error"})),
    "remove the folder": (_remove_folder, frozenset({"correct_unmeasured", "infra_error", "build_error"})),
    "cut the reference's line": (_close_line, frozenset({"correct_unmeasured", "infra_error", "no_plan"})),
}
# name -> a candidate that is a fault itself, and the verdict it must get
CANDIDATES: dict[str, tuple[str, str]] = {
    "never ends": (ENDLESS, "timeout"),
    "writes far away": (WILD, "crash"),
    "traps": (TRAP, "crash"),
    "is wrong": (WRONG, "mismatch"),
}


class Trials:
    """Random faults against one session; every trial ends with a verdict that must be right."""

    def __init__(self, folder: Path, seed: int, faults: Iterable[str] = (*FAULTS, *CANDIDATES)):
        self.folder = folder
        self.faults = list(faults)
        self.random = random.Random(seed)
        self.session = VerifySession(
            "cpu", workdir=folder, timeout=4.0, build_timeout=60.0, budget=0.0, threads=1
        )
        self.count = 0

    def __enter__(self) -> Trials:
        return self

    def __exit__(self, *_: object) -> None:
        self.session.close()

    def one(self) -> str:
        """One fault and the verdict after it, in words; AssertionError when either is not as it must be."""
        name = self.random.choice(self.faults)
        return f"{name}: {self._candidate(name) if name in CANDIDATES else self._fault(name)}, {self._after(name)}"

    def _candidate(self, name: str) -> str:
        text, wanted = CANDIDATES[name]
        found = self._judge(text)
        assert found.verdict == wanted, (name, found)
        return found.verdict

    def _fault(self, name: str) -> str:
        act, fair = FAULTS[name]
        place = Place(self.session, self.folder, self.random, [])
        timer = threading.Timer(self.random.uniform(0.0, 0.8), act, [place])
        timer.start()
        try:
            found = self._judge(RIGHT)
        finally:
            timer.join()
            for pid in place.stopped:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGCONT)
            (self.folder / "filler").unlink(missing_ok=True)
        assert found.verdict in fair, (name, found)
        return found.verdict

    def _after(self, name: str) -> str:
        text, wanted = self.random.choice([(RIGHT, "correct_unmeasured"), (WRONG, "mismatch")])
        found = self._judge(text)
        assert found.verdict == wanted, (f"after {name}", found)
        left = [entry.name for entry in self.session._folder.path.iterdir() if entry.name.startswith("run")]
        held = len(self.session._kernels) + len(self.session._runners.spare)
        assert len(left) <= held, (f"after {name}", left)
        return found.verdict

    def _judge(self, text: str) -> Verdict:
        self.count += 1
        return self.session.verify_kernel(ORIGINAL, text.replace("MARK", f"trial {self.count}"), "axpb")


def killed_judge(folder: Path, rng: random.Random) -> str:
    """SIGKILL for a whole judging process at a random moment: nothing of it may live on."""
    program = (
        "import sys, pathlib\nfrom dice_engine.verify.session import VerifySession\nimport faults\n"
        "with VerifySession('cpu', workdir=pathlib.Path(sys.argv[1])) as session:\n"
        "    print(flush=True)\n    session.verify_kernel(faults.ORIGINAL, faults.ORIGINAL + '//', 'axpb')\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    judge = subprocess.Popen(
        [sys.executable, "-c", program, str(folder)], stdout=subprocess.PIPE, env=environment
    )
    assert judge.stdout is not None
    judge.stdout.readline()
    time.sleep(rng.uniform(0.0, 1.5))
    below = descendants(judge.pid)
    judge.kill()
    judge.wait()
    until = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in below) and time.monotonic() < until:
        time.sleep(0.05)
    alive = [pid for pid in below if Path(f"/proc/{pid}").exists()]
    assert not alive, [command(pid) for pid in alive]
    return f"killed judge: {len(below)} processes below it are gone"

"""Nothing outlives a judgement, whoever is killed; what runs cannot reach the network or other people's files."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from dice_engine.verify import sandbox
from dice_engine.verify.folder import SessionFolder
from dice_engine.verify.protocol import Channel, Closed, Deadline, ProtocolError
from dice_engine.verify.session import VerifySession
from dice_engine.verify.worker import Failed, Worker
from dice_engine.verify.zygote import Zygote

sys.path.insert(0, str(Path(__file__).parents[1]))
from candidates import HONEST, REFERENCE, module

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="the CPU backend needs g++")


def load(worker: Worker, text: str, timeout: float = 60.0) -> None:
    worker.ask(
        "load_module",
        timeout,
        text=text,
        role="candidate",
        class_name="Model",
        tripwire=None,
        headers=None,
        clock=False,
    )


def runner(folder: Path, **limits: int) -> Worker:
    return Worker(Zygote.shared(), folder, False, sandbox.Limits(**limits))


def processes(mark: str) -> list[int]:
    """Processes whose command line or working folder holds ``mark``."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (
                    mark in str((entry / "cwd").readlink())
                    or mark.encode() in (entry / "cmdline").read_bytes()
                ):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def gone(mark: str, seconds: float = 10.0) -> bool:
    until = time.monotonic() + seconds
    while processes(mark):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def test_a_runner_that_is_closed_leaves_nothing(tmp_path: Path) -> None:
    with runner(tmp_path) as worker, pytest.raises(Failed, match="no result"):
        load(
            worker,
            "import subprocess\nsubprocess.Popen(['sleep', '1000'])\nimport time\ntime.sleep(1000)",
            3.0,
        )
    assert gone(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_an_orphan_in_its_own_session_dies_too(tmp_path: Path) -> None:
    text = "import subprocess\nsubprocess.Popen(['setsid', 'sleep', '1001'], start_new_session=True)"
    with runner(tmp_path) as worker:
        load(worker, text)
        assert processes(str(tmp_path))
    assert gone(str(tmp_path))


@pytest.mark.skipif("network namespace" not in sandbox.active(), reason="no network namespaces here")
def test_no_network(tmp_path: Path) -> None:
    text = "import socket\nsocket.create_connection(('127.0.0.1', 1), 2)"
    listener = __import__("socket").create_server(("127.0.0.1", 0))
    with (
        listener,
        runner(tmp_path) as worker,
        pytest.raises(Failed, match=r"Network is unreachable|not permitted"),
    ):
        load(worker, text.replace("1), 2", f"{listener.getsockname()[1]}), 2"))


@pytest.mark.skipif(not any("Landlock" in wall for wall in sandbox.active()), reason="no Landlock here")
def test_writes_only_to_its_own_folder(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    inside = "open('mine', 'w').write('x')\n"
    with runner(tmp_path) as worker:
        load(worker, inside)
        with pytest.raises(Failed, match="PermissionError"):
            load(worker, f"open({str(outside)!r}, 'w')")
    assert not outside.exists()


def test_the_users_environment_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "x")
    with runner(tmp_path) as worker:
        load(
            worker,
            "import os\nassert 'SECRET_TOKEN' not in os.environ\nassert os.environ['HOME'] == os.getcwd()",
        )


def test_memory_is_limited(tmp_path: Path) -> None:
    with runner(tmp_path, memory_bytes=8 << 30) as worker, pytest.raises(Failed) as caught:
        load(worker, "data = bytearray(9 << 30)")
    assert "Memory" in caught.value.reason or "memory" in caught.value.reason


def test_output_is_kept_from_ours_and_bounded(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with runner(tmp_path, file_bytes=1 << 20) as worker, pytest.raises(Failed):
        load(worker, "while True: print('x' * 1000)", 20.0)
    assert "xxx" not in capfd.readouterr().out


@pytest.mark.parametrize("victim", ["judge", "zygote"])
def test_kill_9_leaves_nothing_running(tmp_path: Path, victim: str) -> None:
    code = (
        "import sys, pathlib, time\n"
        "from dice_engine.verify.zygote import Zygote\n"
        "from dice_engine.verify.worker import Worker\n"
        "from dice_engine.verify.sandbox import Limits\n"
        "zygote = Zygote.shared()\n"
        "worker = Worker(zygote, pathlib.Path(sys.argv[1]), False, Limits())\n"
        "worker.ask('load_module', 60, text='import subprocess; subprocess.Popen([\"sleep\", \"1002\"])', role='c',"
        " class_name='M', tripwire=None, headers=None, clock=False)\n"
        "print(zygote._process.pid, flush=True)\n"
        "time.sleep(1000)\n"
    )
    judge = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert judge.stdout is not None
    zygote = int(judge.stdout.readline())
    assert len(processes(str(tmp_path))) >= 2
    os.kill(judge.pid if victim == "judge" else zygote, signal.SIGKILL)
    try:
        deadline = time.monotonic() + 10
        while (
            len([pid for pid in processes(str(tmp_path)) if pid != judge.pid]) and time.monotonic() < deadline
        ):
            time.sleep(0.05)
        assert [pid for pid in processes(str(tmp_path)) if pid != judge.pid] == []
        if victim == "judge":
            deadline = time.monotonic() + 10
            while Path(f"/proc/{zygote}").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            assert not Path(f"/proc/{zygote}").exists()
    finally:
        judge.kill()
        judge.wait()


@needs_compiler
def test_the_next_verdict_after_a_dead_zygote_is_right() -> None:
    with VerifySession("cpu") as session:
        assert session.verify_module(REFERENCE, HONEST["plain"]).verdict == "correct_unmeasured"
        os.kill(Zygote.shared()._process.pid, signal.SIGKILL)
        Zygote.shared()._process.wait()
        again = session.verify_module(REFERENCE, module("return ext.run(x, self.factor) "))
        assert again.verdict == "correct_unmeasured", again


def test_the_folder_of_a_killed_session_is_removed_by_the_next(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib, os\nfrom dice_engine.verify.folder import SessionFolder\n"
        "print(SessionFolder(pathlib.Path(sys.argv[1])).path, flush=True)\nos.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    left = Path(done.stdout.strip())
    assert left.is_dir()
    ours = SessionFolder(tmp_path)
    assert not left.exists()
    other = SessionFolder(tmp_path)
    assert ours.path.is_dir()
    for folder in (ours, other):
        folder.remove()
    assert list(tmp_path.iterdir()) == []


def test_frames_without_the_nonce_are_refused() -> None:
    import socket

    ours, theirs = socket.socketpair()
    judge, candidate = Channel(ours, b"a" * 16), Channel(theirs, b"b" * 16)
    candidate.send({"value": 1})
    with pytest.raises(ProtocolError, match="nonce"):
        judge.receive(1.0)
    judge = Channel(ours, b"b" * 16)
    with pytest.raises(Deadline):
        judge.receive(0.05)
    theirs.close()
    with pytest.raises(Closed):
        judge.receive(1.0)


@needs_compiler
def test_an_endless_import_does_not_get_the_time_of_a_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dice_engine.verify.judge.module._LOADING_SECONDS", 1.0)
    with VerifySession("cpu", timeout=2.0, build_timeout=100.0) as session:
        begun = time.monotonic()
        found = session.verify_module(REFERENCE, "while True:\n    pass\n")
        assert found.verdict == "timeout", found
        assert time.monotonic() - begun < 30


FILTERED = pytest.mark.skipif(
    "seccomp filter" not in sandbox.active(), reason="no seccomp numbers for this machine"
)
CALLS = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"


@FILTERED
@pytest.mark.parametrize(
    "call",
    [
        "libc.ptrace(16, 1, 0, 0)",
        "libc.unshare(0x10000000)",
        "libc.mount(None, b'/', None, 0x1000, None)",
        "libc.socket(2, 1, 0)",
        "libc.socket(10, 2, 0)",
        "libc.process_vm_readv(1, None, 0, None, 0, 0)",
    ],
)
def test_calls_that_no_kernel_needs_are_refused(tmp_path: Path, call: str) -> None:
    with runner(tmp_path) as worker:
        load(worker, f"{CALLS}assert {call} == -1 and ctypes.get_errno() == 1, ctypes.get_errno()")


@FILTERED
def test_services_of_the_user_are_not_reached(tmp_path: Path) -> None:
    place = tmp_path / "service"
    with socket.socket(socket.AF_UNIX) as service:
        service.bind(str(place))
        service.listen()
        with runner(tmp_path) as worker:
            load(
                worker,
                "import socket\nwith socket.socket(socket.AF_UNIX) as s:\n"
                f"    try:\n        s.connect({str(place)!r})\n"
                "    except ConnectionRefusedError:\n        pass\n"
                "    else:\n        raise AssertionError('reached')\n",
            )


def test_what_compilers_and_torch_need_is_allowed(tmp_path: Path) -> None:
    text = (
        "import socket, subprocess, threading, mmap, torch\n"
        "a, b = socket.socketpair()\na.send(b'x')\nassert b.recv(1) == b'x'\n"
        "assert subprocess.run(['true']).returncode == 0\n"
        "t = threading.Thread(target=lambda: None)\nt.start()\nt.join()\nmmap.mmap(-1, 4096)\n"
        "assert torch.ones(3).sum().item() == 3\n"
    )
    with runner(tmp_path) as worker:
        load(worker, text)


@pytest.mark.skipif("limit of processes" not in sandbox.active(), reason="no user namespaces, or root")
def test_a_fork_bomb_is_small(tmp_path: Path) -> None:
    text = (
        "import os, time\nmade = 0\n"
        "try:\n    while made < 2000:\n        if os.fork() == 0:\n            time.sleep(60)\n"
        "        made += 1\nexcept BlockingIOError:\n    pass\nassert made < 1900, made\n"
    )
    with runner(tmp_path) as worker:
        load(worker, text)
    assert gone(str(tmp_path))


@pytest.mark.skipif(
    not any("no signals to others" in wall for wall in sandbox.active()),
    reason="a kernel before Landlock ABI 6",
)
def test_no_signal_reaches_the_outside(tmp_path: Path) -> None:
    victim = subprocess.Popen(["sleep", "60"])
    text = (
        "import os, signal\n"
        "for pid in [{pid}, *range(2, 8)]:\n"
        "    try:\n        os.kill(pid, signal.SIGKILL)\n"
        "    except (PermissionError, ProcessLookupError):\n        pass\n"
    )
    try:
        with runner(tmp_path) as worker:
            load(worker, text.format(pid=victim.pid))
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()

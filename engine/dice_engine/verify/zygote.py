"""The zygote: a process with torch imported and nothing else done, from which every runner is forked.

Importing torch takes seconds, a fork takes milliseconds, and a runner that a candidate has ruined (a poisoned CUDA
context, a corrupted heap) costs one more fork. ``Zygote`` is the judge's side; ``main`` is the process itself.

Who kills what: the zygote ends with the judge (PR_SET_PDEATHSIG) and when its socket to the judge closes, and takes
all runners with it; a runner dies with the zygote (PR_SET_PDEATHSIG); what a runner leaves behind dies with its PID
namespace, or, where there is none, is adopted by the zygote (child subreaper) and killed.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue
from typing import Any

import msgpack

from dice_engine.verify import sandbox, seccomp

_MESSAGE_BYTES = 1 << 16
_RUNNER_FD = 3
_LAST_SECONDS = 0.4
NOT_SERVED = 71
"""Exit status of a runner that could not begin or go on: its folder is gone, its line is cut."""


def _pack(message: dict[str, Any]) -> bytes:
    return bytes(msgpack.packb(message) or b"")


class ZygoteError(Exception):
    """The process that runners are forked from cannot start or has died: this machine's fault."""


@dataclass
class Exit:
    """How a runner ended: exactly one of ``code`` and ``signal`` is set."""

    code: int | None = None
    signal: int | None = None

    def __str__(self) -> str:
        if self.signal is not None:
            with contextlib.suppress(ValueError):
                return f"killed by {signal.Signals(self.signal).name}"
            return f"killed by signal {self.signal}"
        return f"exit status {self.code}"


@dataclass
class Child:
    """The judge's handle of one runner: its socket, nonce and, later, its end."""

    id: int
    sock: socket.socket
    nonce: bytes
    ended: Exit | None = field(default=None)


class Zygote:
    """The judge's connection to its zygote. Thread-safe; ``shared()`` is the one of this process."""

    _shared: Zygote | None = None
    _shared_lock = threading.Lock()

    @classmethod
    def shared(cls) -> Zygote:
        """The zygote of this process, started on first use and again when it died."""
        with cls._shared_lock:
            if cls._shared is None or not cls._shared.alive or cls._shared.owner != os.getpid():
                cls._shared = cls()
                atexit.register(cls._shared.close)
            return cls._shared

    @classmethod
    def end_shared(cls) -> None:
        """End the zygote of this process and all runners, for good: no other is started. The process is ending."""
        cls._shared_lock.acquire()
        if cls._shared is not None and cls._shared.owner == os.getpid():
            cls._shared.close(_LAST_SECONDS)

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._ids = itertools.count(1)
        self._children: dict[int, Child] = {}
        self._changed = threading.Condition()
        self._send_lock = threading.Lock()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONSTARTUP"}
        environment["PYTHONPATH"] = os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path if entry)
        # Threads of the numeric libraries would make the forks of this process unsafe.
        environment["OPENBLAS_NUM_THREADS"] = "1"
        # Threads of runners that wait for each other must not keep the cores from compilers and other runners.
        environment["OMP_WAIT_POLICY"] = "PASSIVE"
        # With ``_gpu_out_of_sight``: torch is to answer from the environment, not from the driver.
        environment["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
        started: Queue[subprocess.Popen[bytes] | OSError] = Queue()
        threading.Thread(
            target=self._attend, args=(theirs, environment, started), name="zygote-events", daemon=True
        ).start()
        process = started.get()
        if isinstance(process, OSError):
            raise ZygoteError(f"cannot start {sys.executable}: {process}") from process
        self._process = process

    @property
    def alive(self) -> bool:
        return self._process.poll() is None and self._control.fileno() >= 0

    def fork(self, folder: Path, limits: sandbox.Limits, cuda: bool) -> Child:
        """Fork a runner whose private folder is ``folder``. It speaks ``protocol`` on the returned socket."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        child = Child(next(self._ids), ours, secrets.token_bytes(16))
        with self._changed:
            self._children[child.id] = child
        request = {
            "op": "fork",
            "id": child.id,
            "nonce": child.nonce,
            "folder": str(folder),
            "limits": [limits.cpu_seconds, limits.memory_bytes, limits.file_bytes, limits.threads],
            "cuda": cuda,
        }
        try:
            with self._send_lock:
                socket.send_fds(self._control, [_pack(request)], [theirs.fileno()])
        except OSError as error:
            ours.close()
            raise ZygoteError(f"the process that runs candidates has ended: {self._last_words()}") from error
        finally:
            theirs.close()
        return child

    def kill(self, child: Child, timeout: float = 5.0) -> Exit | None:
        """SIGKILL the runner and everything it started, and wait for its end."""
        with contextlib.suppress(OSError), self._send_lock:
            self._control.send(_pack({"op": "kill", "id": child.id}))
        return self.wait(child, timeout)

    def wait(self, child: Child, timeout: float) -> Exit | None:
        """Wait until the runner has ended, None when it has not in ``timeout`` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: child.ended is not None or not self.alive, timeout)
            if child.ended is not None:
                self._children.pop(child.id, None)
            return child.ended

    def abandon(self) -> None:
        """Kill a zygote that does not answer; its runners die with it."""
        self._process.kill()
        self._process.wait()

    def close(self, patience: float = 5.0) -> None:
        """End the zygote and every runner; one that takes more than ``patience`` seconds is killed."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        self._control.close()
        if self.owner != os.getpid():
            return
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(5)

    def _attend(
        self,
        theirs: socket.socket,
        environment: dict[str, str],
        started: Queue[subprocess.Popen[bytes] | OSError],
    ) -> None:
        """Start the zygote and hear its reports. It dies with the thread that starts it, so this one stays."""
        try:
            with theirs:
                process = subprocess.Popen(
                    [
                        sys.executable,
                        "-m",
                        "dice_engine.verify.zygote",
                        str(theirs.fileno()),
                        str(self.owner),
                    ],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                    env=environment,
                    cwd="/",
                )
        except OSError as error:
            started.put(error)
            return
        started.put(process)
        while True:
            try:
                data = self._control.recv(_MESSAGE_BYTES)
            except OSError:
                data = b""
            with self._changed:
                if data:
                    event = msgpack.unpackb(data)
                    child = self._children.get(event["id"])
                    if child is not None:
                        child.ended = Exit(event["code"], event["signal"])
                self._changed.notify_all()
            if not data:
                break
        process.wait()

    def _last_words(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
            if self._process.stderr is not None:
                text = self._process.stderr.read().decode(errors="replace").strip()
                return text.splitlines()[-1] if text else f"exit status {self._process.returncode}"
        return "no answer"


@contextlib.contextmanager
def _gpu_out_of_sight() -> Iterator[None]:
    """Importing torch.utils.cpp_extension looks for a GPU. What CUDA or NVML would open here is dead in every fork."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    try:
        yield
    finally:
        if visible is None:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = visible


def main(control: socket.socket) -> None:
    """The zygote's life: fork on request, report ends, leave nothing behind."""
    with _gpu_out_of_sight():
        import torch  # noqa: F401  (the point of this process)

        from dice_engine.verify import runner  # noqa: F401

    sandbox.adopt_orphans()
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write)
    running: dict[int, int] = {}
    poller = select.poll()
    poller.register(control, select.POLLIN)
    poller.register(wake_read, select.POLLIN)
    try:
        while True:
            for handle, _ in poller.poll():
                if handle == wake_read:
                    with contextlib.suppress(BlockingIOError):
                        os.read(wake_read, 4096)
                    _reap(running, control)
                    continue
                data, handles, _, _ = socket.recv_fds(control, _MESSAGE_BYTES, 1)
                if not data:
                    return
                request = msgpack.unpackb(data)
                if request["op"] == "kill":
                    _kill([pid for pid, id in running.items() if id == request["id"]])
                else:
                    zygote = os.getpid()
                    pid = os.fork()
                    if pid == 0:
                        signal.set_wakeup_fd(-1)
                        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                        _become_runner(request, handles[0], zygote)
                    os.close(handles[0])
                    running[pid] = request["id"]
    finally:
        _kill(list(running))
        _kill_orphans(known=set())


def _become_runner(request: dict[str, Any], handle: int, zygote: int) -> None:
    """In the forked child: build the walls, then serve. Never returns."""
    code = NOT_SERVED
    try:
        sandbox.die_with_parent(zygote)
        os.setsid()
        folder = Path(request["folder"])
        log = os.open(folder / "output.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if handle != _RUNNER_FD:
            os.dup2(handle, _RUNNER_FD)
        os.closerange(_RUNNER_FD + 1, 4096)
        os.chdir(folder)
        kept = sandbox.environment(folder)
        os.environ.clear()
        os.environ.update(kept)
        cuda = bool(request["cuda"])
        # The CUDA driver starts neither in a PID namespace of its own nor without writing to its /proc.
        own = sandbox.enter_namespaces(pids=not cuda)
        if own and not cuda:
            _become_keeper()
        limits = sandbox.Limits(*request["limits"])
        sandbox.apply_limits(limits, cuda)
        sandbox.restrict_writes([folder, Path("/dev"), *([Path("/proc")] if cuda else [])])
        sandbox.drop_privileges()
        if own:
            sandbox.limit_processes()
        seccomp.restrict()

        import torch

        from dice_engine.verify import runner

        if limits.threads:
            torch.set_num_threads(limits.threads)
        if cuda:
            # torch asks NVML how many GPUs there are, and NVML may see none behind these walls; CUDA does.
            torch.cuda._cached_device_count = torch._C._cuda_getDeviceCount()  # pyright: ignore
        code = runner.serve(socket.socket(fileno=_RUNNER_FD), request["nonce"], folder, cuda)
    except BaseException as error:
        print(f"runner: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    os._exit(code)


def _become_keeper() -> None:
    """Fork the first process of the new PID namespace and, in the parent, wait for it and end the same way."""
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        # getppid() is 0 across the namespace's border, so the race at birth is checked by nobody: the keeper is new.
        sandbox.die_with_parent(0)
        return
    os.close(_RUNNER_FD)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL) if os.WTERMSIG(status) != signal.SIGKILL else None
        os.kill(parent, os.WTERMSIG(status))
        time.sleep(1)
    os._exit(os.WEXITSTATUS(status))


def _reap(running: dict[int, int], control: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        id = running.pop(pid, None)
        if id is None:
            continue
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
        _kill_orphans(known=set(running))
        signaled = os.WIFSIGNALED(status)
        event = {
            "id": id,
            "code": None if signaled else os.WEXITSTATUS(status),
            "signal": os.WTERMSIG(status) if signaled else None,
        }
        with contextlib.suppress(OSError):
            control.send(_pack(event))


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)


def _kill_orphans(known: set[int]) -> None:
    """Kill adopted processes: children of ours that we did not fork."""
    with contextlib.suppress(OSError, ValueError):
        text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
        _kill([pid for pid in map(int, text.split()) if pid not in known])


if __name__ == "__main__":
    sandbox.die_with_parent(int(sys.argv[2]))
    main(socket.socket(fileno=int(sys.argv[1])))

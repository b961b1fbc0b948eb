"""What a runner may not do: the walls around code that has not been judged.

Applied by the forked child to itself, in this order: own session, death with its parent, limits, then as many of the
kernel's walls as this machine allows (namespaces, Landlock). ``active()`` says which, for ``dice doctor``.
A wall that is missing is not an error; the judge's decisions do not rest on any of them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import signal
import struct
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dice_engine.verify import seccomp

_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET, _CLONE_NEWIPC = (
    0x00020000,
    0x10000000,
    0x20000000,
    0x40000000,
    0x08000000,
)
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_SET_CHILD_SUBREAPER = 1, 38, 36
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
# write_file, remove_dir, remove_file, make_char/dir/reg/sock/fifo/block/sym; refer, truncate come with later ABIs.
_WRITE_RIGHTS = (1 << 1) | sum(1 << bit for bit in range(4, 13))
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_TCP = 0b11
"""bind and connect."""
_OUTSIDE = 0b11
"""Abstract Unix sockets and signals of processes outside."""
_KEPT_ENVIRONMENT = (
    "PATH",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
    "CXX",
    "LANG",
)


@dataclass(frozen=True)
class Limits:
    """Bounds for one runner: ``cpu_seconds`` of CPU time, bytes of memory and of any one file, CPU threads (0: any)."""

    cpu_seconds: int = 600
    memory_bytes: int = 16 << 30
    file_bytes: int = 1 << 30
    threads: int = 0


def die_with_parent(parent: int) -> None:
    """SIGKILL for this process when the thread that forked it dies; exits now when that happened already."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Make this process the parent of whatever its descendants leave behind, so that it can kill it."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def environment(home: Path) -> dict[str, str]:
    """The environment of a runner: tool paths and a private home, nothing of the user's."""
    kept = {key: os.environ[key] for key in _KEPT_ENVIRONMENT if key in os.environ}
    place = str(home)
    return {**kept, "HOME": place, "TMPDIR": place, "XDG_CACHE_HOME": place}


def apply_limits(limits: Limits, cuda: bool) -> None:
    """CPU time, file size, no core dumps; memory only without CUDA, which reserves address space by the terabyte."""
    _limit(resource.RLIMIT_CPU, limits.cpu_seconds)
    _limit(resource.RLIMIT_FSIZE, limits.file_bytes)
    _limit(resource.RLIMIT_CORE, 0)
    if not cuda:
        _limit(resource.RLIMIT_AS, limits.memory_bytes)


def limit_processes() -> None:
    """Room for the threads of torch and of compilers, no more; root is not counted by the kernel.

    Only in a user namespace of its own: elsewhere all of the user's processes count.
    """
    _limit(resource.RLIMIT_NPROC, max(512, 8 * (os.cpu_count() or 1)))


def enter_namespaces(pids: bool = True) -> bool:
    """Move to fresh user, network, IPC, mount and (``pids``, for children) PID namespaces. False where refused."""
    uid, gid = os.getuid(), os.getgid()
    flags = _CLONE_NEWUSER | _CLONE_NEWNET | _CLONE_NEWIPC | _CLONE_NEWNS | (_CLONE_NEWPID if pids else 0)
    if platform.system() != "Linux" or _libc().unshare(flags) != 0:
        return False
    with contextlib.suppress(OSError):
        Path("/proc/self/setgroups").write_text("deny")
    with contextlib.suppress(OSError):
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    return True


def drop_privileges() -> None:
    """No new privileges, no capabilities (those of the new user namespace included)."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    header = struct.pack("Ii", 0x20080522, 0)
    _libc().capset(header, bytes(24))


def restrict_writes(folders: list[Path]) -> bool:
    """Landlock: no file outside ``folders`` can be written, made or removed, and, where the kernel knows how, no
    signal sent to a process outside. False where the kernel lacks it."""
    abi = _landlock_abi()
    if abi < 1:
        return False
    rights = _WRITE_RIGHTS | (_REFER if abi >= 2 else 0) | (_TRUNCATE if abi >= 3 else 0)
    libc = _libc()
    # Later kernels also keep it from TCP (no rule allows any), from abstract sockets and signals to the outside.
    fields = [rights, *([_TCP] if abi >= 4 else []), *([_OUTSIDE] if abi >= 6 else [])]
    packed = struct.pack(f"{len(fields)}Q", *fields)
    attributes = ctypes.create_string_buffer(packed, len(packed))
    ruleset = libc.syscall(_LANDLOCK_CREATE, attributes, len(packed), 0)
    if ruleset < 0:
        return False
    try:
        for folder in folders:
            if not folder.exists():
                continue
            handle = os.open(folder, os.O_PATH | os.O_CLOEXEC)
            rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, handle), 12)
            failed = libc.syscall(_LANDLOCK_ADD, ruleset, 1, rule, 0)
            os.close(handle)
            if failed:
                return False
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
        return libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0) == 0
    finally:
        os.close(ruleset)


@cache
def active() -> tuple[str, ...]:
    """The walls this machine gives a runner, in words: ``("rlimits", "network namespace", ...)``."""
    walls = ["process group", "rlimits", "cleared environment"]
    if platform.system() != "Linux":
        return tuple(walls)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, b"1" if enter_namespaces() else b"0")
        os._exit(0)
    os.close(write)
    allowed = os.read(read, 1) == b"1"
    os.close(read)
    os.waitpid(child, 0)
    if allowed:
        walls += ["user namespace", "network namespace", "PID namespace"]
        walls += ["limit of processes"] if os.getuid() != 0 else []
    if _landlock_abi() >= 1:
        signals = ", no signals to others" if _landlock_abi() >= 6 else ""
        walls.append(f"Landlock ABI {_landlock_abi()} (writes only to its own folder{signals})")
    if seccomp.program(platform.machine()) is not None:
        walls.append("seccomp filter")
    return tuple(walls)


def _landlock_abi() -> int:
    if platform.system() != "Linux":
        return 0
    return max(0, _libc().syscall(_LANDLOCK_CREATE, None, 0, 1))


def _limit(what: int, value: int) -> None:
    hard = resource.getrlimit(what)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    # Soft = hard: the first process of a PID namespace ignores SIGXCPU, and only the hard limit kills.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(what, (value, value))


def _prctl(option: int, value: int) -> None:
    if platform.system() == "Linux":
        _libc().prctl(option, ctypes.c_ulong(value), 0, 0, 0)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)

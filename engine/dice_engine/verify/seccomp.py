"""A filter of system calls for code that has not been judged: what no kernel, compiler or CUDA driver needs fails.

Refused with EPERM: tracing and reading other processes, namespaces and mounts, kernel modules, keys, eBPF, clocks,
io_uring, and sockets of any family but AF_UNIX and AF_NETLINK (libraries ask it what hardware there is). To connect
gives ECONNREFUSED, as if nobody listened: services of the user have sockets in the file system, which no network
namespace hides. x86-64 and aarch64; elsewhere there is no filter.
"""

from __future__ import annotations

import ctypes
import platform
import struct

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 38, 22, 2
_LOAD, _JUMP_EQUAL, _JUMP_ABOVE, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE, _NOBODY = 0x7FFF0000, 0x00050000 | 1, 0x00050000 | 111  # EPERM, ECONNREFUSED
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_AF_UNIX, _AF_NETLINK = 1, 16

# (audit architecture, numbers by name, numbers of socket(2) and connect(2))
_X86 = (
    0xC000003E,
    {
        "ptrace": 101,
        "process_vm_readv": 310,
        "process_vm_writev": 311,
        "process_madvise": 440,
        "kcmp": 312,
        "pidfd_getfd": 438,
        "mount": 165,
        "umount2": 166,
        "pivot_root": 155,
        "chroot": 161,
        "unshare": 272,
        "setns": 308,
        "open_tree": 428,
        "move_mount": 429,
        "fsopen": 430,
        "fsmount": 432,
        "open_by_handle_at": 304,
        "init_module": 175,
        "finit_module": 313,
        "delete_module": 176,
        "kexec_load": 246,
        "kexec_file_load": 320,
        "add_key": 248,
        "request_key": 249,
        "keyctl": 250,
        "bpf": 321,
        "perf_event_open": 298,
        "userfaultfd": 323,
        "io_uring_setup": 425,
        "io_uring_enter": 426,
        "io_uring_register": 427,
        "settimeofday": 164,
        "clock_settime": 227,
        "clock_adjtime": 305,
        "adjtimex": 159,
        "sethostname": 170,
        "setdomainname": 171,
        "reboot": 169,
        "swapon": 167,
        "swapoff": 168,
        "acct": 163,
        "quotactl": 179,
        "iopl": 172,
        "ioperm": 173,
    },
    41,
    42,
)
_ARM = (
    0xC00000B7,
    {
        "ptrace": 117,
        "process_vm_readv": 270,
        "process_vm_writev": 271,
        "process_madvise": 440,
        "kcmp": 272,
        "pidfd_getfd": 438,
        "mount": 40,
        "umount2": 39,
        "pivot_root": 41,
        "chroot": 51,
        "unshare": 97,
        "setns": 268,
        "open_tree": 428,
        "move_mount": 429,
        "fsopen": 430,
        "fsmount": 432,
        "open_by_handle_at": 265,
        "init_module": 105,
        "finit_module": 273,
        "delete_module": 106,
        "kexec_load": 104,
        "kexec_file_load": 294,
        "add_key": 217,
        "request_key": 218,
        "keyctl": 219,
        "bpf": 280,
        "perf_event_open": 241,
        "userfaultfd": 282,
        "io_uring_setup": 425,
        "io_uring_enter": 426,
        "io_uring_register": 427,
        "settimeofday": 170,
        "clock_settime": 112,
        "clock_adjtime": 266,
        "adjtimex": 171,
        "sethostname": 161,
        "setdomainname": 162,
        "reboot": 142,
        "swapon": 224,
        "swapoff": 225,
        "acct": 89,
        "quotactl": 60,
    },
    198,
    203,
)
_TABLES = {"x86_64": _X86, "aarch64": _ARM}
_X32 = 0x40000000
"""Numbers from here on are of x86's other calling convention, which would go around the list."""


def program(machine: str) -> bytes | None:
    """The filter as a BPF program, None where this machine's numbers are not known."""
    table = _TABLES.get(machine)
    if table is None:
        return None
    architecture, numbers, socket, connect = table
    # Every test jumps over what it lets pass; the last three instructions are what may be answered.
    refused = sorted(numbers.values())
    tests = len(refused)
    lines = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_EQUAL, 0, tests + 8, architecture),
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_ABOVE, tests + 6, 0, _X32),
        *((_JUMP_EQUAL, tests - index + 5, 0, number) for index, number in enumerate(refused)),
        (_JUMP_EQUAL, 6, 0, connect),
        (_JUMP_EQUAL, 0, 3, socket),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_JUMP_EQUAL, 1, 0, _AF_UNIX),
        (_JUMP_EQUAL, 0, 1, _AF_NETLINK),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _NOBODY),
    ]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def restrict() -> bool:
    """Apply the filter to this process and all that it starts. False where there is none."""
    code = program(platform.machine()) if platform.system() == "Linux" else None
    if code is None:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    held = ctypes.create_string_buffer(code, len(code))
    described = struct.pack("HP", len(code) // 8, ctypes.addressof(held))
    libc.prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), 0, 0, 0)
    return libc.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_FILTER), ctypes.c_char_p(described), 0, 0) == 0

"""The filter program, run by a small interpreter of the instructions that it uses."""

from __future__ import annotations

import struct

import pytest
from dice_engine.verify.seccomp import program

ALLOW, REFUSE, NOBODY = 0x7FFF0000, 0x00050001, 0x0005006F
X86, ARM = 0xC000003E, 0xC00000B7


def decide(code: bytes, architecture: int, number: int, argument: int = 0) -> int:
    """What the kernel would return for one system call."""
    data = struct.pack("=IIQQ", number, architecture, 0, argument)
    lines = list(struct.iter_unpack("=HBBI", code))
    at, value = 0, 0
    while True:
        operation, yes, no, operand = lines[at]
        at += 1
        if operation == 0x20:
            (value,) = struct.unpack_from("=I", data, operand)
        elif operation == 0x06:
            return operand
        else:
            assert operation in (0x15, 0x35)
            at += yes if (value == operand if operation == 0x15 else value >= operand) else no


@pytest.mark.parametrize(
    ("machine", "architecture", "refused", "allowed"),
    [
        ("x86_64", X86, [101, 165, 272, 310, 321, 425, 438], [0, 1, 9, 16, 56, 57, 59, 62, 231, 435]),
        ("aarch64", ARM, [40, 97, 117, 270, 280, 425], [29, 63, 64, 129, 220, 221, 222, 435]),
    ],
)
def test_refused_and_allowed(machine: str, architecture: int, refused: list[int], allowed: list[int]) -> None:
    code = program(machine)
    assert code is not None
    assert all(decide(code, architecture, number) == REFUSE for number in refused)
    assert all(decide(code, architecture, number) == ALLOW for number in allowed)
    socket = 41 if machine == "x86_64" else 198
    assert decide(code, architecture, 42 if machine == "x86_64" else 203) == NOBODY
    families = {family: decide(code, architecture, socket, family) for family in (1, 2, 10, 16, 17, 38)}
    assert families == {1: ALLOW, 16: ALLOW, 2: REFUSE, 10: REFUSE, 17: REFUSE, 38: REFUSE}


def test_other_conventions_go_around_nothing() -> None:
    code = program("x86_64")
    assert code is not None
    assert decide(code, X86, 0x40000000 + 1) == REFUSE
    assert decide(code, 0x40000003, 1) == REFUSE, "calls of 32-bit programs"


def test_unknown_machines_have_no_filter() -> None:
    assert program("riscv64") is None

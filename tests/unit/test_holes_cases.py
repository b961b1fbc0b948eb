"""Small files of every kind, with the byte ranges that must come out."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from dice_engine.source import __main__ as command
from dice_engine.source.holes import apply, decode, edit, find_holes, hole_at
from dice_engine.source.lines import Encoding, LineMap

CASES = Path(__file__).parents[1] / "cases"

# file -> (kind, name, start, end, editable) in document order
EXPECTED = {
    "row_maximum.cu": [("kernel_body", "row_maximum", 294, 946, True)],
    "string_kernel.py": [
        ("load_inline_core", "damped_ext", 156, 696, True),
        ("kernel_body", "damped", 295, 457, True),
    ],
    "running_mean.cu": [("kernel_body", "running_mean", 187, 342, True)],
    "made_by_macros.cu": [("kernel_body", "move_up", 716, 758, True)],
    "half_typed.cu": [
        ("kernel_body", "above", 67, 144, True),
        ("kernel_body", "unfinished_one", 196, 277, False),
        ("kernel_body", "below", 319, 396, True),
    ],
    "gradients.cu": [
        ("kernel_body", "gradients", 407, 808, True),
        ("kernel_body", "upside_down", 936, 1104, True),
    ],
    "scaled_sum.cu": [("kernel_body", "scaled_sum", 174, 290, True)],
    "two_openings.cu": [
        ("kernel_body", "amplify", 191, 235, False),
        ("kernel_body", "amplify", 287, 402, False),
        ("kernel_body", "no_negatives", 452, 543, True),
    ],
    "wide_softmax.py": [("module", "Model", 430, 430, True)],
    "wide_characters.cu": [("kernel_body", "mixture", 169, 352, True)],
}


def read(name: str) -> str:
    return (CASES / name).read_bytes().decode()


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_ranges(name: str) -> None:
    text = read(name)
    holes = find_holes(text, name)
    assert [(h.kind, h.name, h.start_byte, h.end_byte, h.editable) for h in holes] == EXPECTED[name]
    for hole in holes:
        assert hole.prefix + hole.core + hole.suffix == text
        assert text.encode()[hole.start_byte : hole.end_byte] == hole.core.encode()
        assert (hole.reason is None) == hole.editable
        assert hole.editable or not hole.plan.runnable


def test_plans() -> None:
    sources = {
        (name, hole.name): hole.plan.source
        for name in EXPECTED
        for hole in find_holes(read(name), name)
        if hole.editable
    }
    assert sources == {
        ("row_maximum.cu", "row_maximum"): "launch",
        ("string_kernel.py", "damped_ext"): "inputs",
        ("string_kernel.py", "damped"): "inputs",
        ("running_mean.cu", "running_mean"): "launch",
        ("made_by_macros.cu", "move_up"): "launch",
        ("half_typed.cu", "above"): "no_plan",
        ("half_typed.cu", "below"): "launch",
        ("gradients.cu", "gradients"): "annotation",
        ("gradients.cu", "upside_down"): "no_plan",
        ("scaled_sum.cu", "scaled_sum"): "launch",
        ("two_openings.cu", "no_negatives"): "launch",
        ("wide_softmax.py", "Model"): "inputs",
        ("wide_characters.cu", "mixture"): "launch",
    }


def at_line(name: str, line: int, column: int = 4) -> str | None:
    """The name of the hole under a cursor (1-based line), with ! when it cannot be edited."""
    text = read(name)
    hole = hole_at(find_holes(text, name), LineMap(text).offset(line - 1, column))
    return None if hole is None else hole.name + ("" if hole.editable else "!")


def test_cursor() -> None:
    assert at_line("made_by_macros.cu", 18) == "move_up"
    assert [at_line("made_by_macros.cu", line) for line in range(6, 16)] == [None] * 10
    assert at_line("half_typed.cu", 5) == "above"
    assert at_line("half_typed.cu", 10) == "unfinished_one!"
    assert at_line("half_typed.cu", 15) == "below"
    assert at_line("two_openings.cu", 7, 0) == "amplify!"
    assert at_line("two_openings.cu", 8) == "amplify!"
    assert at_line("two_openings.cu", 16) == "no_negatives"
    assert at_line("string_kernel.py", 12) == "damped"
    assert at_line("string_kernel.py", 18) == "damped_ext"
    assert at_line("wide_softmax.py", 13) == "Model"


def test_finished_typing_gives_all_three() -> None:
    text = read("half_typed.cu").replace("float v = q[\n", "float v = q[i]; q[i] = v; }\n}\n")
    assert [(h.name, h.editable) for h in find_holes(text, "half_typed.cu")] == [
        ("above", True),
        ("unfinished_one", True),
        ("below", True),
    ]


def test_positions_in_three_encodings() -> None:
    text = read("wide_characters.cu")
    (hole,) = find_holes(text, "wide_characters.cu")
    lines = LineMap(text)
    encodings: tuple[Encoding, ...] = ("utf-8", "utf-16", "utf-32")
    starts: dict[Encoding, tuple[int, int]] = {
        name: lines.position(hole.start_byte, name) for name in encodings
    }
    assert starts == {"utf-8": (3, 111), "utf-16": (3, 107), "utf-32": (3, 105)}
    assert lines.position(hole.end_byte, "utf-16") == (7, 0)
    for encoding, position in starts.items():
        assert lines.offset(*position, encoding) == hole.start_byte


def test_crlf_edit_keeps_line_ends() -> None:
    text = read("wide_characters.cu")
    (hole,) = find_holes(text, "wide_characters.cu")
    assert "\r" not in decode(hole).core
    assert apply(hole, decode(hole).core) == text
    assert edit(hole, "\n  // λ 🚀\n") == "\r\n  // λ 🚀\r\n"


def test_kernel_in_python_string() -> None:
    text = read("string_kernel.py")
    hole = next(h for h in find_holes(text, "x.py") if h.kind == "kernel_body")
    source = ast.literal_eval(text[text.index('"""') : text.rindex('"""') + 3])
    decoded = decode(hole)
    assert decoded.prefix + decoded.core + decoded.suffix == source
    assert r'"negative size %d\n"' in decoded.core
    assert r'"negative size %d\\n"' in hole.core
    core = '\n    if (n < 0) printf("a \\"quoted\\" \\\\ text %d\\n", n);\n'
    changed = apply(hole, core)
    literal = next(
        node.value
        for node in ast.walk(ast.parse(changed))
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "device_code"
    )
    assert ast.literal_eval(literal) == decoded.prefix + core + decoded.suffix
    assert changed.startswith(hole.prefix)
    assert changed.endswith(hole.suffix)


def test_pragma_stays_and_launch_bounds_do_not_enter() -> None:
    (hole,) = find_holes(read("row_maximum.cu"), "row_maximum.cu")
    assert "\n#pragma unroll 4\n" in hole.core
    assert "__launch_bounds__" not in hole.core


def test_command_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([str(CASES / "two_openings.cu"), "--json"]) == 0
    records = json.loads(capsys.readouterr().out)
    assert [set(record) for record in records] == [
        {"kind", "name", "start_byte", "end_byte", "editable", "reason", "plan"}
    ] * 3
    assert records[2]["plan"]["wrapper"] == "call_no_negatives"
    assert "line 10" in records[1]["reason"]


def test_command_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([str(CASES / "half_typed.cu")]) == 0
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 4
    assert "unfinished" in out[2]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.txt", b"x", "neither a CUDA file"),
        ("a.cu", b"// \xff\n", "not UTF-8"),
        ("none.cu", None, "No such file"),
    ],
)
def test_command_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, data: bytes | None, message: str
) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    assert command.main([str(tmp_path / name)]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""

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
    "aliased_bounds.cu": [("kernel_body", "row_peak", 275, 911, True)],
    "embedded_string.py": [
        ("load_inline_core", "gate_ext", 86, 621, True),
        ("kernel_body", "gate_mul", 223, 380, True),
    ],
    "inplace_accum.cu": [("kernel_body", "fold_in", 188, 342, True)],
    "macro_made.cu": [("kernel_body", "shift_add", 673, 716, True)],
    "mid_edit.cu": [
        ("kernel_body", "before_it", 71, 148, True),
        ("kernel_body", "being_typed", 197, 278, False),
        ("kernel_body", "after_it", 323, 400, True),
    ],
    "needs_annotation.cu": [
        ("kernel_body", "slopes", 453, 844, True),
        ("kernel_body", "flip_rows", 977, 1146, True),
    ],
    "saxpy_plain.cu": [("kernel_body", "axpb", 179, 290, True)],
    "split_signature.cu": [
        ("kernel_body", "rescale", 200, 242, False),
        ("kernel_body", "rescale", 294, 409, False),
        ("kernel_body", "clampz", 453, 544, True),
    ],
    "tiny_outputs.py": [("module", "Model", 459, 459, True)],
    "unicode_crlf.cu": [("kernel_body", "blend", 169, 348, True)],
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
        ("aliased_bounds.cu", "row_peak"): "launch",
        ("embedded_string.py", "gate_ext"): "inputs",
        ("embedded_string.py", "gate_mul"): "inputs",
        ("inplace_accum.cu", "fold_in"): "launch",
        ("macro_made.cu", "shift_add"): "launch",
        ("mid_edit.cu", "before_it"): "no_plan",
        ("mid_edit.cu", "after_it"): "launch",
        ("needs_annotation.cu", "slopes"): "annotation",
        ("needs_annotation.cu", "flip_rows"): "no_plan",
        ("saxpy_plain.cu", "axpb"): "launch",
        ("split_signature.cu", "clampz"): "launch",
        ("tiny_outputs.py", "Model"): "inputs",
        ("unicode_crlf.cu", "blend"): "launch",
    }


def at_line(name: str, line: int, column: int = 4) -> str | None:
    """The name of the hole under a cursor (1-based line), with ! when it cannot be edited."""
    text = read(name)
    hole = hole_at(find_holes(text, name), LineMap(text).offset(line - 1, column))
    return None if hole is None else hole.name + ("" if hole.editable else "!")


def test_cursor() -> None:
    assert at_line("macro_made.cu", 18) == "shift_add"
    assert [at_line("macro_made.cu", line) for line in range(6, 16)] == [None] * 10
    assert at_line("mid_edit.cu", 5) == "before_it"
    assert at_line("mid_edit.cu", 10) == "being_typed!"
    assert at_line("mid_edit.cu", 15) == "after_it"
    assert at_line("split_signature.cu", 7, 0) == "rescale!"
    assert at_line("split_signature.cu", 8) == "rescale!"
    assert at_line("split_signature.cu", 16) == "clampz"
    assert at_line("embedded_string.py", 12) == "gate_mul"
    assert at_line("embedded_string.py", 18) == "gate_ext"
    assert at_line("tiny_outputs.py", 13) == "Model"


def test_finished_typing_gives_all_three() -> None:
    text = read("mid_edit.cu").replace("float v = q[\n", "float v = q[i]; q[i] = v; }\n}\n")
    assert [(h.name, h.editable) for h in find_holes(text, "mid_edit.cu")] == [
        ("before_it", True),
        ("being_typed", True),
        ("after_it", True),
    ]


def test_positions_in_three_encodings() -> None:
    text = read("unicode_crlf.cu")
    (hole,) = find_holes(text, "unicode_crlf.cu")
    lines = LineMap(text)
    encodings: tuple[Encoding, ...] = ("utf-8", "utf-16", "utf-32")
    starts: dict[Encoding, tuple[int, int]] = {
        name: lines.position(hole.start_byte, name) for name in encodings
    }
    assert starts == {"utf-8": (3, 100), "utf-16": (3, 96), "utf-32": (3, 94)}
    assert lines.position(hole.end_byte, "utf-16") == (7, 0)
    for encoding, position in starts.items():
        assert lines.offset(*position, encoding) == hole.start_byte


def test_crlf_edit_keeps_line_ends() -> None:
    text = read("unicode_crlf.cu")
    (hole,) = find_holes(text, "unicode_crlf.cu")
    assert "\r" not in decode(hole).core
    assert apply(hole, decode(hole).core) == text
    assert edit(hole, "\n  // λ 🚀\n") == "\r\n  // λ 🚀\r\n"


def test_kernel_in_python_string() -> None:
    text = read("embedded_string.py")
    hole = next(h for h in find_holes(text, "x.py") if h.kind == "kernel_body")
    source = ast.literal_eval(text[text.index('"""') : text.rindex('"""') + 3])
    decoded = decode(hole)
    assert decoded.prefix + decoded.core + decoded.suffix == source
    assert r'"bad size %d\n"' in decoded.core
    assert r'"bad size %d\\n"' in hole.core
    core = '\n    if (n < 0) printf("a \\"quoted\\" \\\\ text %d\\n", n);\n'
    changed = apply(hole, core)
    literal = next(n for n in ast.walk(ast.parse(changed)) if isinstance(n, ast.Assign)).value
    assert ast.literal_eval(literal) == decoded.prefix + core + decoded.suffix
    assert changed.startswith(hole.prefix)
    assert changed.endswith(hole.suffix)


def test_pragma_stays_and_launch_bounds_do_not_enter() -> None:
    (hole,) = find_holes(read("aliased_bounds.cu"), "aliased_bounds.cu")
    assert "\n#pragma unroll 4\n" in hole.core
    assert "__launch_bounds__" not in hole.core


def test_command_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([str(CASES / "split_signature.cu"), "--json"]) == 0
    records = json.loads(capsys.readouterr().out)
    assert [set(record) for record in records] == [
        {"kind", "name", "start_byte", "end_byte", "editable", "reason", "plan"}
    ] * 3
    assert records[2]["plan"]["wrapper"] == "run_clampz"
    assert "line 10" in records[1]["reason"]


def test_command_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([str(CASES / "mid_edit.cu")]) == 0
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

"""What an import reads, what counts as the same task or the same row, and what is kept."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from dice_engine.verify.verdict import Verdict
from dice_training.cuke.collect import Wanted
from dice_training.cuke.duplicates import Duplicates
from dice_training.cuke.forward_form import Contamination, forward_form, operators
from dice_training.cuke.importing import Unusable, needed, rows_of, sources
from dice_training.data import DataError

sys.path.insert(0, str(Path(__file__).parents[1]))
import small_tasks

MODULE = small_tasks.module_row("relu")
PROGRAM = MODULE["prefix"] + MODULE["core"] + MODULE["suffix"]


def module(init: str, forward: str, name: str = "Model") -> str:
    return f"""import torch
import torch.nn as nn
import torch.nn.functional as F

class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        {init or "pass"}

    def forward(self, x, y=None):
        {forward}
"""


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("", "return torch.relu(x) * 2.0"), ("", "return F.relu(x) * 3.0")),
        (("self.act = nn.ReLU()", "return self.act(x) + y"), ("", "z = x.relu()\n        return z + y")),
        (("self.k = 2.0", "return x * self.k"), ("", "return x * 5")),
        (
            ("self.net = nn.Sequential(nn.Linear(3, 4), nn.ReLU())", "return self.net(x)"),
            ("self.a = nn.Linear(3, 4)", "return F.relu(self.a(x))"),
        ),
        (
            ("self.a = nn.Linear(3, 4)", "return self.a(x)"),
            ("self.fc = nn.Linear(9, 1)", "'''Doc.'''\n        return self.fc(x)"),
        ),
        (
            ("", "x = torch.exp(x)\n        x = torch.sum(x, dim=1)\n        return x"),
            ("", "return torch.sum(x.exp(), dim=-1)"),
        ),
    ],
)  # fmt: skip
def test_the_form_does_not_depend_on_names_numbers_and_spelling(
    first: tuple[str, str], second: tuple[str, str]
) -> None:
    form = forward_form(module(*first))
    assert form is not None and form == forward_form(module(*second))


def test_other_computations_have_other_forms() -> None:
    bodies = [
        "torch.relu(x)",
        "torch.exp(x)",
        "torch.relu(torch.exp(x))",
        "torch.exp(torch.relu(x))",
        "x + y",
        "y + x",
        "x - y",
        "torch.sum(x, dim=1)",
        "torch.sum(x, dim=1, keepdim=True)",
    ]
    assert len({forward_form(module("", f"return {body}")) for body in bodies}) == len(bodies)
    assert forward_form("x = 1") is None and forward_form("def (") is None


def test_operators_are_listed_in_the_order_of_the_computation() -> None:
    assert operators(module("self.n = nn.LayerNorm(8)", "return self.n(torch.exp(x) + y)")) == [
        "exp",
        "add",
        "layernorm",
    ]


def test_contamination_reads_folders_and_files(tmp_path: Path) -> None:
    (tmp_path / "level1").mkdir()
    (tmp_path / "level1" / "1_Relu.py").write_text(module("", "return torch.relu(x)"))
    file = small_tasks.write(tmp_path / "t.jsonl", small_tasks.tasks())
    exp = {**MODULE, "reference": module("", "return torch.exp(x)")}
    for place in (tmp_path / "level1", file):
        found = Contamination([place])
        assert MODULE in found and exp not in found
    with pytest.raises(DataError, match="neither a folder"):
        Contamination([tmp_path / "none"])


def test_equal_and_nearly_equal_rows_count_once() -> None:
    text = {**MODULE, "core": MODULE["core"] * 4}
    spaced = {**text, "core": text["core"].replace("    ", "\t") + "// done"}
    renamed = {**text, "core": text["core"].replace("* 4", "* 5").replace("ext =", "lib =", 1)}
    other = small_tasks.kernel_row("scale")
    near, exact = Duplicates(0.8), Duplicates(1.0)
    assert [near.add(row) for row in (text, text, spaced, renamed, other)] == [
        True,
        False,
        False,
        False,
        True,
    ]
    assert [exact.add(row) for row in (text, text, spaced, renamed, other)] == [
        True,
        False,
        False,
        True,
        True,
    ]


def test_a_python_file_gives_its_source_and_the_whole_replacement() -> None:
    core, whole = rows_of("a.py", Path("a.py"), PROGRAM, "MIT")
    assert (core["kind"], whole["kind"]) == ("load_inline_core", "module")
    assert core["core"].startswith('source = """') and core["core"].endswith('"""')
    assert whole["core"] == "\n" + MODULE["core"].rstrip("\n")
    assert whole["prefix"] == MODULE["prefix"].rstrip("\n")
    for row in (core, whole):
        assert row["prefix"] + row["core"] + row["suffix"] == row["program"] == PROGRAM
        assert "load_inline" not in row["reference"] and "def get_inputs" in row["reference"]
        assert row["ops"] == ["relu"] and row["split"] == "train" and row["licence"] == "MIT"
        assert row["provenance"]["source"] == "a.py"


def test_a_cuda_file_gives_bodies_with_what_they_replaced(tmp_path: Path) -> None:
    row = small_tasks.kernel_row("scale")
    path = tmp_path / "scale.cu"
    path.write_text(row["prefix"] + row["core"] + row["suffix"])
    (alone,) = rows_of("scale.cu", path, path.read_text(), "")
    assert alone["reference"] == "" and alone["original"] == path.read_text() and alone["kernel"] == "scale"
    assert alone["plan"]["source"] != "no_plan"
    (tmp_path / "scale.slow.cu").write_text(row["prefix"] + row["reference"] + row["suffix"])
    (pair,) = rows_of("scale.cu", path, path.read_text(), "")
    assert pair["reference"] == row["reference"] and pair["core"] == row["core"]
    assert [name for name, _, _ in sources([tmp_path])] == ["scale.cu"]


def test_published_rows_keep_their_parts() -> None:
    program = PROGRAM.replace("class Model(nn", "class Old(nn")
    middle = program[program.index("source =") : program.index("ext =")].rstrip("\n")
    prefix, suffix = program.split(middle)
    parts = {"prefix": prefix, "middle": middle, "suffix": suffix}
    entry = {"id": 7, "pytorch_code": MODULE["reference"], "cuda_code": program, **parts}
    core, whole = rows_of("p.jsonl:7", Path("p.jsonl"), entry, "")
    assert (core["prefix"], core["core"], core["suffix"]) == (prefix, middle, suffix)
    assert core["reference"] == MODULE["reference"]
    assert "class Old" not in whole["core"] and "class ModelNew" in whole["core"]
    without = {key: entry[key] for key in ("pytorch_code", "cuda_code")}
    again, _ = rows_of("p.jsonl:7", Path("p.jsonl"), without, "")
    assert again["core"] == middle


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.py", "x = 1\n", "no load_inline"),
        ("a.py", PROGRAM.replace("class Model(nn.Module)", "class Model(object)"), "no PyTorch module"),
        ("a.cu", "int x;\n", "no kernel that can be run: no kernel"),
        ("a.cu", "__global__ void k(float* x) { x[0] = 1; }\n", "no kernel that can be run"),
    ],
)
def test_what_gives_no_row_says_why(name: str, text: str, reason: str) -> None:
    with pytest.raises(Unusable, match=reason):
        rows_of(name, Path(name), text, "")


def test_needed_follows_names_and_leaves_out_the_rest() -> None:
    text = "import math\nimport os\nN = 4\nM = N + 1\n\n\ndef f():\n    return math.pi * M\n"
    text += "\n\ndef g():\n    return os\n"
    assert needed(text, ("f",)) == (
        "import math\n\n\nN = 4\n\n\nM = N + 1\n\n\ndef f():\n    return math.pi * M\n"
    )


@pytest.mark.parametrize(
    ("verdict", "ops", "kept"),
    [
        (Verdict("verified", speedup=2.0), 1, True),
        (Verdict("verified", speedup=1.9), 1, False),
        (Verdict("verified", speedup=1.1), 4, True),
        (Verdict("no_gain", speedup=1.0), 4, False),
        (Verdict("correct_unmeasured"), 1, False),
        (Verdict("mismatch", speedup=9.0), 1, False),
    ],
)
def test_only_what_is_correct_and_fast_is_kept(verdict: Verdict, ops: int, kept: bool) -> None:
    row = {**MODULE, "ops": ["op"] * ops}
    assert (Wanted(2.0).why_not(row, verdict) is None) == kept
    assert (Wanted(0.0).why_not(row, verdict) is None) == (verdict.verdict != "mismatch")


def test_input_makers_are_never_part_of_a_core() -> None:
    program = MODULE["prefix"] + MODULE["suffix"] + MODULE["core"]
    (only,) = rows_of("a.py", Path("a.py"), program, "")
    assert only["kind"] == "load_inline_core" and only["prefix"] + only["core"] + only["suffix"] == program

"""The writer of training samples: rows that hold together, the same from the same seed, split by family."""

from __future__ import annotations

import ast
import json
import random
import re
import subprocess
import sys

import pytest
import torch
from dice_training.cuke import cli
from dice_training.cuke.generate import KIND_SHARE, MAX_CHARS, TEST_ELEMENTS, sample, total_chars
from dice_training.cuke.ops import OPS
from dice_training.cuke.reference import write_reference
from dice_training.cuke.row_ops import ROW_OPS
from dice_training.cuke.spec import Operand, RowStep, Scalar, Spec, Step, family_of, is_test, random_spec
from dice_training.cuke.style import file_style

ROWS = [sample(3, index) for index in range(240)]


@pytest.fixture(params=list(KIND_SHARE))
def rows(request):
    found = [row for row in ROWS if row["kind"] == request.param]
    assert len(found) > 20
    return found


def test_parts_make_the_program(rows):
    for row in rows:
        assert row["prefix"] + row["core"] + row["suffix"] == row["program"]
        assert row["reference"] and row["core"].strip()
        assert total_chars(row) <= MAX_CHARS
        assert row["split"] == ("test" if is_test(row["family"]) else "train")
        assert json.loads(json.dumps(row)) == row


def test_same_seed_same_rows_and_any_shard_alone():
    assert [sample(3, index) for index in (7, 100)] == [ROWS[7], ROWS[100]]
    assert sample(4, 7) != ROWS[7]


def test_python_programs_parse_and_bind_their_names():
    for row in ROWS:
        if row["kind"] == "kernel_body":
            continue
        tree = ast.parse(row["program"])
        classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
        assert "ModelNew" in classes
        strings = {
            node.targets[0].id: ast.literal_eval(node.value)
            for node in tree.body
            if isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        }
        function = re.search(r'functions=\["(\w+)"\]', row["program"])[1]
        declared = next(text for text in strings.values() if text.strip().endswith(";"))
        source = next(text for text in strings.values() if "__global__" in text)
        assert declared.strip().rstrip(";") in source, "the host function has the declared signature"
        assert f".{function}(" in row["program"]


def test_a_load_inline_core_is_one_assignment():
    for row in ROWS:
        if row["kind"] == "load_inline_core":
            (statement,) = ast.parse(row["core"]).body
            assert isinstance(statement, ast.Assign)


def test_a_module_core_starts_after_the_class():
    for row in ROWS:
        if row["kind"] == "module":
            last = ast.parse(row["prefix"]).body[-1]
            assert isinstance(last, ast.ClassDef) and last.name == row.get("class_name", "Model")
            assert row["reference"] == row["prefix"] + row["suffix"]


def test_kernel_files_name_their_kernel_and_balance():
    for row in ROWS:
        if row["kind"] == "kernel_body":
            for body in (row["reference"], row["core"]):
                text = row["prefix"] + body + row["suffix"]
                assert text.count("{") == text.count("}")
                assert (
                    len(re.findall(rf"__global__ void (?:__launch_bounds__\(\w+\) )?{row['kernel']}\(", text))
                    == 1
                )
            assert row["prefix"].endswith("{") and row["suffix"].startswith("}")


def test_references_run_and_give_the_promised_shape():
    for index in range(120):
        rng = random.Random(index)
        spec = random_spec(rng, 1 << 13)
        ref = write_reference(spec, file_style(rng), rng)
        space: dict = {}
        exec(ref.text, space)
        out = space[ref.class_name](*space["get_init_inputs"]())(*space["get_inputs"]())
        want = list(spec.shape)
        if spec.reduces:
            want[spec.axis : spec.axis + 1] = [1] if spec.row and spec.row.keepdim else []
        assert list(out.shape) == want
        assert torch.isfinite(out).all()


@pytest.mark.parametrize("name", OPS)
def test_every_pytorch_spelling_of_an_operator_agrees_with_numpy(name):
    op = OPS[name]
    torch.manual_seed(0)
    positive = name in {"log", "log1p", "log2", "log10", "sqrt", "acos", "asin"}
    x, y, z = (torch.rand if positive else torch.randn)(3, 64, dtype=torch.float64)
    if name == "prelu":
        y = torch.full_like(y, 0.25)[:1]
    values = [choices[0] for _, choices in op.args] + [None, None]
    want = torch.from_numpy(op.numpy(x.numpy(), values[0], values[1], y.numpy(), z.numpy()))
    scope = {
        "torch": torch,
        "F": torch.nn.functional,
        "nn": torch.nn,
        "math": __import__("math"),
        "x": x,
        "y": y,
        "z": z,
    }
    for template in op.torch:
        got = eval(template.format(x="x", y="y", z="z", a=values[0], b=values[1]), scope)
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-6)
    for template in op.modules:
        got = eval(template.format(a=values[0], b=values[1]), scope)(x)
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ROW_OPS)
def test_row_operators_run_in_every_spelling(name):
    op = ROW_OPS[name]
    affine = tuple(Operand(role, "vec", "param") for role in op.affine)
    row = RowStep(name, False, op.eps[0] if op.eps else None, affine)
    for index in range(12):
        rng = random.Random(index)
        spec = Spec((4, 6), 1, "rand", "x", (Step("add_scalar", (Scalar(0.5),)),), row, ())
        ref = write_reference(spec, file_style(rng), rng)
        space: dict = {}
        exec(ref.text, space)
        (x,) = space["get_inputs"]()
        model = space[ref.class_name](*space["get_init_inputs"]())
        for value in model.parameters():
            value.data.fill_(0.0 if value is dict(model.named_parameters()).get("bias") else 1.0)
        if op.affine:
            continue
        want = torch.from_numpy(op.numpy((x + 0.5).double().numpy()))
        got = model(x).double()
        torch.testing.assert_close(got.reshape(want.shape), want, rtol=1e-3, atol=1e-5)


def test_split_holds_out_combinations_but_never_single_operators():
    singles = [family_of([name], None) for name in OPS] + [family_of([], name) for name in ROW_OPS]
    assert not any(is_test(family) for family in singles)
    pairs = [family_of([a, b], None) for a in OPS for b in OPS if a < b]
    assert 0.02 < sum(is_test(family) for family in pairs) / len(pairs) < 0.06
    assert family_of(["tanh", "relu"], "sum") == family_of(["relu", "tanh"], "sum")


def test_rows_of_the_test_split_are_small_and_can_be_verified():
    for index in range(40):
        row = sample(5, index, split="test")
        assert row["split"] == "test" and is_test(row["family"])
        if row["kind"] == "kernel_body" and "around" not in row:
            assert "torch::Tensor" not in row["program"]
            continue
        reference = row.get("pytorch", row["reference"])
        assert f"class {row.get('class_name', 'Model')}(" in reference
        space: dict = {}
        exec(reference, space)
        assert max(value.numel() for value in space["get_inputs"]()) <= TEST_ELEMENTS


WRITTEN = [
    {**row, "provenance": {"source": "teacher", "seed": 3}, "licence": "Apache-2.0"} for row in ROWS[:30]
]


def test_command_line(tmp_path, capsys):
    out = tmp_path / "rows.jsonl"
    assert cli.main(["build", "--out", str(out), "--count", "30", "--seed", "3"]) == 0
    assert [json.loads(line) for line in out.read_text().splitlines()] == WRITTEN
    assert cli.main(["stats", str(out)]) == 0
    assert "30 samples" in capsys.readouterr().out
    assert cli.main(["build", "--out", str(tmp_path / "no" / "rows.jsonl")]) == 2
    assert cli.main(["stats", str(tmp_path / "missing.jsonl")]) == 2


def test_a_build_goes_on_where_it_stopped(tmp_path, capsys):
    out = tmp_path / "rows.jsonl"
    assert cli.main(["build", "--out", str(out), "--count", "10", "--seed", "3"]) == 0
    assert cli.main(["build", "--out", str(out), "--count", "30", "--seed", "3", "--resume"]) == 0
    assert [json.loads(line) for line in out.read_text().splitlines()] == WRITTEN
    assert cli.main(["build", "--out", str(out), "--count", "30", "--seed", "4", "--resume"]) == 2
    assert "its last row is 3-29" in capsys.readouterr().err


def test_a_kernel_in_a_string_brings_its_file():
    found = [row for row in ROWS if "around" in row]
    assert found
    for row in found:
        before, after = row["around"]
        tree = ast.parse(before + row["program"] + after)
        sources = [
            n.value.value
            for n in tree.body
            if isinstance(n, ast.Assign) and isinstance(n.value, ast.Constant)
        ]
        assert row["program"] in sources


def test_every_name_of_a_core_stands_in_the_prompt_or_is_fixed():
    """Names that vary must be readable: those of cores that no prompt shows are few and always the same."""
    hidden: set[str] = set()
    for row in ROWS:
        shown = set(re.findall(r"[A-Za-z_]\w*", row["reference"] + row["prefix"] + row["suffix"]))
        names = set(re.findall(r"[A-Za-z_]\w*", row["core"])) - shown
        # The kernel of a module is named after its host function.
        hidden |= {name for name in names if name.removesuffix("_kernel") not in shown}
    again: set[str] = set()
    for index in range(240, 480):
        row = sample(3, index)
        shown = set(re.findall(r"[A-Za-z_]\w*", row["reference"] + row["prefix"] + row["suffix"]))
        names = set(re.findall(r"[A-Za-z_]\w*", row["core"])) - shown
        again |= {name for name in names if name.removesuffix("_kernel") not in shown}
    assert len(again - hidden) < 25, sorted(again - hidden)


def test_writing_needs_no_torch():
    code = "import sys; from dice_training.cuke.generate import sample; sample(0, 0); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

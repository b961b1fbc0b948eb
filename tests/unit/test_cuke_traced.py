"""The teacher of whole tasks: what it writes for each family of operators, without building anything."""

from __future__ import annotations

import ast
import json
import random
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from dice_engine.source.holes import find_holes
from dice_training.cuke import cli
from dice_training.cuke.traced import INVENTED, UNWRITTEN
from dice_training.cuke.traced.coverage import Coverage, examine, family_of, text_of
from dice_training.cuke.traced.hasty import hasty
from dice_training.cuke.traced.invented import invented_task
from dice_training.cuke.traced.layouts import another_layout
from dice_training.cuke.traced.module import write
from dice_training.cuke.traced.samples import KIND_SHARE, MAX_CHARS, Task, row_chars, task_sample
from dice_training.cuke.traced.tasks import row_of_task
from dice_training.cuke.traced.tidy import tidy
from dice_training.cuke.traced.values import Unwritten
from dice_training.cuke.traced.variants import variant


def task(body: str, inputs: str, init: str = "pass", arguments: str = "x") -> str:
    """A PyTorch file around one statement."""
    return textwrap.dedent(
        f"""
        import torch
        import torch.nn as nn
        import torch.nn.functional as F


        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                {init}

            def forward(self, {arguments}):
                return {body}


        def get_inputs():
            return [{inputs}]


        def get_init_inputs():
            return []
        """
    ).lstrip()


def source(*args: str, **kwargs: str) -> str:
    return write(task(*args, **kwargs), "Model").extension.source()


def kernels(text: str) -> list[str]:
    return re.findall(r"__global__ void \w+\(.*?\n}", text, re.DOTALL)


XY = "torch.randn(8, 64), torch.randn(8, 64)"
FAMILIES = {
    "elementwise": (("torch.relu(x) + torch.sin(y)", XY), {"arguments": "x, y"}, 1, r"fmaxf\(v, 0.0f\)"),
    "broadcast": (("x * y", "torch.randn(8, 64), torch.randn(64)"), {"arguments": "x, y"}, 1, r"y\[i1\]"),
    "comparison": (("torch.gt(x, 0.5)", "torch.randn(8, 64)"), {}, 1, r"bool\* __restrict__ out"),
    "reduction": (("x.mean(dim=(0, 2))", "torch.randn(4, 3, 5)"), {}, 1, "block_reduce_sum|warp_reduce_sum"),
    "inner reduction": (
        ("torch.sum(x, dim=1)", "torch.randn(4, 6, 5)"),
        {},
        1,
        r"base \+ \(size_t\)c \* inner",
    ),
    "softmax": (
        ("F.softmax(torch.relu(x), dim=-1)", "torch.randn(8, 64)"),
        {},
        1,
        r"prepare\(x\[base \+ c\]\)",
    ),
    "logsumexp": (("torch.logsumexp(x, dim=1)", "torch.randn(8, 600)"), {}, 1, "block_reduce_max"),
    "layer norm": (("self.n(x)", "torch.randn(8, 64)"), {"init": "self.n = nn.LayerNorm(64)"}, 1, "rsqrtf"),
    "group norm": (
        ("self.n(x)", "torch.randn(2, 6, 4, 4)"),
        {"init": "self.n = nn.GroupNorm(2, 6)"},
        1,
        "rstd",
    ),
    "batch norm": (
        ("self.n(x)", "torch.randn(2, 6, 4, 4)"),
        {"init": "self.n = nn.BatchNorm2d(6)"},
        1,
        "running_mean",
    ),
    "loss": (("F.mse_loss(x, y)", XY), {"arguments": "x, y"}, 1, "total / cols"),
    "cosine": (("F.cosine_similarity(x, y, dim=1)", XY), {"arguments": "x, y"}, 1, "1e-8f"),
    "scan": (("torch.cumsum(x, dim=0)", "torch.randn(8, 64)"), {}, 1, r"acc \+= v"),
    "warp scan": (("torch.cumsum(x, dim=-1)", "torch.randn(8, 64)"), {}, 1, "__shfl_up_sync"),
    "argmax": (("torch.argmax(x, dim=1)", "torch.randn(8, 64)"), {}, 1, "where = c"),
    "order": (("torch.topk(x, 3, dim=1)[0]", "torch.randn(8, 64)"), {}, 1, r"rank < 3"),
    "gather": (
        ("torch.gather(x, 1, y)", "torch.randn(8, 64), torch.randint(0, 64, (8, 5))"),
        {"arguments": "x, y"},
        1,
        r"int k = y\[idx\]",
    ),
    "embedding": (
        ("self.e(x)", "torch.randint(0, 10, (4, 6))"),
        {"init": "self.e = nn.Embedding(10, 8)"},
        1,
        "weight",
    ),
    "padding": (("F.pad(x, (1, 2), value=0.5)", "torch.randn(8, 64)"), {}, 1, "float v = 0.5f"),
    "movement": (("torch.flip(torch.roll(x, 2, 1), [0])", "torch.randn(8, 64)"), {}, 1, "% x_1"),
    "cat": (("torch.cat([x, y], dim=1)", XY), {"arguments": "x, y"}, 1, "} else {"),
    "pooling": (("F.max_pool2d(x, 2)", "torch.randn(2, 3, 8, 8)"), {}, 1, "-INFINITY"),
    "resizing": (("F.interpolate(x, scale_factor=2)", "torch.randn(2, 3, 4, 4)"), {}, 1, "/ 2"),
    "convolution": (
        ("torch.relu(self.c(x))", "torch.randn(2, 3, 8, 8)"),
        {"init": "self.c = nn.Conv2d(3, 4, 3, padding=1)"},
        1,
        "continue",
    ),
    "linear": (
        ("torch.tanh(self.f(x))", "torch.randn(8, 64)"),
        {"init": "self.f = nn.Linear(64, 3)"},
        1,
        "tanhf",
    ),
    "attention": (("F.scaled_dot_product_attention(x, x, x)", "torch.randn(2, 2, 5, 8)"), {}, 3, "rsqrtf"),
    "structure": (
        ("F.softmax(self.f(x), dim=1)", "torch.randn(8, 64)"),
        {"init": "self.f = nn.Linear(64, 3)"},
        2,
        "t0",
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_each_family_is_written_in_as_few_kernels_as_it_needs(family):
    positional, named, count, pattern = FAMILIES[family]
    text = source(*positional, **named)
    assert len(kernels(text)) == count, text
    assert re.search(pattern, text), text


def test_sizes_come_from_tensors_and_not_from_the_trace():
    text = source("torch.transpose(x, 0, 1) + 1", "torch.randn(37, 41)")
    assert "37" not in text and "41" not in text
    assert "int x_1 = x.size(1);" in text


def test_nothing_is_declared_or_passed_that_is_not_used():
    for positional, named, _, _ in FAMILIES.values():
        for kernel in kernels(source(*positional, **named)):
            head, _, body = kernel.partition("{")
            for name in re.findall(r"(\w+)(?=[,)])", head):
                assert re.search(rf"\b{name}\b", body), (name, kernel)
            for name in re.findall(r"\bint (\w+) =", body):
                assert len(re.findall(rf"\b{name}\b", body)) > 1, (name, kernel)


def test_no_name_hides_another():
    embedded = "self.c(self.e(x).transpose(1, 2))"
    text = source(
        embedded, "torch.randint(0, 10, (2, 9))", "self.e = nn.Embedding(10, 4); self.c = nn.Conv1d(4, 3, 3)"
    )
    assert "for (int k = 0;" in text and "int k1 = x[" in text
    assert "const float* __restrict__ w_," in source(
        "F.max_pool1d(w, 2)", "torch.randn(2, 3, 8)", arguments="w"
    )


def test_nan_goes_on_where_pytorch_hands_it_on():
    x = "torch.randn(8, 64)"
    assert "v < 0.0f ? 0.0f : v" in source("torch.relu(torch.log(x))", x)
    assert "isnan(v)" in source("torch.amax(torch.acos(x), dim=1)", x)
    assert "fmaxf(v, 0.0f)" in source("torch.relu(torch.log(torch.exp(x)))", x)
    assert forward("torch.sort(torch.log(x))[0]", x) == [
        "h = ext.fused_log(x)",
        "y, _ = torch.sort(h)",
        "return y",
    ]


def test_the_answer_keeps_the_constructor_and_gives_weights_by_their_path():
    answer = write(
        task("self.a(torch.relu(self.b[0](x)))", "torch.randn(4, 8)", "self.b = nn.Sequential(nn.Linear(8, 6)); "
             "self.a = nn.Linear(6, 2)"),
        "Model",
    )  # fmt: skip
    assert "self.b = nn.Sequential" in answer.class_text
    assert "(x, self.b[0].weight, self.b[0].bias, self.a.weight, self.a.bias)" in answer.class_text
    assert "torch::Tensor b_0_weight" in answer.extension.declaration


def test_several_results_come_back_in_the_shape_of_the_reference():
    answer = write(task("(x + 1, x.sum(dim=1))", "torch.randn(4, 8)"), "Model")
    assert answer.extension.declaration.startswith("std::vector<torch::Tensor>")
    assert "return tuple(ext.fused_forward(x))" in answer.class_text


def forward(body: str, inputs: str, init: str = "pass") -> list[str]:
    """The lines of ``ModelNew.forward``."""
    text = write(task(body, inputs, init), "Model").class_text
    return [line.strip() for line in text.partition("def forward(self, x):\n")[2].splitlines()]


KEPT = {
    "convolution": (
        "F.relu(self.c(x))", "torch.randn(8, 64, 40, 40)", "self.c = nn.Conv2d(64, 64, 3, padding=1)",
        ["y = F.conv2d(x, self.c.weight, padding=1)", "return ext.fused_forward(y, self.c.bias)"],
    ),
    "linear": (
        "torch.softmax(self.f(x), 1)", "torch.randn(64, 512)", "self.f = nn.Linear(512, 512)",
        ["y = self.f(x)", "return ext.fused_forward(y)"],
    ),
    "operator without a kernel": (
        "torch.polar(torch.relu(x), x)", "torch.randn(4, 8)", "pass",
        ["h = ext.fused_relu(x)", "return torch.polar(h, x)"],
    ),
    "recurrent layer": (
        "torch.tanh(self.r(x)[0])", "torch.randn(2, 5, 8)", "self.r = nn.LSTM(8, 4, batch_first=True)",
        ["y, _ = self.r(x)", "return ext.fused_forward(y.contiguous())"],
    ),
    "the same function twice": (
        "F.relu(self.b(F.relu(self.a(x)).view(64, -1)))", "torch.randn(64, 512)",
        "self.a = nn.Linear(512, 512); self.b = nn.Linear(512, 512)",
        ["y = self.a(x)", "h = ext.fused_relu(y)", "y1 = self.b(h)", "return ext.fused_forward(y1)"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_large_products_and_what_has_no_kernel_stay_in_torch(name):
    body, inputs, init, lines = KEPT[name]
    assert forward(body, inputs, init) == lines


def test_a_product_alone_is_written_whatever_its_size():
    assert forward("self.f(x)", "torch.randn(64, 512)", "self.f = nn.Linear(512, 512)") == [
        "return ext.fused_forward(x, self.f.weight, self.f.bias)"
    ]


def test_functions_that_do_the_same_are_one():
    layers = "; ".join(f"self.{name} = nn.Linear(512, 512)" for name in "abc")
    answer = write(task("self.c(F.relu(self.b(F.relu(self.a(x)))))", "torch.randn(64, 512)", layers), "Model")
    assert answer.extension.names == ["fused_relu"]
    assert answer.class_text.count("ext.fused_relu(") == 2


def test_a_function_takes_sizes_from_what_it_is_given():
    layers = "self.a = nn.Linear(512, 512)"
    text = source("self.a(x + 1) * x.sum(dim=1, keepdim=True)", "torch.randn(64, 512)", layers)
    for host in re.findall(r"torch::Tensor \w+\((.*?)\) {(.*?)\n}", text, re.DOTALL):
        owners = set(re.findall(r"(\w+)\.size\(", host[1]))
        assert owners <= set(re.findall(r"torch::Tensor (\w+)", host[0])), host


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("torch.nonzero(x)", "nothing that is left for a kernel"),
        ("x", "an output that is an input"),
        ("torch.zeros(3)", "constant"),
        ("torch.fft.fft(x)", "nothing that is left for a kernel"),
        ("x.add_(1)", "input"),
    ],
)
def test_what_cannot_be_written_says_why(body, reason):
    with pytest.raises(Unwritten, match=reason):
        write(task(body, "torch.randn(4, 8)"), "Model")


@pytest.mark.parametrize("kind", KIND_SHARE)
def test_rows_hold_together(kind):
    text = task("F.softmax(self.f(x), dim=1)", "torch.randn(8, 64)", "self.f = nn.Linear(64, 3)")
    for index in range(6):
        row = task_sample(Task("a", text), 1, index, kind)
        before, after = row.get("around", ("", ""))
        assert row["prefix"] + row["core"] + row["suffix"] == row["program"]
        assert row["id"] == f"1-{index}" and row["ops"] == ["linear", "softmax"]
        assert row_chars(row) <= MAX_CHARS
        if kind != "kernel_body" or before:
            tree = ast.parse(before + row["program"] + after)
            assert "ModelNew" in {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
        assert row == task_sample(Task("a", text), 1, index, kind)


def bodies(body: str, inputs: str, arguments: str = "x", init: str = "pass") -> list[dict[str, Any]]:
    """Rows of kind ``kernel_body`` for a task, each drawn anew."""
    text = task(body, inputs, init, arguments)
    rows = [task_sample(Task("a", text), seed, 0, "kernel_body") for seed in range(16)]
    return [row for row in rows if "verdict" not in row]


BODIES = {
    "warp": ("torch.softmax(x, 1)", "torch.randn(8, 64)", "shfl_xor"),
    "block": ("torch.softmax(x, 1)", "torch.randn(8, 600)", "auto block_sum"),
    "chain": ("torch.softmax(torch.relu(x) * 2, 1)", "torch.randn(8, 600)", "auto prepare"),
    "scan": ("torch.cumsum(x, 1)", "torch.randn(8, 64)", "shfl_up"),
    "tile": ("x @ y", "torch.randn(48, 64), torch.randn(64, 40)", "__shared__"),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_hasty_body_and_a_better_one_share_signature_and_launch(name):
    body, inputs, better = BODIES[name]
    rows = bodies(body, inputs, "x, y" if "y" in body.split() else "x")
    assert len(rows) == 16 and len({row["reference"] for row in rows}) > 4
    for row in rows:
        assert better in row["core"] and better not in row["reference"]
        assert "_reduce_" not in row["core"] + row["reference"]
        parameters = re.findall(r"(\w+)(?=[,)])", row["prefix"].rpartition("__global__")[2])
        for text in (row["reference"], row["core"]):
            named = set(re.findall(r"(?<![\w.])(\w+)\[", text)) - set(re.findall(r"(\w+)\[\d+\]", text))
            assert named <= set(parameters) | {"sdata", "shared", "xs", "ws"}, (named, row["prefix"], text)


def test_kernels_in_files_of_their_own_have_a_plan():
    inputs = "torch.randn(8, 64), torch.randint(0, 64, (8, 5))"
    rows = [row for row in bodies("torch.gather(x, 1, y).sum(1)", inputs, "x, y") if "around" not in row]
    assert rows
    for row in rows:
        found = [hole for hole in find_holes(row["program"], "kernel.cu") if hole.kind == "kernel_body"]
        assert found and found[0].plan.source == "annotation", found[0].plan.reason
        assert re.search(r"=int\[0,\d\d\)", row["prefix"])


def test_hasty_habits_leave_what_is_computed():
    lines = [
        "float v = acc + bias[col];",
        "v = 1.0f / (1.0f + expf(-v));",
        "v = v * v;",
        "acc = fmaf(f(a, b), x[k], acc);",
    ]
    seen = {"\n".join(hasty(lines, random.Random(seed), waste=False)) for seed in range(64)}
    assert len(seen) > 16
    for text in seen:
        assert "acc + bias" not in text or re.search(
            r"\(acc \+ bias\[col\]\)|v = acc \+ bias\[col\];", text
        ), text
        assert re.search(r"acc = fmaf\(f\(a, b\), x\[k\], acc\);|acc \+= f\(a, b\) \* x\[k\];", text), text


def test_a_kernel_that_nobody_writes_slower_has_no_row():
    assert bodies("torch.gt(x, 0.5)", "torch.randn(8, 64)") == []


def test_plain_work_is_hasty_where_every_step_goes_through_memory():
    rows = bodies("torch.exp(torch.sin(x))", "torch.randn(8, 64)")
    assert rows and all(row["reference"].count("] = ") > row["core"].count("] = ") == 1 for row in rows)


def test_inputs_that_are_too_large_to_be_made_are_traced_by_their_shapes():
    text = source("F.relu(self.f(x))", "torch.randn(1 << 20, 64)", "self.f = nn.Linear(64, 8)")
    assert "fmaxf" in text


def test_long_rows_are_cut_in_parts_where_most_of_a_gpu_would_be_idle():
    assert len(kernels(source("F.mse_loss(x, x * 2)", "torch.randn(1024, 512)"))) == 2
    assert len(kernels(source("torch.sum(x, dim=0)", "torch.randn(8192, 64)"))) == 2
    assert len(kernels(source("torch.std(x)", "torch.randn(1024, 512)"))) == 4
    assert len(kernels(source("torch.sum(x, dim=1)", "torch.randn(1024, 512)"))) == 1
    assert len(kernels(source("x.sum()", "torch.randn(32, 512)"))) == 1


def test_invented_tasks_are_functions_of_seed_and_index_and_can_be_written():
    assert invented_task(1, 2).text == invented_task(1, 2).text != invented_task(1, 3).text
    rows = [row_of_task(INVENTED, 5, index, None, None) for index in range(12)]
    assert sum("verdict" not in row for row in rows) >= 10
    assert {row["kind"] for row in rows} == set(KIND_SHARE)


def test_build_reads_tasks_and_leaves_out_what_it_cannot_write(tmp_path, capsys):
    tasks = tmp_path / "tasks.jsonl"
    texts = {
        "a": task("torch.relu(x)", "torch.randn(4, 8)"),
        "b": task("torch.nonzero(x)", "torch.randn(4, 8)"),
    }
    tasks.write_text("".join(json.dumps({"id": k, "pytorch_code": v}) + "\n" for k, v in texts.items()))
    out = tmp_path / "rows.jsonl"
    assert cli.main(["build", "--tasks", str(tasks), "--count", "2", "--out", str(out)]) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["task"] for row in rows] == ["a"]
    assert UNWRITTEN in capsys.readouterr().out


def test_coverage_counts_what_is_written_and_names_what_is_missing():
    found = Coverage()
    for body in ("torch.relu(x)", "torch.nonzero(x)", "self.f(x)"):
        text = task(body, "torch.randn(4, 8)", "self.f = nn.Linear(8, 3)")
        found.add(examine(Task(body, text)))
    assert (found.tasks, found.written, found.chains) == (3, 2, 1)
    assert found.families == {"elementwise": 1, "order": 1, "product": 1}
    assert "nothing that is left for a kernel" in text_of(found)
    assert family_of("conv2d") == "convolution" and family_of("exp") == "elementwise"


def test_tidy_reuses_variables_and_leaves_no_gap():
    lines = [
        "float v = x[idx];",
        "float v1 = expf(v);",
        "int i0 = idx / n;",
        "float v2 = v1 + 1.0f;",
        "out[idx] = v2;",
    ]
    assert tidy(lines) == ["float v = x[idx];", "v = expf(v);", "v = v + 1.0f;", "out[idx] = v;"]
    kept = ["float v = x[idx];", "float v1 = expf(v);", "out[idx] = v + v1;"]
    assert tidy(kept) == kept
    gaps = ["float v = x[idx];", "float v3 = y[idx];", "out[idx] = v + v3 + v;"]
    assert tidy(gaps) == ["float v = x[idx];", "float v1 = y[idx];", "out[idx] = v + v1 + v;"]


def test_variants_keep_the_form_of_a_task_and_mostly_run() -> None:
    given = task(
        "torch.sum(self.act(x) * 0.5, dim=1)",
        "torch.randn(16, 64), torch.randn(16, 64)",
        "self.act = nn.ReLU()",
        "x, other",
    )
    rng = random.Random(4)
    others = {variant(given, rng) for _ in range(40)}
    assert len(others) > 30 and max(abs(t.count("\n") - given.count("\n")) for t in others) <= 1
    written = [t for t in others if "core" in task_sample(Task("t", t), 1, 0, "module")]
    assert len(written) > 0.8 * len(others)
    assert len({line for t in written for line in t.splitlines() if "return torch." in line}) > 20


def test_a_second_round_of_tasks_is_of_variants(tmp_path: Path) -> None:
    given = task("torch.sum(torch.relu(x), dim=1)", "torch.randn(16, 64)")
    file = tmp_path / "tasks.jsonl"
    file.write_text(json.dumps({"id": 1, "pytorch_code": given}) + "\n")
    rows = [row_of_task(str(file), 3, index, "module", None) for index in range(6)]
    assert rows[0]["reference"] == given and {row["task"] for row in rows} == {"1"}
    assert len({row["reference"] for row in rows}) > 3
    assert rows == [row_of_task(str(file), 3, index, "module", None) for index in range(6)]


@pytest.mark.parametrize(("columns", "own"), [(64, True), (512, False)])
def test_products_with_long_sums_stay_in_torch(columns: int, own: bool) -> None:
    text = task("torch.relu(self.fc(x))", f"torch.randn(4, {columns})", f"self.fc = nn.Linear({columns}, 8)")
    answer = write(text, "Model")
    assert answer.kept == (() if own else ("linear",))
    assert ("self.fc(x)" in answer.class_text) != own


def test_another_layout_has_the_same_answer() -> None:
    given = task("torch.sum(self.act(x) * 0.5, dim=1)", "torch.randn(16, 64)", "self.act = nn.PReLU(64)")
    expected = write(given, "Model").extension.source()
    rng = random.Random(2)
    others = [another_layout(given, rng) for _ in range(30)]
    assert sum('"""' in text for text in others) > 20 and len(set(others)) > 20
    for text in others:
        answer = write(text, "Model")
        assert answer.extension.source() == expected and '"""' not in answer.class_text


@pytest.mark.parametrize(
    ("inputs", "four"),
    [
        ("torch.randn(1024, 1024), torch.randn(1024, 1024)", True),
        ("torch.randn(1024, 1000), torch.randn(1024, 1000)", False),  # too few
        ("torch.randn(1025, 1025), torch.randn(1025, 1025)", False),  # no multiple of four
        ("torch.randn(1024, 1024), torch.randn(1024)", False),  # a broadcast
    ],
)
def test_large_tensors_are_read_four_elements_at_a_time(inputs: str, four: bool) -> None:
    text = source("torch.relu(x) * y", inputs, arguments="x, y")
    assert ("*reinterpret_cast<const float4*>(x + idx)" in text) == four
    assert ("TORCH_CHECK(n % 4 == 0);" in text) == ("(n / 4 + threads - 1)" in text) == four


@pytest.mark.parametrize(("columns", "loops"), [(8192, 3), (8190, 0), (1024, 0)])
def test_long_rows_are_read_four_elements_at_a_time(columns: int, loops: int) -> None:
    text = source(
        f"F.layer_norm(x, ({columns},), self.w)",
        f"torch.randn(64, {columns})",
        f"self.w = nn.Parameter(torch.rand({columns}))",
    )
    assert text.count("for (int c = threadIdx.x * 4;") == loops
    assert text.count("for (int c = threadIdx.x;") == 3 - loops
    assert ("TORCH_CHECK(cols % 4 == 0);" in text) == (loops > 0)


def test_a_source_that_stood_there_is_a_reference_where_its_module_is_elsewhere() -> None:
    text = task("torch.softmax(x, 1)", "torch.randn(8, 600)")
    rows = [task_sample(Task("a", text), seed, 0, "load_inline_core") for seed in range(30)]
    stood = [row for row in rows if "pytorch" in row]
    assert 3 < len(stood) < 20 and all("class Model(" not in row["program"] for row in stood)
    for row in stood:
        assert row["pytorch"] == text and row["reference"].split('"')[0] == row["core"].split('"')[0]
        assert "shfl" in row["core"] and "shfl" not in row["reference"]
    plain = task("torch.gt(x, 0.5)", "torch.randn(8, 600)")
    assert not any(
        "pytorch" in task_sample(Task("a", plain), seed, 0, "load_inline_core") for seed in range(20)
    )


def test_invented_tasks_are_python() -> None:
    for index in range(150):
        text = invented_task(44, index).text
        ast.parse(another_layout(text, random.Random(index)))
        assert not re.search(r"\de-(?!\d)", text)


def test_the_first_task_has_no_less_time_than_the_others() -> None:
    """What the first trace imports is there before its time begins: a limit within an import spoils the rest."""
    code = """
import signal, sys
from dice_training.cuke.traced import tasks
known = []
signal.alarm = lambda seconds: known.append(set(sys.modules))
tasks.row_of_task("invented", 3, 0, None, None)
print(sorted(name for name in set(sys.modules) - known[0] if name.startswith("torch._dynamo")))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[]"


def test_invented_tasks_have_what_a_small_model_copies_wrongly() -> None:
    """Parameters, numbers that come by a name from get_init_inputs, arguments of no use, and several results."""
    texts = [invented_task(5, index).text for index in range(150)]
    forms = {
        "a parameter": r"= nn\.Parameter\(torch\.randn\(",
        "its shape by name": r"nn\.Parameter\(torch\.randn\(\w+_shape\)\)",
        "a number by a constant's name": r"(?ms)^(\w+) = -?[\d.]+$.*get_init_inputs\(\):\s+return \[[^]]*\b\1\b",
        "two results": r"(?m)^        return \w+, \w+$",
        "an argument that nothing uses": r"in_features = in_features|out_channels = out_channels",
    }
    for name, form in forms.items():
        assert sum(bool(re.search(form, text)) for text in texts) >= 2, name
    assert all(run_once(text) for text in texts[:40])


def run_once(text: str) -> bool:
    space: dict[str, Any] = {}
    exec(text, space)
    space["Model"](*space["get_init_inputs"]())(*space["get_inputs"]())
    return True

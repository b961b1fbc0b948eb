"""Plans of kernels that functions of torch tensors launch."""

from __future__ import annotations

from pathlib import Path

import pytest
from dice_engine.source.holes import find_annotation_errors, find_holes
from dice_engine.source.plan import Plan
from dice_engine.source.plan_view import explain
from dice_engine.source.plans import kernel_plan, measuring_sizes

TEXT = (Path(__file__).parents[1] / "sources" / "tensors.cu").read_text()


def plan(name: str, text: str = TEXT) -> Plan:
    return kernel_plan(text, name)


def test_tensors_that_are_only_counted_have_one_length() -> None:
    found = plan("gate_kernel")
    assert (found.source, found.wrapper) == ("host", "gate")
    assert found.arguments == ("torch.randn([n]).to(torch.float32)",) * 2
    lengths = [sizes["n"] for sizes in found.sizes]
    assert any(length % 256 for length in lengths) and min(lengths) < 256
    assert measuring_sizes(found) == {"n": 1 << 24}


def test_shapes_follow_from_what_is_asked_and_checked() -> None:
    found = plan("product_kernel")
    assert found.arguments == (
        "torch.randn([M, K]).to(torch.float32)",
        "torch.randn([K, N]).to(torch.float32)",
    )
    assert all(
        len(set(sizes.values())) == 3 for sizes in found.sizes[:3]
    )  # nothing passes for something else


def test_a_tensor_nobody_asks_about_is_as_long_as_any_index_may_be() -> None:
    found = plan("scale_rows_kernel")
    assert found.arguments[:2] == (
        "torch.randn([rows, width]).to(torch.float32)",
        "torch.randn([rows*width]).to(torch.float32)",
    )
    assert "uniform_(0.25, 0.95)" in found.arguments[2]


def test_the_type_is_the_one_that_the_code_reads() -> None:
    text = TEXT.replace(
        "x.data_ptr<float>(), w.data_ptr<float>()", "x.data_ptr<at::Half>(), w.data_ptr<float>()"
    )
    text = text.replace("scale_rows_kernel(float* x", "scale_rows_kernel(half* x")
    made = plan("scale_rows_kernel", text).arguments
    assert "float16" in made[0] and "float32" in made[1]


def test_indices_are_never_made_at_random() -> None:
    found = plan("take_kernel")
    assert not found.runnable
    assert (
        "add // @dice host=take inputs(table=randn(64, 1024), rows=randint(0, 64, (1024,), dtype=int64))"
        in str(found.reason)
    )


def test_a_number_that_follows_from_nothing_is_asked_for() -> None:
    found = plan("shift_kernel")
    assert not found.runnable
    assert "parameter by" in str(found.reason) and "inputs(x=randn(64, 1024), by=1)" in str(found.reason)


def test_an_annotation_gives_the_arguments() -> None:
    found = plan("pick_kernel")
    assert found.source == "annotation"
    assert found.arguments == ("torch.randn(n, 33)", "torch.randint(0, n, (17,), dtype=torch.int64)")
    assert found.sizes == ({"n": 40}, {"n": 7})


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("inputs(tabel=randn(n, 33), rows=randint(0, n, (17,), dtype=int64))", "Did you mean `table`?"),
        ("inputs(table=randn(m, 33), rows=randint(0, n, (17,), dtype=int64))", "`m` has no value"),
        ("inputs(table=open(n))", "unknown input maker `open`"),
    ],
)
def test_a_fault_in_the_arguments_is_a_diagnostic(wrong: str, said: str) -> None:
    line = next(line for line in TEXT.splitlines() if line.startswith("// @dice"))
    text = TEXT.replace(line, f"// @dice host=pick {wrong} sizes(n=40; n=7)")
    assert not plan("pick_kernel", text).runnable
    errors = find_annotation_errors(text, "tensors.cu")
    assert [error.line for error in errors] == [TEXT.splitlines().index(line)]
    assert said in errors[0].message


def test_the_plan_is_shown() -> None:
    shown = {part.what: part for part in explain(plan("product_kernel"))}
    assert shown["called through"].value == "product(...)"
    assert shown["a"].value == "torch.randn([M, K]).to(torch.float32)"
    assert "a[M, K], b[K, N]" in shown["a"].origin


def test_a_function_of_tensors_goes_before_one_of_pointers() -> None:
    text = TEXT + (
        "\nvoid raw_gate(const float* x, const float* g, float* y, int n) {\n"
        "  gate_kernel<float><<<(n + 255) / 256, 256>>>(x, g, y, n);\n}\n"
    )
    assert plan("gate_kernel", text).source == "host"
    text = text.replace("torch::Tensor gate(", "torch::Tensor gate(Unknown why, ")
    assert plan("gate_kernel", text).source == "launch", "where that one cannot be called"


def test_every_kernel_of_the_file_is_listed() -> None:
    holes = {hole.name: hole.plan.source for hole in find_holes(TEXT, "tensors.cu")}
    assert holes == {
        "gate_kernel": "host",
        "product_kernel": "host",
        "scale_rows_kernel": "host",
        "take_kernel": "no_plan",
        "pick_kernel": "annotation",
        "shift_kernel": "no_plan",
    }

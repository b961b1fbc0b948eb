"""What is asked of the engine for each kind of hole, and what is compared with what."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from dice_engine.source.holes import find_holes
from dice_engine.source.plain_pytorch import reference_source

from dice_ls.suggestions.requests import NotCheckable, Request

INLINE = '''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

width = 64


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


source = """
__global__ void relu(const float* x, float* y, int n) {
    int i = threadIdx.x;  // "\\\\n"
    if (i < n) y[i] = fmaxf(x[i], 0.0f);
}
"""
ext = load_inline(name="ext", cpp_sources="", cuda_sources=source, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        return ext.run(x)


def get_inputs():
    return [torch.randn(4, width)]


def get_init_inputs():
    return []
'''
PLAIN = INLINE[: INLINE.index("source =")] + INLINE[INLINE.index("def get_inputs") :]


def request(text: str, path: str, kind: str, name: str | None = None) -> Request:
    holes = find_holes(text, path)
    hole = next(hole for hole in holes if hole.kind == kind and name in (None, hole.name))
    return Request(path, text, hole)


def test_a_cuda_kernel_is_compared_with_itself_as_its_plan_says(tmp_path: Path) -> None:
    text = (
        "__global__ void k(float* x, int n) { x[0] = n; }\nvoid run(float* x, int n) { k<<<1, 1>>>(x, n); }\n"
    )
    asked = request(text, "a.cu", "kernel_body")
    generate, verify = asked.generate(), asked.verify(" x[0] = 2 * n; ")
    assert generate.prefix + generate.reference + generate.suffix == text
    assert (verify.kernel, verify.original) == ("k", text)
    assert verify.candidate == text.replace(" x[0] = n; ", " x[0] = 2 * n; ")
    assert verify.plan is asked.hole.plan


def test_an_inline_source_is_written_for_its_pytorch_class_and_compared_with_the_present_class() -> None:
    asked = request(INLINE, "m.py", "load_inline_core")
    reference = asked.generate().reference
    assert "class Model(" in reference and "def get_inputs" in reference and "width = 64" in reference
    assert "ModelNew" not in reference and "__global__" not in reference and "cpp_extension" not in reference
    ast.parse(reference)
    verify = asked.verify('source = """// new"""')
    assert (verify.kernel, verify.reference_class, verify.candidate_class) == (None, "ModelNew", "ModelNew")
    assert 'source = """// new"""' in verify.candidate and verify.original == INLINE


def test_without_a_pytorch_class_the_present_source_is_the_reference() -> None:
    text = INLINE.replace(INLINE[INLINE.index("class Model(") : INLINE.index("source =")], "")
    asked = request(text, "m.py", "load_inline_core")
    assert asked.generate().reference == asked.hole.core
    assert reference_source("class Broken(:") is None


def test_a_kernel_in_a_string_runs_through_its_module() -> None:
    asked = request(INLINE, "m.py", "kernel_body")
    verify = asked.verify("\n    y[0] = 1;  // \\n\n")
    assert (verify.kernel, verify.reference_class) == (None, "ModelNew")
    assert "// \\\\n" in verify.candidate


def test_an_annotated_kernel_in_a_string_is_launched_as_the_annotation_says() -> None:
    annotation = "// @dice grid=1 block=32 in(x[n]) out(y[n]) sizes(n=31; n=5)\n"
    text = INLINE.replace("__global__", annotation + "__global__")
    asked = request(text, "m.py", "kernel_body")
    assert asked.hole.plan.source == "annotation"
    verify = asked.verify(" y[0] = 1; ")
    assert verify.kernel == "relu" and verify.original.startswith("\n// @dice")
    assert "import torch" not in verify.original and " y[0] = 1; " in verify.candidate


def test_a_module_is_compared_with_what_is_written_after_it() -> None:
    asked = request(PLAIN, "m.py", "module")
    verify = asked.verify("\n\n\nclass Faster(nn.Module):\n    pass\n")
    assert (verify.reference_class, verify.candidate_class) == ("Model", "Faster")
    assert (
        asked.verify("\n\n\nclass A(nn.Module): ...\nclass ModelNew(nn.Module): ...").candidate_class
        == "ModelNew"
    )


def test_an_annotated_module_brings_its_own_inputs() -> None:
    text = PLAIN[: PLAIN.index("def get_inputs")].replace(
        "class Model", "# @dice inputs(x=randn(4, 8))\nclass Model"
    )
    verify = request(text, "m.py", "module").verify("\n\nclass ModelNew(nn.Module): ...")
    for source in (verify.original, verify.candidate):
        assert "def get_inputs" in source and "randn(4, 8)" in source


def test_an_extension_that_no_class_uses_cannot_be_checked() -> None:
    text = INLINE.replace("ext.run(x)", "x")
    with pytest.raises(NotCheckable, match=r"no nn\.Module class"):
        request(text, "m.py", "load_inline_core").check()

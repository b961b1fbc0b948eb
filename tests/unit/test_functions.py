"""Plain Python functions as holes: what is listed, what is asked and compared, where a rewrite goes."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from dice_engine.source.hole import Hole
from dice_engine.source.holes import find_annotation_errors, find_holes

from dice_ls.suggestions.module_forms import new_file, replacing_function
from dice_ls.suggestions.requests import Request

TEXT = """import torch


# @dice inputs(x=randn(64, 1024), bias=randn(1024))
def shifted(x: torch.Tensor, bias: torch.Tensor, power=2, *, clip=None) -> torch.Tensor:
    y = (x + bias) ** power
    return y if clip is None else y.clamp(max=clip)


def untold(x):
    return x * 2


# @dice inputs(x=randn(8))
async def never(x):
    return x
"""
NEW = """


class ModelNew(torch.nn.Module):
    def forward(self, x, bias):
        return x + bias  # ModelNew
"""


def hole(text: str = TEXT, name: str = "shifted") -> Hole:
    return next(one for one in find_holes(text, "m.py") if one.name == name)


def test_a_function_with_a_plan_is_a_hole() -> None:
    (found,) = find_holes(TEXT, "m.py")
    assert (found.kind, found.name, found.plan.source, found.editable) == (
        "module",
        "shifted",
        "annotation",
        True,
    )
    assert found.signature == "(x: torch.Tensor, bias: torch.Tensor, power=2, *, clip=None) -> torch.Tensor"
    assert found.prefix + found.core + found.suffix == TEXT and found.prefix.endswith("clamp(max=clip)")
    assert find_annotation_errors(TEXT, "m.py")[0].line == 13, "an async function is none"


def test_input_makers_and_functions_around_an_extension_are_none() -> None:
    text = "from torch.utils.cpp_extension import load_inline\nsrc = ''''''\nm = load_inline('m', '', src)\n"
    text += "# @dice inputs(x=randn(8))\ndef run(x):\n    return m.f(x)\n"
    text += "# @dice inputs(n=8)\ndef get_inputs(n=1):\n    return [n]\n"
    assert all(one.kind != "module" for one in find_holes(text, "m.py"))


def test_a_parameter_that_is_not_there_is_a_fault_on_its_line() -> None:
    text = TEXT.replace("bias=randn(1024)", "bais=randn(1024)")
    assert not hole(text).plan.runnable
    error = find_annotation_errors(text, "m.py")[0]
    assert error.line == 3 and "shifted has no parameter `bais`. Did you mean `bias`?" in error.message


def test_it_is_compared_as_a_module_that_calls_it() -> None:
    asked = Request("m.py", TEXT, hole())
    assert asked.generate().prefix.endswith(
        "class Model(torch.nn.Module):\n    def forward(self, x, bias):\n        return shifted(x, bias)"
    )
    verify = asked.verify(NEW)
    assert (verify.kernel, verify.reference_class, verify.candidate_class) == (
        None,
        "shifted_call",
        "ModelNew",
    )
    assert NEW in verify.candidate and NEW not in verify.original
    for source in (verify.original, verify.candidate):
        assert "class shifted_call(" in source and "def get_inputs" in source
        ast.parse(source)


def test_in_its_place_the_original_stays_and_serves_what_was_not_checked() -> None:
    found = hole()
    source = TEXT.encode()[found.anchor[0] : found.end_byte].decode()
    kept, core = replacing_function(found, source, NEW)
    text = TEXT.replace(source, kept + core)
    assert "class ShiftedKernel(torch.nn.Module)" in text and "ModelNew" not in text
    calls = _calls(text)
    assert calls("shifted", 1, 2) == "fast"
    assert calls("shifted", 1, 2, 2, clip=None) == "fast"
    assert calls("shifted", 1, 2, 3) == calls("shifted", 1, 2, clip=0.5) == "original"
    # The annotation goes with the original, which is rewritten next time, and the new one runs an extension.
    assert [one.name for one in find_holes(text, "m.py")] == ["shifted_reference"]


def test_in_a_file_of_its_own() -> None:
    text = new_file(hole(), NEW, TEXT, "m")
    ast.parse(text)
    assert "from m import shifted as shifted_reference" in text and "def shifted(x: torch.Tensor" in text


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_line_ends(newline: str) -> None:
    text = TEXT.replace("\n", newline)
    found = hole(text)
    assert found.prefix + found.core + found.suffix == text and found.newline == newline


def test_recorded_calls_are_a_plan(tmp_path: Any) -> None:
    from dice_engine.source.project import Project
    from dice_engine.source.recorded import Recorded

    path = str(tmp_path / "m.py")
    entry = {"function": "untold", "file": path, "calls": 9, "share": 0.5}
    entry["inputs"] = [{"dtype": "float16", "shape": [4, 8], "stride": [8, 1]}]
    project = Project(recorded=Recorded(functions=(entry,)))
    found = {one.name: one.plan for one in find_holes(TEXT, path, project)}
    assert (
        found["untold"].source == "recorded" and "9 calls with f16[4,8]" in found["untold"].origin["inputs"]
    )
    assert "randn([4, 8])" in (found["untold"].inputs_source or "")


def _calls(text: str) -> Any:
    """Runs the text with stand-ins for torch; says which of the two a call reached."""

    class Fake:
        Tensor = object

        class nn:
            class Module:
                def __call__(self, *args: Any) -> str:
                    return "fast"

    class Number:
        def __init__(self, value: Any) -> None:
            self.value = value

        def __add__(self, other: Any) -> Any:
            return self

        def __pow__(self, other: Any) -> Any:
            return self

        def clamp(self, max: Any) -> Any:
            return self

    module: dict[str, Any] = {"torch": Fake}
    exec(text.replace("import torch\n", ""), module)

    def call(name: str, *args: Any, **kwargs: Any) -> str:
        result = module[name](*map(Number, args[:2]), *args[2:], **kwargs)
        return result if result == "fast" else "original"

    return call

"""dice.toml and compile commands: annotations, include folders and definitions, and nothing that runs."""

from __future__ import annotations

import json
from pathlib import Path

from dice_engine.source.holes import find_holes
from dice_engine.source.plan import Plan
from dice_engine.source.project import Build, Project, load, project_around

KERNEL = "__global__ void blend(const float* x, float* y, int n) {\n  y[0] = x[0];\n}\n"
MODULE = "import torch\n\n\nclass Gate(torch.nn.Module):\n    def forward(self, x):\n        return x * 2\n"
TOML = """
[kernel.blend]
file = "vendor/*.cu"
grid = "(n+255)/256"
block = 256
in = ["x[n]"]
out = "y[n]"
sizes = ["n=1000", "n=31"]

[module.Gate]
inputs = "x=randn(64, 8)"

[build]
include = ["include"]
define = ["FAST", "WIDTH=4"]
"""


def project(root: Path, text: str = TOML) -> Project:
    (root / "dice.toml").write_text(text, encoding="utf-8")
    return load(root)


def plan(text: str, path: Path, of: Project) -> Plan:
    (hole,) = find_holes(text, str(path), of)
    return hole.plan


def test_a_kernel_is_annotated_from_outside(tmp_path: Path) -> None:
    told = plan(KERNEL, tmp_path / "vendor" / "a.cu", project(tmp_path))
    assert told.source == "annotation" and told.grid == ("(n+255)/256", "1", "1")
    assert told.sizes == ({"n": 1000}, {"n": 31})
    assert set(told.origin.values()) == {"dice.toml"}
    assert not plan(KERNEL, tmp_path / "other" / "a.cu", load(tmp_path)).runnable, "another file"


def test_an_annotation_above_the_kernel_wins(tmp_path: Path) -> None:
    text = "// @dice grid=1 block=32 in(x[n]) out(y[n]) sizes(n=32)\n" + KERNEL
    assert plan(text, tmp_path / "vendor" / "a.cu", project(tmp_path)).grid == ("1", "1", "1")


def test_a_module_is_annotated_from_outside(tmp_path: Path) -> None:
    told = plan(MODULE, tmp_path / "a.py", project(tmp_path))
    assert told.source == "annotation" and "torch.randn(64, 8)" in (told.inputs_source or "")


def test_faults_are_named(tmp_path: Path) -> None:
    text = '[kernal.x]\n[settings]\ncheckpoint = "/evil"\n[kernel.blend]\nsizse = "n=1"\ngrid = true\n'
    text += '[build]\nnvcc = "/evil"\n'
    problems = project(tmp_path, text).problems
    assert any("[kernal]" in one and "Did you mean `kernel`" in one for one in problems)
    assert any("[settings]" in one and "Settings belong to the editor" in one for one in problems)
    assert any("'sizse'" in one and "Did you mean `sizes`" in one for one in problems)
    assert any("grid must be text" in one for one in problems)
    assert any("'nvcc'" in one and "Known: include, define" in one for one in problems)
    assert "cannot be read" in project(tmp_path, "[kernel").problems[0]
    wrong = TOML.replace("n=31", "m=31")
    reason = plan(KERNEL, tmp_path / "vendor" / "a.cu", project(tmp_path, wrong)).reason
    assert reason is not None and reason.startswith("dice.toml: ")


def test_compile_commands_give_folders_and_definitions(tmp_path: Path) -> None:
    source = tmp_path / "src" / "a.cu"
    entries = [
        {
            "directory": str(tmp_path / "build"),
            "file": "../src/../src/a.cu",
            "command": "nvcc -ccbin /evil/g++ -I../inc -isystem '/opt/with space' -DN=4 -D 'NAME=\"x\"' -c ../src/a.cu",
        },
        {"directory": str(tmp_path), "file": str(source), "arguments": ["nvcc", "-Iinc2", "-c", "x"]},
        {"file": 3},
        "nonsense",
    ]
    (tmp_path / "compile_commands.json").write_text(json.dumps(entries))
    build = load(tmp_path).build_of(str(source))
    assert build.folders == (str(tmp_path / "inc2"),)
    (tmp_path / "compile_commands.json").write_text(json.dumps([{**entries[0], "file": str(source)}]))  # type: ignore[dict-item]
    build = load(tmp_path).build_of(str(source))
    assert build.folders == (str(tmp_path / "inc"), "/opt/with space")
    assert build.definitions == ("N=4", 'NAME="x"')
    assert build.flags == [f"-I{tmp_path / 'inc'}", "-I/opt/with space", "-DN=4", '-DNAME="x"']
    assert load(tmp_path).build_of(str(tmp_path / "src" / "b.cuh")) == build, "a header beside it"
    assert project_around(str(source)).build_of(str(source)) == build


def test_headers_of_the_project_are_put_in_their_places(tmp_path: Path) -> None:
    (tmp_path / "inc").mkdir()
    (tmp_path / "inc" / "a.cuh").write_text('#pragma once\n#include "b.cuh"\nint a;\n')
    (tmp_path / "inc" / "b.cuh").write_text('#include "a.cuh"\nint b;\n')
    text = '#include <cuda_runtime.h>\n#include "a.cuh"\n#include <b.cuh>\nint c;\n'
    build = Build((str(tmp_path / "inc"),), ("N", "M=2"))
    expanded = build.expanded(text, str(tmp_path / "x.cu"))
    assert expanded.startswith("#define N 1\n#define M 2\n#include <cuda_runtime.h>\n")
    assert expanded.count("int a;") == expanded.count("int b;") == 1 and expanded.endswith("int c;\n")
    assert Build().expanded(text, str(tmp_path / "x.cu")) == text

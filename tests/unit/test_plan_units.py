"""Plans that need other files of the project: headers of a source, and the source that launches a header's kernel."""

from __future__ import annotations

from pathlib import Path

import pytest
from dice_engine.source.hole import Hole
from dice_engine.source.holes import apply, find_holes
from dice_engine.source.includes import unit
from dice_engine.source.project import Project, load

RELU = """#pragma once
// A kernel that somebody else launches.
template <typename T>
__global__ void relu(const T* x, T* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] > T(0) ? x[i] : T(0);
}
"""
CONFIG = """#ifndef CONFIG_H
#define CONFIG_H
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
using real = float;
constexpr int kThreads = 192;
#endif
"""
MAIN = """#include <cuda_runtime.h>
#include "kernels/relu.cuh"
#include "config.h"

__global__ void shift(const real* x, real* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + 1;
}

void run_shift(const real* x, real* y, int n) { shift<<<CEIL_DIV(n, kThreads), kThreads>>>(x, y, n); }
void run_relu(const real* x, real* y, int n) {
  relu<real><<<CEIL_DIV(n, kThreads), kThreads>>>(x, y, n);
}
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "src" / "kernels").mkdir(parents=True)
    (tmp_path / "include").mkdir()
    (tmp_path / "src" / "kernels" / "relu.cuh").write_text(RELU)
    (tmp_path / "include" / "config.h").write_text(CONFIG.replace("\n", "\r\n"))
    (tmp_path / "src" / "main.cu").write_text(MAIN)
    (tmp_path / "dice.toml").write_text('[build]\ninclude = ["include"]\n')
    return load(tmp_path)


def only(project: Project, name: str, text: str) -> Hole:
    assert project.root is not None
    (hole,) = find_holes(text, str(project.root / "src" / name), project)
    return hole


def test_a_header_tells_the_launch(project: Project) -> None:
    plan = only(project, "main.cu", MAIN).plan
    assert plan.source == "launch", plan.reason
    assert (plan.wrapper, plan.through) == ("run_shift", None)
    assert plan.origin["grid"] == "launch in run_shift, line 10", "the line of the document"
    assert "block 192" in plan.origin["launch"] and [p.ctype for p in plan.params] == [
        "float",
        "float",
        "int",
    ]


def test_the_source_that_includes_a_header_launches_its_kernel(project: Project) -> None:
    hole = only(project, "kernels/relu.cuh", RELU)
    assert project.root is not None
    assert hole.plan.source == "launch", hole.plan.reason
    assert hole.plan.through == str(project.root / "src" / "main.cu")
    assert hole.plan.origin["grid"] == "launch in run_relu, line 12 of main.cu"


def test_what_runs_is_that_source_with_the_edited_header(project: Project) -> None:
    hole = only(project, "kernels/relu.cuh", RELU.replace("T(0)", "T(1)"))
    path = str(project.root / "src" / "kernels" / "relu.cuh") if project.root else ""
    whole = project.whole(apply(hole, " y[0] = 3; "), path, hole.plan.through)
    assert whole.count("__global__ void relu") == 1 and " y[0] = 3; " in whole and "#define CEIL_DIV" in whole
    assert "void run_relu" in whole and "T(0)" not in whole


def test_a_header_that_nobody_includes_is_as_before(project: Project) -> None:
    assert "no launch of relu" in (only(project, "other.cuh", RELU).plan.reason or "")
    assert find_holes(RELU, "relu.cuh", project)[0].plan.source == "no_plan", "a path that is no place"


def test_headers_outside_of_the_project_are_not_read(project: Project, tmp_path: Path) -> None:
    inside = tmp_path / "inner"
    inside.mkdir()
    (inside / "link.h").symlink_to(tmp_path / "include" / "config.h")
    for header in ("../include/config.h", str(tmp_path / "include" / "config.h"), "link.h"):
        text = MAIN.replace('"config.h"', f'"{header}"')
        (hole,) = find_holes(text, str(inside / "main.cu"), Project(inside))
        assert not hole.plan.runnable, header


def test_two_kernels_of_one_name_are_no_plan(project: Project) -> None:
    assert project.root is not None
    text = MAIN.replace("__global__ void shift", RELU.split("\n", 2)[2] + "__global__ void shift")
    (project.root / "src" / "main.cu").write_text(text)
    assert not only(project, "kernels/relu.cuh", RELU).plan.runnable


def test_lines_know_their_files(tmp_path: Path) -> None:
    (tmp_path / "a.h").write_text('int a;\n#include "a.h"\nint b;\n')
    made = unit('#include "a.h"\nint c;\n#include "missing.h"\n', str(tmp_path / "x.cu"), (), ("N=2",))
    assert made.text.split("\n") == [
        "#define N 2",
        "int a;",
        "",
        "int b;",
        "int c;",
        '#include "missing.h"',
        "",
    ]
    names = [(Path(file).name, line) for file, line in made.places]
    assert names[1:] == [("a.h", 1), ("a.h", 2), ("a.h", 3), ("x.cu", 2), ("x.cu", 3), ("x.cu", 4)]

"""A selection is widened to whole statements, or to the body."""

from __future__ import annotations

import pytest
from dice_engine.source.holes import find_holes
from dice_engine.source.selection import select
from hypothesis import given, settings
from hypothesis import strategies as st

TEXT = """__global__ void walk(float* x, int n) {
  int i = threadIdx.x;
#pragma unroll
  for (int k = 0; k < 3; ++k) {
    x[k] = 1.0f;  // 很好 😀
    x[k + 1] = 2.0f;
    if (k) x[k] += 1;
  }
  x[i] = i; x[0] = 3;
}

void run(float* x, int n) { walk<<<1, 32>>>(x, n); }
"""
HOLES = find_holes(TEXT, "a.cu")


def picked(first: str, last: str | None = None) -> tuple[str, str]:
    """Kind and core of the hole for the text from ``first`` to the end of ``last``."""
    start = TEXT.index(first)
    end = TEXT.index(last, start) + len(last) if last is not None else start
    hole = select(HOLES, len(TEXT[:start].encode()), len(TEXT[:end].encode()))
    assert hole is not None and hole.prefix + hole.core + hole.suffix == TEXT
    return hole.kind, hole.core


@pytest.mark.parametrize(
    ("first", "last", "core"),
    [
        ("x[k] = 1", None, "x[k] = 1.0f;"),
        ("  x[k] = 1", "1.0f;  // 很好", "x[k] = 1.0f;"),
        ("1.0f", "2.0", "x[k] = 1.0f;  // 很好 😀\n    x[k + 1] = 2.0f;"),
        ("x[k] += 1", None, "if (k) x[k] += 1;"),
        ("x[i] = i", None, "x[i] = i;"),
        ("i; x[0]", "x[0]", "x[i] = i; x[0] = 3;"),
    ],
)
def test_whole_statements_on_the_innermost_level(first: str, last: str | None, core: str) -> None:
    assert picked(first, last) == ("selection", core)


def test_a_pragma_stays_with_its_loop() -> None:
    kind, core = picked("for (int k", "x[i]")
    assert kind == "selection" and core.startswith("#pragma unroll\n  for (int k")
    assert core.endswith("x[i] = i;")


@pytest.mark.parametrize(("first", "last"), [("int i", "x[0] = 3"), ("walk", "int i"), ("__global__", None)])
def test_what_covers_or_leaves_the_body_means_the_body(first: str, last: str | None) -> None:
    assert picked(first, last)[0] == "kernel_body"


def test_outside_of_kernels_there_is_nothing() -> None:
    at = TEXT.index("void run")
    assert select(HOLES, len(TEXT[: at + 3].encode()), len(TEXT[: at + 6].encode())) is None


def test_a_syntax_error_means_the_body() -> None:
    text = "__global__ void f(float* x) {\n  x[0] = ;\n  x[1] = 2;\n}\n"
    holes = find_holes(text, "a.cu")
    broken, whole = (
        select(holes, text.index("= ;"), text.index("= ;")),
        select(holes, text.index("2;"), text.index("2;")),
    )
    assert broken is not None and broken.kind == "kernel_body"
    assert whole is not None and whole.core == "x[1] = 2;"


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_any_selection_keeps_every_byte(data: st.DataObject) -> None:
    size = len(TEXT.encode())
    start = data.draw(st.integers(0, size))
    end = data.draw(st.integers(start, size))
    hole = select(HOLES, start, end)
    if hole is not None:
        assert hole.prefix + hole.core + hole.suffix == TEXT

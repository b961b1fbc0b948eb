"""Reading on after one edit gives what reading everything gives, or says that it cannot."""

from __future__ import annotations

import pytest
from dice_engine.source.hole import Hole
from dice_engine.source.holes import find_holes
from dice_engine.source.incremental import edited
from dice_engine.source.lines import LineMap, to_text
from hypothesis import given, settings
from hypothesis import strategies as st

TEXT = """#include <cuda_runtime.h>
// 很好 😀
template <typename T> __global__ void one(T* x, int n) {
  int i = threadIdx.x; // a comment { with a brace
  if (i < n) { x[i] = 1; }
#pragma unroll 2
  for (int k = 0; k < 2; ++k) x[i] += k;
}

// about two
static __global__ void two(float* y, int n) {
  const char* s = "}";
  y[0] = 2; /* 😋 */
}

void run(float* x, int n) {
  const int threads = 128;
  two<<<(n + threads - 1) / threads, threads>>>(x, n);
}
#define N 3
__global__ void three(float* z) { z[0] = N; }
"""


def places(holes: list[Hole]) -> list[tuple[object, ...]]:
    return [(h.name, h.start_byte, h.end_byte, h.anchor, h.editable, h.newline) for h in holes]


def change(text: str, start: int, end: int, put: str) -> tuple[str, list[Hole] | None]:
    """The text after an edit at byte offsets, and what reading on gives."""
    old = text.encode()
    new = old[:start] + put.encode() + old[end:]
    return to_text(new), edited(find_holes(text, "a.cu"), new, start, end, len(put.encode()))


@pytest.mark.parametrize(
    ("at", "put"),
    [
        ("x[i] = 1", "x[i] += "),
        ("int i", "\n  "),
        ("y[0]", "if (n) { "),
        ("const int threads", "int more = 3; "),
        ("const int threads", "\n\n"),
        ("// about two", "// 说明\n"),
        ("void run", "struct A { int b; };\n"),
        ("const int threads", "if (n) { f(); } "),
        ("for (int k", "x[0] = 2;\n  "),
        ("one(T*", "_"),
        ("T* x", "const "),
        ("int n) {\n  const", "float a, "),
        ("typename T>", "int N, "),
    ],
)
def test_common_keys_are_followed(at: str, put: str) -> None:
    start = TEXT.encode().index(at.encode())
    text, found = change(TEXT, start, start, put)
    if put == "if (n) { ":
        assert found is None, "its braces do not balance"
        return
    assert found is not None and places(found) == places(find_holes(text, "a.cu"))
    assert all(hole.prefix + hole.core + hole.suffix == text for hole in found)


@pytest.mark.parametrize(
    ("at", "put"),
    [
        ("// about two", "// @dice grid=1 block=1\n"),
        ("static __global__ void two", "inline "),
        ("void run", "/* "),
        ("void run", "__global__ void four(float* x) {}\n"),
        ("void run", "#if 1\n"),
        ("__global__ void two", "void f() { "),
        ("#define N", "// "),
        ("x[i] = 1", "} "),
        ("x[i] = 1", '"'),
        ("x[i] = 1", "/* "),
        ("x[i] += k", "\n#define N 4\n"),
        ("one(T*", "MAKE("),
        ("T* x", "void f(); "),
        ("y[0] = 2", "\n#pragma unroll\n"),
    ],
)
def test_what_may_mean_more_is_read_anew(at: str, put: str) -> None:
    start = TEXT.encode().index(at.encode())
    text, found = change(TEXT, start, start, put)
    assert found is None or places(found) == places(find_holes(text, "a.cu"))


PIECES = [
    "",
    " ",
    "\n",
    "\r\n",
    "{",
    "}",
    "{ }",
    "(",
    ")",
    ";",
    '"',
    "'",
    "//",
    "/*",
    "*/",
    "#if 1\n",
    "#endif\n",
    "x = 1;",
]
PIECES += [
    "static ",
    "__global__ ",
    "void f() {}",
    "template <int N>\n",
    "😀",
    "\\",
    'R"(',
    "@dice",
    "namespace a {",
    "one",
    "template <int M> ",
    "extern ",
    "__launch_bounds__(64) ",
    "ñ",
]


@settings(deadline=None, max_examples=400)
@given(st.data())
def test_whatever_is_edited_both_readings_agree(data: st.DataObject) -> None:
    text = TEXT
    for _ in range(data.draw(st.integers(1, 3))):
        chars = len(text)
        first = data.draw(st.integers(0, chars))
        last = min(chars, first + data.draw(st.sampled_from([0, 0, 0, 1, 3, 20])))
        put = data.draw(st.sampled_from(PIECES))
        start, end = len(text[:first].encode()), len(text[:last].encode())
        text, found = change(text, start, end, put)
        if found is not None:
            assert places(found) == places(find_holes(text, "a.cu"))


@settings(deadline=None, max_examples=300)
@given(st.text("a😀\r\n字", max_size=12), st.text("b\r\n😋", max_size=5), st.data())
def test_lines_are_followed_exactly(text: str, put: str, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(text)))
    last = data.draw(st.integers(first, len(text)))
    start, end = len(text[:first].encode()), len(text[:last].encode())
    lines = LineMap(text).edited(start, end, put.encode())
    fresh = LineMap(text[:first] + put + text[last:])
    assert (lines.data, lines.starts) == (fresh.data, fresh.starts)

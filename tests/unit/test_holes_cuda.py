"""Kernels in CUDA texts of many kinds, finished and not."""

from __future__ import annotations

import pytest
from dice_engine.source.cuda import KernelSpan, find_kernels
from dice_engine.source.holes import apply, find_holes, hole_at
from dice_engine.source.plan import Param
from hypothesis import given, settings
from hypothesis import strategies as st

PLAIN = "__global__ void k(float* q, int n) { q[0] = n; }\n"


def spans(text: str) -> list[KernelSpan]:
    return find_kernels(text)


def named(text: str) -> list[tuple[str, bool]]:
    return [(kernel.name, kernel.editable) for kernel in spans(text)]


def body(text: str, kernel: KernelSpan) -> str:
    return text.encode()[kernel.body_start : kernel.body_end].decode()


@pytest.mark.parametrize(
    ("text", "name", "start"),
    [
        ("static void __global__ k(float* q) { q[0] = 1; }", "k", "static"),
        ('extern "C" __global__ void k(float* q) { q[0] = 1; }', "k", "extern"),
        ("template <typename T, int N = (3 > 2)>\n__global__ void k(T* q) { q[0] = N; }", "k", "template"),
        ("template <> __global__ void k<float>(float* q) { q[0] = 1; }", "k", "template"),
        ("__global__ void ns::k(float* q) { q[0] = 1; }", "k", "__global__"),
        ("__global__ void __launch_bounds__(256, 2) k(float* q) { q[0] = 1; }", "k", "__global__"),
        ("__launch_bounds__(256) __global__ void k(float* q) { q[0] = 1; }", "k", "__launch_bounds__"),
        ("C10_LAUNCH_BOUNDS_2(128, 4)\n__global__ void k(float* q) { q[0] = 1; }", "k", "__global__"),
        ("__global__ void __cluster_dims__(2, 1, 1) k(float* q) { q[0] = 1; }", "k", "__global__"),
        ("MADE(x, x * x)\n\n__global__ void k(float* q) { q[0] = 1; }", "k", "__global__"),
        (
            "#if A\n#endif\n__global__ void k(\n#if B\n int a,\n#endif\n float* q) { q[0] = 1; }",
            "k",
            "__global__",
        ),
        ("namespace a { namespace { __global__ void k(float* q) { q[0] = 1; } } }", "k", "__global__"),
    ],
)
def test_signatures(text: str, name: str, start: str) -> None:
    (kernel,) = spans(text)
    assert (kernel.name, kernel.editable, kernel.reason) == (name, True, None)
    assert text.encode()[kernel.start :].startswith(start.encode())
    assert "q[0] = " in body(text, kernel)


@pytest.mark.parametrize(
    "inside",
    [
        'const char* s = "}{\\"}"; char c = \'}\'; q[0] = 1;',
        "/* } */ q[0] = 1; // }\n",
        "#pragma unroll\n for (int i = 0; i < 3; ++i) { q[i] = 1; }",
        'asm volatile("{ .reg .b32 t; }" ::: "memory");',
        'const char* s = R"x(}")}))x"; q[0] = 1;',
        "int a = 1'000'000; char b = u8'a'; q[a] = b;",
        "auto f = [](float x) { return x; }; struct S { __device__ float g(float y) { return y; } }; q[0] = f(1);",
        "\n#ifdef A\n q[0] = 1;\n#else\n q[0] = 2;\n#endif\n",
        "\n#if A\n for (;;) {\n#else\n while (1) {\n#endif\n q[0] = 1; }",
        "GRID_WALK(i, n) { q[i] = 1; }",
    ],
)
def test_bodies(inside: str) -> None:
    text = f"// head\n__global__ void k(float* q, int n) {{{inside}}}\nvoid run() {{}}\n"
    (kernel,) = spans(text)
    assert kernel.editable, kernel.reason
    assert body(text, kernel) == inside


@pytest.mark.parametrize(
    "text",
    [
        "__global__ void k(float* q);\n",
        "template __global__ void k<float>(float*);\n",
        "// __global__ void k(float* q) {}\n",
        "/* __global__ void k(float* q) {} */\n",
        'const char* s = "__global__ void k(float* q) {}";\n',
        'const char* s = R"(\n__global__ void k(float* q) {}\n)";\n',
        "#define MAKE(fn) \\\n  __global__ void fn##_kern(float* q) { \\\n    q[0] = 1; \\\n  }\nMAKE(a)\n",
        "struct S { friend __global__ void k(float* q); };\n",
        "int __global__x = 0; void f() { }\n",
        "",
    ],
)
def test_nothing_to_list(text: str) -> None:
    assert spans(text) == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("__global__ void k(float* q) { if (1) {\n", "closing brace is missing"),
        (
            "__global__ void k(float* q) { if (1) {\n" + PLAIN.replace("k(", "m("),
            "another kernel begins on line 2",
        ),
        ("__global__ void k(float* q) { /* not closed\n}\n", "comment that begins on line 1"),
        ("__global__ void k(float* q) {\n#if A\n q[0] = 1; }\n#endif\n", "#if on line 2 ends outside"),
        ("__global__ void k(float* q) {\n#ifdef A\n {\n#else\n q[0] = 1;\n#endif\n}\n}\n", "differently"),
        ("__global__ void k(float* q) {\n#ifdef A\n {\n#endif\n}\n}\n", "differently"),
        ("__global__ void k(float* q) {\n#if A\n q;\n#elif B\n {\n#endif\n}\n}\n", "differently"),
        ("#if 0\n__global__ void k(float* q) { q[0] = 1; }\n#endif\n", "never compiled"),
        ("__global__ void NAME(cube)(float* q) { q[0] = 1; }\n", "macro NAME"),
        (
            "namespace x {\n__global__ void k(float* q, int i) {\n if (i) {\n q[i] = 1;\n}\n"
            "void run(float* q) { k<<<1, 2>>>(q, 1); }\n}\n",
            "another function begins inside it, on line 6",
        ),
    ],
)
def test_declined(text: str, reason: str) -> None:
    kernel = spans(text)[0]
    assert not kernel.editable
    assert kernel.reason is not None
    assert reason in kernel.reason


def test_broken_kernel_leaves_its_neighbours() -> None:
    before, after = PLAIN.replace(" k(", " a("), PLAIN.replace(" k(", " b(")
    for middle in (
        "__global__ void m(float* q) { q[0",
        "__global__ void m(float* q) { if (q[0] > 1) {\n",
        "__global__ void m(float* q",
        "__global__ void m(float* q) { /* typed now\n",
        '__global__ void m(float* q) { printf("typed\n',
        "__global__ ",
        "#if\n",
        "void f( {\n",
    ):
        found = dict(named(before + middle + "\n" + after))
        assert found["a"], middle
        assert found["b"], middle
        assert not found.get("m", False), middle


def test_signature_that_two_branches_open() -> None:
    text = "#ifdef A\n__global__ void k(int a)\n#else\n__global__ void k(float b)\n#endif\n{\n  f();\n}\n"
    (kernel,) = spans(text)
    assert kernel.editable
    assert body(text, kernel) == "\n  f();\n"
    assert kernel.params == (Param("b", "float"),)


def test_params() -> None:
    text = (
        "template <class T> __global__ void k(const float* __restrict__ a, T *b, unsigned int n, float const* c,\n"
        "  int* const d, const __grid_constant__ Config cfg, float e[], std::array<int, 3> f, int g = 4) { }"
    )
    (kernel,) = spans(text)
    assert kernel.params == (
        Param("a", "float", True, True),
        Param("b", "T", True, False),
        Param("n", "unsigned int", False, False),
        Param("c", "float", True, True),
        Param("d", "int", True, False),
        Param("cfg", "Config", False, True),
        Param("e", "float", True, False),
        Param("f", "std::array<int, 3>", False, False),
        Param("g", "int", False, False),
    )
    assert kernel.template_params == ("T",)


def test_twins_have_no_plan() -> None:
    text = (
        "#ifdef A\n"
        + PLAIN
        + "#else\n"
        + PLAIN
        + "#endif\nvoid run(float* q, int n) { k<<<1, 2>>>(q, n); }\n"
    )
    holes = find_holes(text, "a.cu")
    assert [(hole.editable, hole.plan.runnable) for hole in holes] == [(True, False)] * 2
    assert "2 kernels are named k" in (holes[0].plan.reason or "")


PIECES = [
    "__global__ void a(float* q) {",
    "}",
    "{",
    "\n",
    "\r\n",
    "q[0] = 1;",
    "// c }\n",
    "/*",
    "*/",
    '"',
    "'",
    "#if A\n",
    "#else\n",
    "#endif\n",
    "#define M(x) x \\\n",
    "é🚀",
    "template <class T>",
    "(",
    ")",
    ";",
    "__global__",
    "@dice grid=",
    'R"(',
    "\\",
]


@settings(deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=30), st.text(max_size=20))
def test_any_text(pieces: list[str], core: str) -> None:
    """Nothing crashes, ranges hold together, and an edit changes nothing outside the core."""
    text = "".join(pieces)
    holes = find_holes(text, "x.cu")
    size = len(text.encode())
    for hole in holes:
        assert hole.prefix + hole.core + hole.suffix == text
        assert 0 <= hole.anchor[0] <= hole.start_byte <= hole.end_byte <= hole.anchor[1] <= size
        assert hole_at(holes, hole.start_byte) is not None
        if hole.editable:
            changed = apply(hole, core)
            assert changed.startswith(hole.prefix)
            assert changed.endswith(hole.suffix)
            assert len(changed) >= len(hole.prefix) + len(hole.suffix)


SOURCE = """#include <cuda.h>
__global__ void a(float* q, int n) {
  // one }
  if (n) { q[0] = 1; }
}
/* between */ template <int N> __global__ void b(float* q) { q[N] = 2; }
void run(float* q, int n) { a<<<1, 2>>>(q, n); b<3><<<1, 2>>>(q); }
"""


@settings(deadline=None)
@given(st.integers(0, len(SOURCE)), st.integers(0, 12), st.text("{}()/*\"'#\n; q", max_size=4))
def test_any_edit_of_a_good_file(at: int, deleted: int, inserted: str) -> None:
    text = SOURCE[:at] + inserted + SOURCE[at + deleted :]
    for hole in find_holes(text, "x.cu"):
        assert hole.prefix + hole.core + hole.suffix == text
        if hole.editable:
            # what replaces the core must not be able to run into what follows
            assert find_holes(apply(hole, "\n"), "x.cu")


def test_names_with_letters_of_any_alphabet_are_whole_and_declined() -> None:
    text = "\ufeff/* 温 */ template <class T> __global__ void añadir(T* x, int n) { x[0] = n; }\n"
    text += "__global__ void пример(float* данные) { данные[0] = 1; }\n__global__ void k(float* ñ) { ñ[0] = 1; }\n"
    found = find_holes(text, "a.cu")
    assert [(hole.name, hole.editable) for hole in found] == [
        ("añadir", False),
        ("пример", False),
        ("k", False),
    ]
    assert all("outside ASCII" in (hole.reason or "") for hole in found), "no CUDA compiler takes them"


def test_a_directive_right_after_a_byte_order_mark_counts() -> None:
    text = "\ufeff#if 0\n" + PLAIN + "#endif\n\ufeff" + PLAIN.replace("k(", "l(")
    assert [(name, editable) for name, editable in named(text)] == [("k", False), ("l", True)]
    plan = find_holes(
        "\ufeff#define B 64\n" + PLAIN + "void f(float* q, int n) { k<<<n, B>>>(q, n); }", "a.cu"
    )[0].plan
    assert plan.runnable, plan.reason


@pytest.mark.parametrize(
    "before", ["", "template <int N> ", "// @dice grid=1 block=32 out(q[n]) sizes(n=32)\n"]
)
def test_a_byte_order_mark_belongs_to_nothing(before: str) -> None:
    (hole,) = find_holes("\ufeff" + before + PLAIN, "a.cu")
    assert (hole.name, hole.editable, hole.plan.source) == (
        "k",
        True,
        "annotation" if "@dice" in before else "no_plan",
    )

"""A long file's prefix is cut to what the kernel uses; the user's text itself is never changed by it."""

from __future__ import annotations

from dice_engine.source.context import shortened
from hypothesis import given, settings
from hypothesis import strategies as st

FILLER = "".join(f"static float unused_{i}(float v) {{\n  return v * {i}.0f;\n}}\n" for i in range(400))
HEAD = """#include <cuda_runtime.h>
#define GRID_WALK(i, n) for (int i = threadIdx.x; i < (n); i += STRIDE)
#define STRIDE 32
#define NOT_USED 7
struct Pair { float a, b; };
constexpr float kScale = 2.0f;
__device__ float inner(float v) { return v * kScale; }
__device__ float outer(Pair p) { return inner(p.a) + p.b; }
__global__ void other(float* x) { x[0] = NOT_USED; }
"""
CORE = "\n  GRID_WALK(i, n) y[i] = outer({x[i], 1.0f});\n"
ABOVE = "".join(f"// near {i}\n" for i in range(300)) + "__global__ void k(const float* x, float* y, int n) {"


def test_what_the_kernel_uses_is_kept_and_what_they_use_too() -> None:
    prefix = HEAD + FILLER + ABOVE
    short = shortened(prefix, CORE)
    for kept in (
        "define GRID_WALK",
        "define STRIDE",
        "struct Pair",
        "kScale = 2.0f",
        "float inner",
        "float outer",
    ):
        assert kept in short, kept
    assert short.startswith("#include <cuda_runtime.h>\n")
    assert "unused_7(" not in short and "NOT_USED" not in short and "void other" not in short
    assert short.endswith(ABOVE[-1500:]) and len(short.encode()) <= 8_500
    assert short.index("define STRIDE") < short.index("float inner") < short.index("float outer")


def test_a_short_file_is_shown_as_it_is() -> None:
    assert shortened(HEAD + ABOVE, CORE) == HEAD + ABOVE


@settings(deadline=None, max_examples=60)
@given(st.text("ab{}();#\"'/*\n\\ 很😀", max_size=60), st.integers(0, 60))
def test_whatever_the_text_it_ends_with_what_stands_above(noise: str, limit: int) -> None:
    prefix = noise * 50 + "\n" + ABOVE
    short = shortened(prefix, "x", limit)
    assert short.endswith(ABOVE[-1000:])

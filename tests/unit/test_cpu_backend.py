"""The CPU backend on kernels as people write them, against numpy: one build for all of them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dice_engine.verify.build.cpu import CpuModule, build_cpu
from dice_engine.verify.build.device_source import split

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the CPU backend needs g++")

SOURCE = (Path(__file__).parent / "cpu_kernels.cu").read_text()
INSTANTIATIONS = [
    ("add", ()),
    ("saxpy_stride", ()),
    ("transpose_tile", ()),
    ("tree_sum", ("float", "256")),
    ("tree_sum", ("double", "64")),
    ("warp_sum", ()),
    ("softmax_rows", ()),
    ("layernorm_rows", ()),
    ("block_scan", ()),
    ("histogram", ()),
    ("scale_float4", ()),
    ("half_axpy", ()),
    ("half2_mul", ()),
    ("bf16_round", ()),
    ("matmul_tiled", ("16",)),
    ("cg_block_sum", ()),
    ("cg_tile_max", ()),
    ("stencil3", ()),
    ("votes", ()),
    ("coalesced_counter", ()),
    ("counts", ()),
    ("partial_shuffle", ()),
    ("bits", ()),
    ("fast_math", ()),
    ("ops::negate", ()),
    ("volume", ()),
    ("mixed_scalars", ()),
    ("conv_constant", ()),
    ("atomic_extremes", ()),
    ("early_exit", ()),
    ("two_tiles", ()),
    ("atomic_float_max", ()),
    ("functor_map", ("Square",)),
]
RNG = np.random.default_rng(7)


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> CpuModule:
    wanted = [(name.rsplit("::", 1)[-1], args) for name, args in INSTANTIATIONS]
    return build_cpu(split(SOURCE), tmp_path_factory.mktemp("cpu"), wanted)


@pytest.fixture(params=["forward", "reverse", "shuffled"])
def run(module: CpuModule, request: pytest.FixtureRequest) -> Any:
    """``run(kernel, grid, block, *args, template=(), shared=0)``; arrays are passed as their addresses."""

    def launch(
        kernel: str, grid: Any, block: Any, *args: Any, template: tuple[str, ...] = (), shared: int = 0
    ) -> None:
        module.set_order(request.param, seed=5)
        plain = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in args]
        module.launch(kernel, template, _dim3(grid), _dim3(block), shared, plain)
        module.synchronize()

    return launch


def _dim3(extent: Any) -> tuple[int, int, int]:
    sizes = (extent,) if isinstance(extent, int) else tuple(extent)
    return (*sizes, *(1,) * (3 - len(sizes)))  # type: ignore[return-value]


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def test_elementwise_and_grid_stride(run: Any) -> None:
    x, y, out = floats(1000), floats(1000), np.zeros(1000, np.float32)
    run("add", 4, 256, x, y, out, 1000)
    np.testing.assert_array_equal(out, x + y)
    run("saxpy_stride", 3, 64, 1000, 2.5, x, out)
    np.testing.assert_allclose(out, 2.5 * x + (x + y), rtol=1e-6)


def test_transpose_through_a_shared_tile(run: Any) -> None:
    x, out = floats(50, 70), np.zeros((70, 50), np.float32)
    run("transpose_tile", (3, 2), (32, 8), x, out, 70, 50)
    np.testing.assert_array_equal(out, x.T)


@pytest.mark.parametrize(
    ("dtype", "template"), [("float32", ("float", "256")), ("float64", ("double", "64"))]
)
def test_tree_reduction_template(run: Any, dtype: str, template: tuple[str, ...]) -> None:
    x, out = RNG.standard_normal(5000).astype(dtype), np.zeros(7, dtype)
    run("tree_sum", 7, int(template[1]), x, out, 5000, template=template)
    np.testing.assert_allclose(out.sum(), x.sum(), rtol=1e-4)


def test_warp_shuffle_reduction(run: Any) -> None:
    x, out = floats(10, 333), np.zeros(10, np.float32)
    run("warp_sum", 10, 96, x, out, 333)
    np.testing.assert_allclose(out, x.sum(1), rtol=1e-4, atol=1e-5)


def test_softmax_with_dynamic_shared_memory(run: Any) -> None:
    x, out = floats(9, 200), np.zeros((9, 200), np.float32)
    run("softmax_rows", 9, 128, x, out, 200, shared=128 * 4)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, e / e.sum(1, keepdims=True), rtol=1e-5)


def test_layernorm(run: Any) -> None:
    x, g, b, out = floats(6, 100), floats(100), floats(100), np.zeros((6, 100), np.float32)
    run("layernorm_rows", 6, 128, x, g, b, out, 100, 1e-5)
    want = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * g + b
    np.testing.assert_allclose(out, want, rtol=2e-4, atol=2e-5)


def test_block_scan(run: Any) -> None:
    x, out = RNG.integers(0, 9, 256).astype(np.int32), np.zeros(256, np.int32)
    run("block_scan", 1, 256, x, out, 256, shared=512 * 4)
    np.testing.assert_array_equal(out, np.cumsum(x))


def test_histogram_with_atomics(run: Any) -> None:
    x, out = RNG.integers(0, 32, 3000).astype(np.int32), np.zeros(32, np.int32)
    run("histogram", 5, 128, x, out, 3000)
    np.testing.assert_array_equal(out, np.bincount(x, minlength=32))


def test_float4_loads(run: Any) -> None:
    x, out = floats(1024), np.zeros(1024, np.float32)
    run("scale_float4", 1, 256, x, out, 3.0, 256)
    np.testing.assert_array_equal(out, x * np.float32(3))


def test_half_and_bfloat16_round_as_numpy_does(run: Any) -> None:
    x, y = (RNG.standard_normal(4096) * 100).astype(np.float16), floats(4096).astype(np.float16)
    x[:8] = [0, -0.0, 6e-8, 65504, 1e-5, np.inf, -np.inf, np.nan]
    out = np.zeros(4096, np.float16)
    run("half_axpy", 16, 256, x, y, out, 0.5, 4096)
    np.testing.assert_array_equal(out, (np.float16(0.5) * x).astype(np.float16) + y)
    run("half2_mul", 8, 256, x, y, out, 2048)
    with np.errstate(over="ignore", invalid="ignore"):
        np.testing.assert_array_equal(out, x * y)
    values = floats(1000)
    rounded = np.zeros(1000, np.uint16)
    run("bf16_round", 4, 256, values, rounded, 1000)
    bits = values.view(np.uint32)
    np.testing.assert_array_equal(rounded, ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16))


def test_tiled_matmul(run: Any) -> None:
    a, b, c = floats(40, 50), floats(50, 30), np.zeros((40, 30), np.float32)
    run("matmul_tiled", (2, 3), (16, 16), a, b, c, 40, 30, 50, template=("16",))
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-5)


def test_cooperative_groups(run: Any) -> None:
    x, out = floats(4, 128), np.zeros(4, np.float32)
    run("cg_block_sum", 4, 128, x, out)
    np.testing.assert_allclose(out, x.sum(1), rtol=1e-4, atol=1e-5)
    y, tops = floats(64), np.zeros(8, np.float32)
    run("cg_tile_max", 1, 64, y, tops)
    np.testing.assert_array_equal(tops, y.reshape(8, 8).max(1))


def test_stencil_in_shared_memory_with_halo(run: Any) -> None:
    x, out = floats(300), np.zeros(300, np.float32)
    run("stencil3", 3, 128, x, out, 300, shared=(128 + 2) * 4)
    padded = np.pad(x, 1)
    np.testing.assert_allclose(out, padded[:-2] + padded[1:-1] + padded[2:], rtol=1e-5, atol=1e-6)


def test_votes_and_match(run: Any) -> None:
    x, out = RNG.integers(0, 4, 32).astype(np.int32), np.zeros((32, 5), np.uint32)
    run("votes", 1, 32, x, out)
    ballot = sum(1 << i for i in range(32) if x[i] > 1)
    assert set(out[:, 0]) == {ballot}
    assert set(out[:, 1]) == {int((x > 2).any())}
    assert set(out[:, 2]) == {int((x >= 0).all())}
    np.testing.assert_array_equal(out[:, 3], [sum(1 << j for j in range(32) if x[j] == v) for v in x])
    assert set(out[:, 4]) == {int(x.sum())}


def test_activemask_and_coalesced_groups_see_the_lanes_of_a_branch(run: Any) -> None:
    x, out, count = RNG.integers(0, 2, 64).astype(np.int32), np.zeros(64, np.int32), np.zeros(1, np.int32)
    run("coalesced_counter", 1, 64, x, out, count)
    assert count[0] == x.sum()
    np.testing.assert_array_equal(
        out, x * 100 + [x[32 * (i // 32) : 32 * (i // 32) + 32].sum() for i in range(64)] * x
    )


def test_barriers_that_count(run: Any) -> None:
    x, out = RNG.integers(0, 2, 100).astype(np.int32), np.zeros(3, np.int32)
    run("counts", 1, 100, x, out)
    assert list(out) == [x.sum(), int(x.any()), int(x.all())]


def test_partial_masks_and_widths(run: Any) -> None:
    x, out = np.arange(32, dtype=np.int32), np.zeros((3, 32), np.int32)
    run("partial_shuffle", 1, 32, x, out)
    np.testing.assert_array_equal(
        out[0], [*(i ^ 1 for i in range(16)), *(100 + x[16 + (i + 1) % 16] for i in range(16))]
    )
    np.testing.assert_array_equal(out[1], [(i // 8) * 8 + 3 for i in range(32)])
    np.testing.assert_array_equal(out[2], [i - 2 if i % 8 >= 2 else i for i in range(32)])


def test_bit_and_conversion_intrinsics(run: Any) -> None:
    out = np.zeros(20, np.int64)
    run("bits", 1, 1, out)
    assert list(out) == [
        *(
            8,
            5,
            0,
            24,
            32,
            36,
            0x80000000,
            3,
            2,
            -2,
            2147483647,
            0,
            0x3F800000,
            1,
            6,
            70,
            0x05060708,
            0x2345678A,
        ),
        *(0xFFFFFFFE, 11),
    ]


def test_math_intrinsics(run: Any) -> None:
    x = np.abs(floats(64)) + np.float32(0.1)
    out = np.zeros((9, 64), np.float32)
    run("fast_math", 1, 64, x, out)
    d = x.astype(np.float64)
    want = [
        np.exp(d),
        np.log(d),
        d / 3,
        1 / d,
        1 / np.sqrt(d),
        np.sqrt(d),
        np.minimum(d, 1),
        d**1.5,
        np.maximum(d, 0.5),
    ]
    np.testing.assert_allclose(out, want, rtol=2e-6, atol=1e-7)


def test_namespaces_3d_launches_and_scalar_types(run: Any) -> None:
    x, out = floats(100), np.zeros(100, np.float32)
    run("negate", 1, 128, x, out, 100)
    np.testing.assert_array_equal(out, -x)
    cells = np.zeros((4, 6, 10), np.int32)
    run("volume", (3, 2, 2), (4, 3, 2), cells, 10, 6, 4)
    np.testing.assert_array_equal(cells.ravel(), np.arange(240))
    seen = np.zeros(8, np.float64)
    run("mixed_scalars", 1, 1, seen, True, -3, 2**40, 2**64 - 1, 1.5, 2, -1, 0.1)
    assert list(seen) == [1, -3, 2.0**40, float(2**64 - 1), 1.5, 2, 255, 0.1]


def test_constant_memory_and_device_functions(run: Any) -> None:
    x, out = floats(64), np.zeros(64, np.float32)
    run("conv_constant", 1, 64, x, out, 64)
    padded = np.pad(x, 1)
    np.testing.assert_allclose(out, (padded[:-2] + 2 * padded[1:-1] + padded[2:]) / 4, rtol=1e-5, atol=1e-6)


def test_atomics_of_all_kinds(run: Any) -> None:
    x = RNG.integers(-1000, 1000, 500).astype(np.int32)
    out = np.array([0, 10**6, -(10**6), 0, 0], np.int32)
    wide, real = np.zeros(1, np.uint64), np.zeros(1, np.float64)
    run("atomic_extremes", 2, 256, x, out, wide, real, 500)
    assert list(out) == [x.sum(), x.min(), x.max(), np.bitwise_or.reduce(x), np.bitwise_xor.reduce(x)]
    assert wide[0] == 500 * 2**33 and real[0] == x.sum()
    top = np.array([-np.inf], np.float32)
    y = floats(300)
    run("atomic_float_max", 2, 256, y, top, 300)
    assert top[0] == y.max()


def test_threads_that_returned_do_not_hold_up_a_barrier(run: Any) -> None:
    x, out = floats(70), np.zeros(1, np.float32)
    run("early_exit", 1, 128, x, out, 70)
    np.testing.assert_allclose(out[0], x.sum(), rtol=1e-4, atol=1e-5)


def test_two_views_of_dynamic_shared_memory(run: Any) -> None:
    out = np.zeros(64, np.float32)
    run("two_tiles", 1, 64, out, shared=64 * 4 + 64 * 4)
    np.testing.assert_array_equal(out, [(63 - i) * 2 + (63 - i) for i in range(64)])


def test_functor_template(run: Any) -> None:
    x, out = floats(100), np.zeros(100, np.float32)
    run("functor_map", 1, 100, x, out, 100, template=("Square",))
    np.testing.assert_array_equal(out, x * x)

"""Families of CUDA on the CPU backend that take more than one kernel's own text: the whole grid, variables that the
host writes, values of the source's own types, fresh memory, rare widths."""

from __future__ import annotations

import ctypes
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from dice_engine.verify.build.cpu import CpuModule, build_cpu
from dice_engine.verify.build.device_source import split
from dice_engine.verify.build.interface import BuildError, LaunchError

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the CPU backend needs g++")
SOURCE = (Path(__file__).parent / "cpu_families.cu").read_text()
RNG = np.random.default_rng(11)


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> CpuModule:
    return build_cpu(split(SOURCE), tmp_path_factory.mktemp("families"))


def launch(
    module: CpuModule,
    kernel: str,
    grid: int,
    block: int,
    *args: object,
    shared: int = 0,
    order: str = "forward",
) -> None:
    module.set_order(order)  # type: ignore[arg-type]
    plain = [arg.ctypes.data if isinstance(arg, np.ndarray) else arg for arg in args]
    module.launch(kernel, (), (grid, 1, 1), (block, 1, 1), shared, plain)  # type: ignore[arg-type]


@pytest.mark.parametrize("order", ["forward", "reverse", "shuffled"])
def test_blocks_wait_for_each_other(module: CpuModule, order: str) -> None:
    x = RNG.standard_normal(1000).astype(np.float32)
    part, y = np.zeros(7, np.float32), np.zeros_like(x)
    launch(module, "grid_mean", 7, 64, x, part, y, 1000, shared=256, order=order)
    np.testing.assert_allclose(y, x - x.mean(), atol=1e-6)
    np.testing.assert_allclose(part.sum(), x.sum(), rtol=1e-5)


def test_a_block_that_leaves_before_the_others_come_together(module: CpuModule) -> None:
    y = np.zeros(3, np.float32)
    with pytest.raises(LaunchError, match="divergent grid sync"):
        launch(module, "leaves_early", 3, 32, y)
    launch(module, "leaves_early", 1, 32, y)
    assert y[0] == 1.0


def test_a_value_of_the_sources_own_type(module: CpuModule) -> None:
    x, y = RNG.standard_normal(50).astype(np.float32), np.zeros(50, np.float32)
    launch(module, "by_value", 2, 32, x, y, struct.pack("<fhxx", 1.5, -3), 50)
    np.testing.assert_allclose(y, x * 1.5 - 3, rtol=1e-6)


def test_device_variables_from_the_host_and_in_the_watched_build(module: CpuModule) -> None:
    weights = np.array([1, 2, 3, 4], np.float32)
    address, size = module.symbol("coefficients")
    assert size == 16
    ctypes.memmove(address, weights.ctypes.data, size)
    x, y = RNG.standard_normal(64).astype(np.float32), np.zeros(64, np.float32)
    launch(module, "weighted", 2, 32, x, y, 64)
    module.watch(True)
    launch(module, "weighted", 2, 32, x, y, 64)
    module.watch(False)
    np.testing.assert_allclose(y, x * np.tile(weights, 16), rtol=1e-6)
    assert ctypes.c_int.from_address(module.symbol("arrivals")[0]).value == 4
    with pytest.raises(BuildError, match="no device variable"):
        module.symbol("y")


def test_writes_past_the_shared_memory_that_was_asked_for(module: CpuModule) -> None:
    y = np.zeros(32, np.float32)
    with pytest.raises(LaunchError, match="past its 124 bytes of dynamic shared memory"):
        launch(module, "wide_shared", 1, 32, y, shared=124)
    launch(module, "wide_shared", 1, 32, y, shared=128)


def test_static_shared_memory_is_fresh_in_every_block(module: CpuModule) -> None:
    y = np.zeros(32, np.float32)
    launch(module, "unwritten", 1, 32, y)
    assert np.isnan(y[16:]).all()
    assert (y[:16] == 2.0).all()


def test_atomics_of_rare_widths(module: CpuModule) -> None:
    f, s = np.zeros(8, np.float32), np.zeros(2, np.uint16)
    h, wide = np.zeros(2, np.float16), np.zeros(1, np.int64)
    launch(module, "wide_atomics", 1, 32, f, s, h, wide)
    np.testing.assert_array_equal(f, np.array([32, 64, 0, 0, 32, 64, 96, 128], np.float32))
    np.testing.assert_array_equal(h, [32, 16])
    assert (s[0], wide[0]) == (32, 31 << 40)


def test_parts_of_warps(module: CpuModule) -> None:
    x = RNG.integers(0, 500, 64).astype(np.int32)
    y = np.zeros(256, np.int32)
    launch(module, "groups", 1, 64, x, y)
    for start in (0, 32):
        warp = x[start : start + 32]
        np.testing.assert_array_equal(y[start + 1 : start + 32], np.maximum.accumulate(warp)[:-1])
        sums = [int(warp[warp % 3 == own % 3].sum()) for own in warp]
        np.testing.assert_array_equal(y[64 + start : 96 + start], sums)
    assert (y[128:192] == 1).all()
    assert (y[192:224] == 32).all()
    assert (y[224:] == 64).all()


def test_lanes_that_meet_in_a_branch(module: CpuModule) -> None:
    x, bins = RNG.integers(0, 8, 100).astype(np.int32), np.zeros(9, np.int32)
    launch(module, "aggregated", 2, 64, x, bins, 100)
    np.testing.assert_array_equal(bins, [*np.bincount(x, minlength=8), 100])


def test_directed_rounding(module: CpuModule) -> None:
    x = np.concatenate(
        [RNG.standard_normal(26) * 10.0 ** RNG.integers(-8, 5, 26), [1e6, -1e6, 0, 1, -2, 1e-9]]
    )
    x = x.astype(np.float32)
    y, z = np.zeros(96, np.float16), np.zeros(96, np.uint16)
    launch(module, "directed", 1, 32, x, y, z, 32)
    wide = (z.astype(np.uint32) << 16).view(np.float32)
    for got in (y.astype(np.float32), wide):
        zero, down, up = got[:32], got[32:64], got[64:]
        assert (np.abs(zero) <= np.abs(x)).all()
        assert (down <= x).all()
        assert (up >= x).all()
    exact = y[:32].astype(np.float32) == x
    with np.errstate(over="ignore"):
        step = np.nextafter(y[32:64], np.float16(np.inf))
    np.testing.assert_array_equal(np.where(exact, y[32:64], step), y[64:])


def test_words_few_use(module: CpuModule) -> None:
    x, y = np.array([0x80017FFF, 0x7F8001FF], np.uint32), np.zeros(6, np.uint32)
    launch(module, "odd_words", 1, 1, y, x)
    low, high = (int(v) for v in x)
    halves = [np.int16(np.uint16(low & 0xFFFF)).item(), np.int16(np.uint16(low >> 16)).item()]
    octets = [np.int8(np.uint8(high >> shift & 0xFF)).item() for shift in (0, 8, 16, 24)]
    dots = [5 + halves[0] * octets[k] + halves[1] * octets[k + 1] for k in (0, 2)]
    wanted = [low, high, (low + high) >> 1, (low + high + 1) >> 1, *(dot & 0xFFFFFFFF for dot in dots)]
    np.testing.assert_array_equal(y, np.array(wanted, np.uint32))

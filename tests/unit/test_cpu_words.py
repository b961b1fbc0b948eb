"""CPU backend: numbers packed in words, bits by rank, Bessel functions, copies of groups, against numpy."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from dice_engine.verify.build.cpu import build_cpu
from dice_engine.verify.build.device_source import split

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the CPU backend needs g++")

SOURCE = """
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
namespace cg = cooperative_groups;
__global__ void words(const unsigned* a, const unsigned* b, unsigned* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned x = a[i], y = b[i];
  unsigned found[9] = {__vadd4(x, y), __vaddus4(x, y), __vsubss2(x, y), __vmaxs2(x, y), __vminu4(x, y),
                       __vabsdiffu4(x, y), __vavgu2(x, y), __vcmpgts4(x, y), __vsadu4(x, y)};
  for (int k = 0; k < 9; ++k) out[k * n + i] = found[k];
}
__global__ void ranks(unsigned mask, unsigned* out) {
  out[0] = __fns(mask, 0, 2), out[1] = __fns(mask, 31, -1), out[2] = __fns(mask, 4, 0), out[3] = __fns(mask, 5, 9);
}
__global__ void bessel(const double* x, double* out) { out[2 * threadIdx.x] = cyl_bessel_i0(x[threadIdx.x]),
  out[2 * threadIdx.x + 1] = cyl_bessel_i1(x[threadIdx.x]); }
__global__ void copies(const float* x, float* y) {
  __shared__ float room[96];
  auto block = cg::this_thread_block();
  cg::memcpy_async(block, room, x + blockIdx.x * 96, sizeof(room));
  cg::wait(block);
  for (int i = threadIdx.x; i < 96; i += blockDim.x) y[blockIdx.x * 96 + i] = room[95 - i];
  assert(threadIdx.x < 64);
}
"""


def test_all(tmp_path: Path) -> None:
    module = build_cpu(split(SOURCE), tmp_path)
    rng = np.random.default_rng(3)
    a, b = (rng.integers(0, 1 << 32, 500, dtype=np.uint32) for _ in range(2))
    out = np.zeros((9, 500), np.uint32)
    module.launch(
        "words", (), (4, 1, 1), (128, 1, 1), 0, [a.ctypes.data, b.ctypes.data, out.ctypes.data, 500]
    )
    a8, b8 = a.view(np.uint8).astype(int), b.view(np.uint8).astype(int)
    s8, t8 = a.view(np.int8).astype(int), b.view(np.int8).astype(int)
    s16, t16 = a.view(np.int16).astype(int), b.view(np.int16).astype(int)
    u16, v16 = a.view(np.uint16).astype(int), b.view(np.uint16).astype(int)

    def packed(values: np.ndarray, dtype: type) -> np.ndarray:
        return values.astype(np.int64).astype(dtype).view(np.uint32)

    wanted = [
        packed(a8 + b8, np.uint8),
        packed(np.minimum(a8 + b8, 255), np.uint8),
        packed(np.clip(s16 - t16, -32768, 32767), np.int16),
        packed(np.maximum(s16, t16), np.int16),
        packed(np.minimum(a8, b8), np.uint8),
        packed(np.abs(a8 - b8), np.uint8),
        packed((u16 + v16 + 1) >> 1, np.uint16),
        packed(np.where(s8 > t8, 255, 0), np.uint8),
        np.abs(a8 - b8).reshape(-1, 4).sum(1).astype(np.uint32),
    ]
    for got, want in zip(out, wanted, strict=True):
        np.testing.assert_array_equal(got, want)

    places = np.zeros(4, np.uint32)
    module.launch("ranks", (), (1, 1, 1), (1, 1, 1), 0, [0b10110000, places.ctypes.data])
    assert list(places) == [5, 7, 4, 0xFFFFFFFF]

    x = np.array([0.0, 0.5, 3.0, 20.0])
    found = np.zeros(8)
    module.launch("bessel", (), (1, 1, 1), (4, 1, 1), 0, [x.ctypes.data, found.ctypes.data])
    np.testing.assert_allclose(found[0::2], np.i0(x), rtol=1e-12)
    np.testing.assert_allclose(
        found[1::2], [0.0, 0.25789430539089, 3.95337021740261, 42454973.3851278], rtol=1e-12
    )

    source = rng.standard_normal(192).astype(np.float32)
    target = np.zeros_like(source)
    module.launch("copies", (), (2, 1, 1), (64, 1, 1), 0, [source.ctypes.data, target.ctypes.data])
    np.testing.assert_array_equal(target.reshape(2, 96), source.reshape(2, 96)[:, ::-1])

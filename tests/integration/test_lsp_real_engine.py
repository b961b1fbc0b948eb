"""The whole thread from the editor's side: the real engine process, the embedded model, g++ and the judge."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Workplace
from dice_engine import NANO
from test_lsp_text import MODULE, rewritten

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.skipif(
        not (Path(NANO) / "model.safetensors").exists(), reason="the embedded checkpoint is not in this tree"
    ),
]

KERNEL = """__global__ void scale(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    y[i] = 2.0f * x[i];
  }
}

void launch_scale(const float* x, float* y, int n, cudaStream_t stream) {
  scale<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);
}
"""


@pytest.mark.parametrize(
    ("name", "text", "where", "language"),
    [("scale.cu", KERNEL, "y[i] =", "cuda"), ("model.py", MODULE, "torch.relu", "python")],
)
async def test_a_rewrite_that_the_model_wrote_is_checked_and_applied(
    workplace: Workplace, name: str, text: str, where: str, language: str
) -> None:
    client = await workplace.client(options={"trusted": True, "device": "cpu", "candidates": 4})
    try:
        after = await rewritten(workplace, client, name, text, where, language, timeout=240)
        assert after != text and "correct on the CPU backend" in client.messages()[0]
        uri = next(iter(client.texts))
        assert (await client.lenses(uri))[0].startswith("DICE: find faster")
    finally:
        workplace.stop_real_engine()

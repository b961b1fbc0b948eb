"""The Triton kernels of decoding without a GPU: Triton's interpreter runs them, in a process of its own."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed (it has wheels for Linux)"
)


@pytest.mark.parametrize("check", ["products", "passes", "prefill", "unmask", "decode"])
def test_kernels_equal_their_twins(check: str) -> None:
    program = Path(__file__).with_name("interpreted_kernels.py")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, program, check], env=environment, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr[-3000:]

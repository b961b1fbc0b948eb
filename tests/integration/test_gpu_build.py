"""The GPU build paths and the clock on a real GPU: the checks of tests/bench/check_gpu_build.py, one test each."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU; torch sees none here"),
]


def _checks() -> dict[str, Callable[[], str]]:
    path = Path(__file__).parents[1] / "bench/check_gpu_build.py"
    spec = importlib.util.spec_from_file_location("check_gpu_build", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.CHECKS


@pytest.mark.parametrize("name", sorted(_checks()))
def test_check(name: str) -> None:
    _checks()[name]()

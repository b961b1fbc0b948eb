"""Workers that check rows spread over the GPUs that they may see."""

from __future__ import annotations

import os

import pytest
import torch
from dice_training.cuke.verify import use_gpu


@pytest.mark.parametrize(("worker", "given"), [(0, "3"), (1, "5"), (2, "3"), (5, "5")])
def test_the_gpus_named_for_us_are_given_in_turn(
    worker: int, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    use_gpu(worker)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == given


@pytest.mark.parametrize(("count", "given"), [(0, None), (1, None), (2, "1")])
def test_without_a_choice_nothing_is_named(
    count: int, given: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    use_gpu(1)
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == given
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # so that it is removed again

"""What ``dice bench decode`` compares: the floor, and the plain decoder against the slow one."""

from __future__ import annotations

import pytest
import torch
from dice_engine.bench.eager import decode_plainly
from dice_engine.bench.shapes import config_of, streamed_bytes
from dice_engine.model.network import SdarModel
from test_decode import make_model, prompt_of, slow_decode


@pytest.mark.parametrize(("shape", "milliseconds"), [("1.7B", 0.80), ("4B", 1.87), ("8B", 3.52)])
def test_the_floor_of_the_published_sizes(shape: str, milliseconds: float) -> None:
    with torch.device("meta"):
        model = SdarModel(config_of(shape)).to(torch.bfloat16)
    assert 1000 * streamed_bytes(model) / 4.3e12 == pytest.approx(milliseconds, abs=0.01)


def test_the_plain_decoder_gives_the_same_tokens() -> None:
    model, prompt = make_model(2), prompt_of(8)
    reply, seconds, forwards = decode_plainly(model, torch.tensor([prompt]), 12)
    expected, _ = slow_decode(model, prompt, 12, 4, "low_confidence_static", 4)
    assert len(expected) > 4 and reply[: len(expected)] == expected
    assert seconds > 0 and forwards == 15

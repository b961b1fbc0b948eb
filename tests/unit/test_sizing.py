"""Which checkpoint fits which GPU."""

from __future__ import annotations

import pytest
from dice_engine.sizing import PUBLISHED, fitting_model


@pytest.mark.parametrize(
    ("free", "words"),
    [
        (4, "the embedded nano; DICE-1.7B needs 6.5 GB"),
        (8, "up to DICE-1.7B (6.5 GB with 8 candidates); DICE-4B needs 11.6 GB"),
        (16, "up to DICE-4B (11.6 GB with 8 candidates); DICE-8B needs 19.2 GB"),
        (140, "up to DICE-8B (19.2 GB with 8 candidates)"),
    ],
)
def test_the_largest_that_fits_is_named(free: int, words: str) -> None:
    assert fitting_model(free * 10**9, 143_700_000_000) == f"{free}.0 of 143.7 GB free: {words}"


def test_bytes_of_keys_and_values_are_those_of_the_shapes() -> None:
    layers = {"DICE-1.7B": 28, "DICE-4B": 36, "DICE-8B": 36}
    for model in PUBLISHED:
        assert model.per_token == layers[model.name] * 8 * 128 * 2 * 2

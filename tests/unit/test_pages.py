"""Pages of keys and values."""

from __future__ import annotations

import pytest
import torch
from dice_engine.decode.pages import PagePool
from dice_engine.model.config import SdarConfig
from dice_engine.model.network import SdarModel


@pytest.mark.parametrize("layers", [1, 2])
def test_a_page_is_copied_for_each_candidate(layers: int) -> None:
    config = SdarConfig(
        vocab_size=24,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        tie_word_embeddings=True,
        mask_token_id=1,
    )
    pool = PagePool(SdarModel(config), 4, 8)
    source, *targets = pool.take(4)
    pool.k[:, source], pool.v[:, source] = 2.0, 3.0
    pool.copy(source, targets)
    for target in targets:
        assert torch.equal(pool.k[:, target], pool.k[:, source])
        assert torch.equal(pool.v[:, target], pool.v[:, source])

"""Fixtures that tests of several parts share."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

# A shell gives its background jobs, and all that they start, an ignored SIGINT; tests send it to what they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Else each of pytest-xdist's processes compiles with as many processes as there are cores, and all take minutes.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "4")


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint folder in the ``fim`` format with random weights: quick to load, decodes nonsense."""
    import torch
    from dice_engine.model.config import SdarConfig
    from dice_engine.model.network import SdarModel
    from dice_engine.model.tokenizer import SPECIALS
    from dice_engine.model.weights import save_folder
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    folder = tmp_path_factory.mktemp("tiny")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=[*SPECIALS, "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(
        ["__global__ void k(float* x, int n) { x[i] = 2.0f * x[i]; }\n"] * 4, trainer
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    config = SdarConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        mask_token_id=1,
        eos_token_ids=(0,),
        max_position_embeddings=512,
        initializer_range=0.35,
        dice={"format": "fim"},
    )
    model = SdarModel(config)
    model.reset_parameters(torch.Generator().manual_seed(1))
    save_folder(model, folder)
    return folder

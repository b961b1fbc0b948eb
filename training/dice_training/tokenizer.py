"""Trains nano's tokenizer: byte-level BPE over CUDA and PyTorch sources.

Digits stay single (sizes must be copied and computed with, not memorised), and a newline with its indentation is
one pre-token, since code is mostly that.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from dice_engine.model.tokenizer import SPECIALS
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

SPLIT = r"\n[ \t]*| ?[A-Za-z]+| ?_+[A-Za-z]*|[0-9]| ?[^\sA-Za-z0-9_]+|[ \t]+|\r|\s"


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """A tokenizer that decodes every text back byte for byte; special tokens have their ids from 0."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(  # type: ignore[assignment]
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "tokenizer.json", tokenizer.to_str(pretty=True).encode())


def write_whole(path: Path, content: bytes) -> None:
    """Replace ``path`` in one step: whoever reads it meanwhile sees the old file or the new one."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.write_bytes(content)
    fresh.replace(path)

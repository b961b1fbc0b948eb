"""Rows of CuKe to training samples, by the same prompt builder that inference uses."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dice_engine.model.tokenizer import DiceTokenizer
from dice_engine.prompts import CoreRequest, build_prompt

from dice_training.packing import Sample, make_sample


class DataError(Exception):
    """The training data cannot be used; the message names the file and line."""


@dataclass(frozen=True)
class Dataset:
    samples: list[Sample]
    dropped: int
    """Rows too long for the context (or for a packed row), which are left out."""


def read_rows(path: Path, split: str | None = None) -> Iterator[dict[str, Any]]:
    """The JSONL rows of ``path`` in order, of one ``split`` only when it is given."""
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    row = json.loads(line)
                    wanted = split in (None, row["split"])
                except (ValueError, KeyError, TypeError) as error:
                    raise DataError(f"{path}:{number}: not a CuKe row: {error}") from error
                if wanted:
                    yield row
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error


def texts(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """What a tokenizer is trained on: every part of every row."""
    for row in rows:
        yield row["reference"]
        yield row["prefix"]
        yield row["core"]
        yield row["suffix"]


def request_of(row: dict[str, Any]) -> CoreRequest:
    """What the engine would be asked for this row's core."""
    if row["kind"] == "module":  # its reference, the file, is what prefix and suffix show already
        return CoreRequest("module", row["prefix"], row["suffix"], "")
    return CoreRequest(row["kind"], row["prefix"], row["suffix"], row["reference"])


def build_dataset(
    rows: Sequence[dict[str, Any]],
    tokenizer_folder: Path,
    *,
    block_size: int,
    context: int,
    row_length: int,
    format: str = "fim",
    workers: int = 1,
) -> Dataset:
    """Tokenise ``rows`` in a checkpoint's ``format``; ``workers`` > 1 spreads the work over processes."""
    make = partial(
        _samples,
        folder=tokenizer_folder,
        block_size=block_size,
        context=context,
        row_length=row_length,
        format=format,
    )
    size = max(1, min(2000, -(-len(rows) // workers)))
    chunks = [rows[start : start + size] for start in range(0, len(rows), size)]
    if workers > 1:
        with ProcessPoolExecutor(workers) as pool:
            parts = list(pool.map(make, chunks))
    else:
        parts = [make(chunk) for chunk in chunks]
    samples = [sample for part in parts for sample in part]
    return Dataset(samples, len(rows) - len(samples))


def reply_of(row: dict[str, Any], format: str) -> str:
    """What the model shall write: the core, or in a chat the rest of the code block that the prompt has begun."""
    if format == "fim":
        return row["core"]
    text = row["core"] + row["suffix"]
    return text + ("```" if text.endswith("\n") else "\n```")


def _samples(
    rows: Sequence[dict[str, Any]],
    folder: Path,
    block_size: int,
    context: int,
    row_length: int,
    format: str,
) -> list[Sample]:
    tokenizer = DiceTokenizer.load(folder)
    end = tokenizer.stop_ids[0]
    samples = []
    for row in rows:
        reply = [*tokenizer.encode(reply_of(row, format)), end]
        if len(reply) >= context:
            continue
        prompt = build_prompt(request_of(row), tokenizer, format=format)
        if len(prompt) + len(reply) > context - block_size:
            continue
        sample = make_sample(prompt, reply, end, block_size)
        if sample.rows_needed(block_size) <= row_length:
            samples.append(sample)
    return samples

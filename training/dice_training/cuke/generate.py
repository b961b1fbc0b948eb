"""Samples from a seed: sample ``index`` depends on (seed, index) alone, so any shard can be made by itself."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from typing import Any, Literal

from dice_training.cuke.kernel_files import kernel_body
from dice_training.cuke.module_writer import kernel_in_module, load_inline_core, module
from dice_training.cuke.parts import Parts
from dice_training.cuke.spec import Spec, is_test, random_spec

Kind = Literal["kernel_body", "load_inline_core", "module"]
Row = dict[str, Any]

KIND_SHARE: dict[Kind, float] = {"load_inline_core": 0.40, "kernel_body": 0.35, "module": 0.25}
MAX_CHARS = 5500
TORCH_HOST_SHARE = 0.12
"""Kernels that stand in the source string of a load_inline file, among kernel bodies."""
TEST_ELEMENTS = 1 << 16
"""Held-out samples stay small enough for quick checking on a CPU."""
_TRAIN_ELEMENTS = (1 << 14, 1 << 16, 1 << 18, 1 << 20)


def _rng(seed: int, index: int, attempt: int) -> random.Random:
    digest = hashlib.blake2b(f"{seed}:{index}:{attempt}".encode(), digest_size=8).digest()
    return random.Random(int.from_bytes(digest, "big"))


def _attempt(rng: random.Random, sample_id: str, chosen: Kind, small: bool) -> Row | None:
    spec = random_spec(rng, TEST_ELEMENTS if small else rng.choices(_TRAIN_ELEMENTS, (5, 5, 2, 0.5))[0])
    held_out = is_test(spec.family)
    if held_out and spec_size(spec.shape) > TEST_ELEMENTS:
        return None
    parts = _write(spec, chosen, rng, held_out)
    if parts is None:
        return None
    row: Row = {
        "id": sample_id,
        "family": spec.family,
        "split": "test" if held_out else "train",
        "kind": chosen,
        "reference": parts.reference,
        "program": parts.prefix + parts.core + parts.suffix,
        "prefix": parts.prefix,
        "core": parts.core,
        "suffix": parts.suffix,
        "ops": [s.op for s in spec.steps] + ([spec.row.op] if spec.row else []),
    }
    if parts.pytorch:
        row["pytorch"] = parts.pytorch
    if parts.around:
        row["around"] = list(parts.around)
    if parts.class_name != "Model":
        row["class_name"] = parts.class_name
    if chosen == "kernel_body":
        row["kernel"] = parts.kernel
    return row if total_chars(row) <= MAX_CHARS else None


def _write(spec: Spec, kind: Kind, rng: random.Random, held_out: bool) -> Parts | None:
    if kind == "module":
        return module(spec, rng)
    if kind == "load_inline_core":
        return load_inline_core(spec, rng, held_out)
    if rng.random() >= TORCH_HOST_SHARE and spec.fill == "randn":  # kernels are tried on normal inputs
        return kernel_body(spec, rng)
    return kernel_in_module(spec, rng)


def spec_size(shape: tuple[int, ...]) -> int:
    size = 1
    for s in shape:
        size *= s
    return size


def total_chars(row: Row) -> int:
    """What a model reads and writes for this row, in characters."""
    return len(row["reference"]) + len(row["prefix"]) + len(row["suffix"]) + len(row["core"])


def sample(seed: int, index: int, kind: Kind | None = None, split: str | None = None) -> Row:
    """One row. ``kind`` and ``split`` (``train``/``test``) restrict what it may be."""
    chosen = kind or _rng(seed, index, -1).choices(list(KIND_SHARE), list(KIND_SHARE.values()))[0]
    attempt = 0
    while True:
        row = _attempt(_rng(seed, index, attempt), f"{seed}-{index}", chosen, split == "test")
        if row is not None and split in (None, row["split"]):
            return row
        attempt += 1


def samples(
    seed: int, start: int, count: int, kind: Kind | None = None, split: str | None = None
) -> Iterator[Row]:
    for index in range(start, start + count):
        yield sample(seed, index, kind, split)

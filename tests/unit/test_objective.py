"""The SFT objective against slow, independent implementations of the formulas."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch
from dice_training.objective import Batch, corrupt, diffusion_loss
from dice_training.packing import Rows, Sample, make_sample, pack

END = 0
MASK = 1


def random_samples(count: int, block_size: int, seed: int) -> list[Sample]:
    rng = random.Random(seed)
    return [
        make_sample(
            [rng.randrange(2, 50) for _ in range(rng.randrange(0, 13))],
            [rng.randrange(2, 50) for _ in range(rng.randrange(0, 9))] + [END],
            END,
            block_size,
        )
        for _ in range(count)
    ]


def on_device(rows: Rows) -> Batch:
    return Batch(
        torch.from_numpy(rows.ids).long(),
        torch.from_numpy(rows.position).long(),
        torch.from_numpy(rows.document).long(),
        torch.from_numpy(rows.noisy),
        torch.from_numpy(rows.answer),
    )


@pytest.mark.parametrize("block_size", [1, 3, 4, 8])
def test_every_sample_is_packed_once_clean_and_its_answer_once_noisy(block_size: int) -> None:
    samples = random_samples(20, block_size, 1)
    rows = pack(samples, 96, block_size)
    seen = []
    for row in range(len(rows)):
        for document in range(rows.document[row].max() + 1):
            here = rows.document[row] == document
            clean = rows.ids[row][here & ~rows.noisy[row]]
            noisy = rows.ids[row][here & rows.noisy[row]]
            answer = rows.ids[row][here & rows.answer[row]]
            if noisy.size:
                seen.append((clean.tolist(), answer.tolist()))
                assert len(noisy) % block_size == 0
                assert clean.tolist()[-len(noisy) :] == noisy.tolist()
    expected = [(s.ids.tolist(), s.ids[s.prompt_length :].tolist()) for s in samples]
    assert sorted(seen) == sorted(expected)


def test_a_sample_longer_than_a_row_is_refused() -> None:
    with pytest.raises(ValueError, match="needs 16 positions"):
        pack([make_sample([5, 5], [6, 6, 6, END], END, 4)], 11, 4)


@pytest.mark.parametrize("level", ["sample", "block"])
def test_only_answers_are_hidden_at_least_one_each_with_one_level_a_group(level: str) -> None:
    block_size = 4
    rows = pack(random_samples(60, block_size, 3), 64, block_size)
    batch = on_device(rows)
    out = corrupt(batch, mask_id=MASK, block_size=block_size, level=level)  # type: ignore[arg-type]
    hidden, weight = out.hidden.numpy(), out.weight.numpy()
    assert not (hidden & ~rows.answer).any()
    assert (out.ids.numpy() == np.where(hidden, MASK, rows.ids)).all()
    assert ((weight > 0) == hidden).all()
    for row in range(len(rows)):
        for document in range(rows.document[row].max() + 1):
            here = (rows.document[row] == document) & rows.answer[row]
            if here.any():
                assert (hidden[row] & here).any()
            for block in np.unique(rows.position[row][here] // block_size):
                group = here & hidden[row]
                if level == "block":
                    group &= rows.position[row] // block_size == block
                assert len(np.unique(weight[row][group].round(4))) <= 1


def test_hidden_share_follows_the_level() -> None:
    """E[share hidden] = E[p] = 0.5005 for long answers, and E[hidden / p] = 1 a token."""
    sample = make_sample([7] * 4, [8] * 399 + [END], END, 4)
    batch = on_device(pack([sample] * 200, 808, 4))
    out = corrupt(
        batch, mask_id=MASK, block_size=4, level="block", generator=torch.Generator().manual_seed(0)
    )
    share = out.hidden.sum() / batch.answer.sum()
    assert abs(share - 0.5005) < 0.01
    assert abs(out.weight.sum() / batch.answer.sum() - 1) < 0.15


def test_loss_is_the_formula_and_does_not_depend_on_the_cut() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(12, 9, generator=generator, dtype=torch.float64)
    targets = torch.randint(0, 9, (12,), generator=generator)
    weight = torch.rand(12, generator=generator, dtype=torch.float64) * 5
    weight[3] = 0
    slow = 0.0
    for row, target, w in zip(logits.tolist(), targets.tolist(), weight.tolist(), strict=True):
        slow += w * (math.log(sum(math.exp(value) for value in row)) - row[target])
    whole = diffusion_loss(logits, targets, weight, 17)
    assert abs(whole.item() - slow / 17) < 1e-5
    parts = sum(
        diffusion_loss(logits[cut], targets[cut], weight[cut], 17) for cut in (slice(0, 5), slice(5, 12))
    )
    assert abs(whole - parts) < 1e-6

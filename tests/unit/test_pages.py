"""Pages of keys and values."""

from __future__ import annotations

import pytest
import torch
from dice_engine.decode.pages import PAGE, TRASH, PagePool, page_positions
from dice_engine.model.config import SdarConfig
from dice_engine.model.network import SdarModel

PROMPT = list(range(PAGE * 2 + 5))
"""Two whole pages, and a beginning of a third that nobody can find again."""


def _model(layers: int = 1) -> SdarModel:
    config = SdarConfig(24, 32, 64, layers, 2, 1, head_dim=16, tie_word_embeddings=True, mask_token_id=1)
    return SdarModel(config)


def _pool(count: int = 4) -> PagePool:
    return PagePool(_model(), 4, count)


@pytest.mark.parametrize("layers", [1, 2])
def test_a_page_is_copied_for_each_candidate(layers: int) -> None:
    pool = PagePool(_model(layers), 4, 8)
    source, *targets = pool.take(4)
    pool.k[:, source], pool.v[:, source] = 2.0, 3.0
    pool.copy(source, targets)
    for target in targets:
        assert torch.equal(pool.k[:, target], pool.k[:, source])
        assert torch.equal(pool.v[:, target], pool.v[:, source])


@pytest.mark.parametrize(("block", "positions"), [(1, 64), (4, 64), (5, 60), (64, 64), (100, 100)])
def test_a_page_holds_whole_blocks(block: int, positions: int) -> None:
    assert page_positions(block) == positions


def test_a_page_takes_the_bytes_that_are_counted() -> None:
    model = _model(layers=2)
    pool = PagePool(model, 4, 3)

    assert 4 * PagePool.bytes_per_page(model, 4) == sum(
        part.numel() * part.element_size() for part in (pool.k, pool.v)
    )


def test_all_pages_but_the_one_that_nobody_reads_can_be_taken_once() -> None:
    pool = _pool(4)
    pages = pool.take(4)

    assert len(set(pages)) == 4 and TRASH not in pages and pool.available == 0
    pool.give_back(pages)
    assert pool.available == 4


def test_taken_pages_hold_zeros_at_first_and_after_they_were_broken() -> None:
    pool = _pool(2)
    pool.k.fill_(float("nan"))
    pool.v.fill_(float("nan"))
    pages = pool.take(2)
    assert not pool.k[:, pages].any() and not pool.v[:, pages].any()

    pool.k[:, pages] = pool.v[:, pages] = float("nan")
    pool.give_back(pages, broken=True)
    pages = pool.take(2)

    assert not pool.k[:, pages].any() and not pool.v[:, pages].any()


def test_a_shared_page_is_free_when_its_last_user_has_left() -> None:
    pool = _pool(2)
    pages = pool.take(1)
    pool.share(pages)
    pool.give_back(pages)
    assert pool.available == 1
    pool.give_back(pages)
    assert pool.available == 2


def test_the_pages_of_a_common_beginning_are_found() -> None:
    pool = _pool(4)
    pages = pool.take(3)
    pool.remember(PROMPT, pages)

    assert pool.find(PROMPT) == pages[:2]
    assert pool.find(PROMPT[: 2 * PAGE]) == pages[:2]
    assert pool.find([*PROMPT[: PAGE + 3], *PROMPT]) == pages[:1]
    assert pool.find(PROMPT[: PAGE - 1]) == []
    assert pool.find(PROMPT[PAGE:]) == []  # the same page behind another one holds other keys


def test_known_pages_stay_until_their_room_is_needed_the_one_used_longest_ago_goes_first() -> None:
    pool = _pool(3)
    older, newer = pool.take(2)
    pool.remember(PROMPT[:PAGE], [older])
    pool.remember(PROMPT[1 : PAGE + 1], [newer])
    pool.give_back([older, newer])
    assert pool.available == 3
    pool.give_back(pool.find(PROMPT[:PAGE]))  # used again: the other one is now the older

    taken = pool.take(2)

    assert newer in taken and older not in taken
    assert pool.find(PROMPT[:PAGE]) == [older]
    assert pool.find(PROMPT[1 : PAGE + 1]) == []


def test_pages_in_use_are_not_taken_from_their_users() -> None:
    pool = _pool(2)
    held = pool.take(1)
    pool.remember(PROMPT[:PAGE], held)

    assert pool.available == 1
    assert pool.take(1) != held


@pytest.mark.parametrize("broken", [True, False])
def test_broken_pages_are_not_found_again(broken: bool) -> None:
    pool = _pool(2)
    pages = pool.take(1)
    pool.remember(PROMPT[:PAGE], pages)
    pool.give_back(pages, broken)

    assert pool.find(PROMPT[:PAGE]) == ([] if broken else pages)


def test_after_forgetting_nothing_is_found_and_all_that_is_not_in_use_is_free() -> None:
    pool = _pool(3)
    held, left = pool.take(2)
    pool.remember(PROMPT[:PAGE], [held])
    pool.remember(PROMPT[1 : PAGE + 1], [left])
    pool.give_back([left])
    pool.forget()

    assert pool.find(PROMPT[:PAGE]) == pool.find(PROMPT[1 : PAGE + 1]) == []
    assert pool.available == 2
    pool.give_back([held])
    assert sorted(pool.take(3)) == [1, 2, 3]


def test_slots_are_places_in_the_flattened_pages() -> None:
    table = torch.tensor([[3, 1], [2, 0]])
    positions = torch.tensor([[0, PAGE - 1, PAGE + 2], [5, PAGE, 5 * PAGE + 7]])

    found = _pool().slots(table, positions)

    assert found.tolist() == [[3 * PAGE, 4 * PAGE - 1, PAGE + 2], [2 * PAGE + 5, 0, 7]]

"""Turns: never more than a few at a time, the lowest number first, none lost when those who wait go away."""

from __future__ import annotations

import asyncio
import random

import pytest

from dice_ls.suggestions.turns import Turns


@pytest.mark.asyncio
async def test_the_lowest_number_that_waits_is_next() -> None:
    turns, begun = Turns(2), list[int]()
    held = asyncio.Event()

    async def work(number: int) -> None:
        async with turns.wait(number):
            begun.append(number)
            await held.wait()
            await asyncio.sleep(0)

    tasks = []
    for number in (9, 7, 5, 1, 8, 3):
        tasks.append(asyncio.ensure_future(work(number)))
        await asyncio.sleep(0)
    assert begun == [9, 7], "who comes first does not wait for who may come"
    held.set()
    await asyncio.gather(*tasks)
    assert begun == [9, 7, 1, 3, 5, 8]


@pytest.mark.asyncio
@pytest.mark.parametrize("seed", range(20))
async def test_no_turn_is_lost_or_given_twice(seed: int) -> None:
    turns, generator, busy, most = Turns(2), random.Random(seed), 0, 0

    async def work(number: int, steps: int) -> None:
        nonlocal busy, most
        async with turns.wait(number):
            busy += 1
            most = max(most, busy)
            try:
                for _ in range(steps):
                    await asyncio.sleep(0)
            finally:
                busy -= 1

    tasks = [asyncio.ensure_future(work(generator.randrange(9), generator.randrange(4))) for _ in range(30)]
    while not all(task.done() for task in tasks):
        generator.choice(tasks).cancel()
        for _ in range(generator.randrange(3)):
            await asyncio.sleep(0)
    assert busy == 0 and most <= 2
    await asyncio.wait_for(asyncio.gather(work(1, 2), work(2, 2), work(3, 2)), 5)

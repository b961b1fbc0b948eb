"""Where a reply could have gone another way, against full forwards of every state that its blocks were in."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from dice_engine.decode.batch import BatchDecoder
from dice_engine.decode.forks import Fork, forks
from dice_engine.decode.jobs import DecodeRequest, Job
from dice_engine.decode.strategies import DecodeOptions
from dice_engine.model.network import SdarModel
from test_decode import EOS, MASK, make_model, prompt_of, run


def slow_forks(
    model: SdarModel, prompt: list[int], reply: list[int], steps: list[int], block: int, banned: set[int]
) -> list[Fork]:
    tokens, when, given = [*prompt, *reply], [-1] * len(prompt) + steps, len(prompt)

    def others(position: int, shown: Callable[[int], bool]) -> list[Fork]:
        start = position // block * block
        state = tokens[:start]
        state += [tokens[i] if i < len(tokens) and shown(i) else MASK for i in range(start, start + block)]
        logits = model(torch.tensor([state]), block_size=block)[0, position].double()
        logits[MASK] = -math.inf
        logp = logits.log_softmax(-1).tolist()
        allowed = [t for t in range(len(logp)) if t not in banned | {MASK, tokens[position]}]
        return [Fork(position - given, t, logp[t]) for t in sorted(allowed, key=lambda t: -logp[t])[:2]]

    def likeliest_first(found: list[Fork]) -> list[Fork]:
        return sorted(found, key=lambda fork: -fork.logp)

    unsure = []
    for position in range(given, len(tokens)):
        unsure += others(position, lambda i, step=when[position]: when[i] < step)
    places = list(dict.fromkeys(fork.place for fork in likeliest_first(unsure)))[:64]
    found = []
    for place in places:
        found += others(given + place, lambda i, end=given + place: i < end)
    return likeliest_first(found)


def decoded(
    model: SdarModel, prompt: list[int], new: int, block: int, keep: bool, static: bool = False
) -> tuple[BatchDecoder, Job]:
    decoder = BatchDecoder(model, block, pages=64, static=static)
    options = DecodeOptions(new, threshold=0.2)
    job = decoder.submit(DecodeRequest(prompt, options, [3], [0.7], [EOS], keep=keep))
    list(run(decoder))
    return decoder, job


@pytest.mark.parametrize("block", [1, 3, 4, 16])
@pytest.mark.parametrize(("length", "new"), [(9, 21), (70, 90), (64, 7)])
@pytest.mark.parametrize(("keep", "static"), [(False, False), (True, False), (True, True)])
def test_forks_are_what_full_forwards_say(
    block: int, length: int, new: int, keep: bool, static: bool
) -> None:
    model, prompt = make_model(length), prompt_of(length)
    decoder, job = decoded(model, prompt, new, block, keep, static)
    reply = job.replies[0]
    known = decoder.pool.find([*prompt, *reply.tokens])
    decoder.pool.give_back(known)
    if keep and len(reply.tokens) > 80:
        assert len(known) > length // decoder.pool.size, "the reply's own keys are found again"
    found = forks(model, decoder.pool, prompt, reply.tokens, reply.step_map, block, [EOS, 7])
    expected = slow_forks(model, prompt, reply.tokens, reply.step_map, block, {EOS, 7})
    assert [(f.place, f.token) for f in found] == [(f.place, f.token) for f in expected]
    assert [f.logp for f in found] == pytest.approx([f.logp for f in expected], abs=1e-4)
    assert decoder.pool.available == decoder.pool.count - 1, "pages were lost"


@pytest.mark.parametrize("static", [False, True])
def test_a_reply_that_goes_on_from_kept_keys_is_the_same(static: bool) -> None:
    model, prompt = make_model(5), prompt_of(30)
    for keep in (False, True):
        decoder, job = decoded(model, prompt, 160, 4, keep, static)
        first = job.replies[0].tokens
        forced = [*first[:140], 9]
        after = decoder.submit(DecodeRequest(prompt, DecodeOptions(170), [0], [0.0], [EOS], forced))
        list(run(decoder))
        alone = model.generate(prompt, 170, forced=forced, stop_ids=[EOS])
        assert after.replies[0].tokens == alone.tokens[0] and len(first) > 145


def test_a_stopped_reply_keeps_only_what_was_committed() -> None:
    model, prompt = make_model(5), prompt_of(30)
    decoder = BatchDecoder(model, pages=64)
    job = decoder.submit(DecodeRequest(prompt, DecodeOptions(200), [0], [0.0], [], keep=True))
    for _ in run(decoder):
        if len(job.replies[0].tokens) >= 98:  # a page ends at position 128
            decoder.stop(job, 0)
    tokens = [*prompt, *job.replies[0].tokens]
    assert len(tokens) == 128
    known = decoder.pool.find(tokens)
    assert len(known) == 1
    decoder.pool.give_back(known)

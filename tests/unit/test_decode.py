"""Decoding against a slow second implementation that has no cache, no batch and no folding."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
import torch
from dice_engine.decode.batch import BatchDecoder
from dice_engine.decode.generation import Generation
from dice_engine.decode.jobs import BlockEvent, DecodeError, DecodeRequest, Job, JobFailed
from dice_engine.decode.rows import NewRow, Rows
from dice_engine.decode.sampling import counter_noise
from dice_engine.decode.strategies import STRATEGIES, DecodeOptions
from dice_engine.model.config import SdarConfig
from dice_engine.model.network import SdarModel

torch.set_num_threads(1)  # the models are tiny: threads only cost
MASK, EOS = 1, 0


def make_model(seed: int = 0, vocab: int = 61, **changes: Any) -> SdarModel:
    config = SdarConfig(
        vocab_size=vocab,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        mask_token_id=MASK,
        eos_token_ids=(EOS,),
        initializer_range=0.35,
        **changes,
    )
    model = SdarModel(config)
    model.reset_parameters(torch.Generator().manual_seed(seed))
    return model.eval().requires_grad_(False)


def slow_decode(
    model: SdarModel,
    prompt: list[int],
    new: int,
    block: int,
    strategy: str,
    steps: int,
    threshold: float = 0.9,
    gamma: float = 0.3,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
) -> tuple[list[int], list[int]]:
    """The specification, read literally: a full forward for every step, one position at a time."""
    total = math.ceil((len(prompt) + new) / block) * block
    ids: list[int | None] = [*prompt, *[None] * (total - len(prompt))]
    when = [0] * total
    for start in range(len(prompt) // block * block, total, block):
        step = 0
        while None in ids[start : start + block]:
            visible = torch.tensor([[MASK if t is None else t for t in ids[: start + block]]])
            logits = model(visible, block_size=block)[0].double()
            logits[:, MASK] = -math.inf
            found = []  # (position, token, confidence, entropy)
            for position in range(start, start + block):
                if ids[position] is not None:
                    continue
                probs = logits[position].softmax(-1)
                if temperature == 0:
                    token = int(probs.argmax())
                else:
                    kept = (logits[position] / temperature).softmax(-1).tolist()
                    ranked = sorted(range(len(kept)), key=lambda t: -kept[t])
                    if top_k:
                        ranked = ranked[:top_k]
                    mass = sum(kept[t] for t in ranked)
                    nucleus, used = [], 0.0
                    for t in ranked:
                        if used < top_p:
                            nucleus.append(t)
                        used += kept[t] / mass
                    mass = sum(kept[t] for t in nucleus)
                    target, acc, token = slow_noise(seed, position, step) * mass, 0.0, -1
                    for t in sorted(nucleus):
                        acc += kept[t]
                        if acc > target:
                            token = t
                            break
                entropy = -sum(p * math.log(p) for p in probs.tolist() if p > 0)
                found.append((position, token, float(probs[token]), entropy))
            n = max(1, block // steps + (1 if step < block % steps else 0))
            by_confidence = sorted(found, key=lambda f: -f[2])
            if strategy == "sequential":
                take = found[:n]
            elif strategy == "low_confidence_static":
                take = by_confidence[:n]
            elif strategy == "low_confidence_dynamic":
                take = [f for f in found if f[2] > threshold]
                if len(take) < n:
                    take = by_confidence[:n]
            else:
                by_entropy, running, take = sorted(found, key=lambda f: f[3]), 0.0, []
                for f in by_entropy:
                    running += f[3]
                    if take and running >= gamma:
                        break
                    take.append(f)
            for position, token, _, _ in take:
                ids[position], when[position] = token, step
            step += 1
        answer = ids[len(prompt) :]
        if EOS in answer:
            break
    reply = [t for t in ids[len(prompt) : len(prompt) + new] if t is not None]
    if EOS in reply:
        reply = reply[: reply.index(EOS) + 1]
    return reply, when[len(prompt) : len(prompt) + len(reply)]


def slow_noise(seed: int, position: int, step: int) -> float:
    """SplitMix64 over seed, position and step, in Python's integers."""
    key = 0
    for part in (seed, position, step):
        key = (key + part + 0x9E3779B97F4A7C15) % 2**64
        key = (key ^ key >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        key = (key ^ key >> 27) * 0x94D049BB133111EB % 2**64
        key ^= key >> 31
    return (key >> 11) / 2**53


def submit(
    model: SdarModel, prompt: list[int], new: int, temperatures: list[float], seed: int = 0, **more: Any
) -> tuple[BatchDecoder, Job]:
    """A decoder of its own with one job of ``len(temperatures)`` candidates."""
    decoder = BatchDecoder(model, pages=64)
    seeds = [seed + i for i in range(len(temperatures))]
    return decoder, decoder.submit(DecodeRequest(prompt, DecodeOptions(new), seeds, temperatures, **more))


def run(decoder: BatchDecoder) -> Iterator[BlockEvent]:
    while not decoder.idle:
        for event in decoder.step():
            assert not isinstance(event, JobFailed)
            yield event


def prompt_of(length: int, seed: int = 0) -> list[int]:
    return torch.randint(2, 61, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("block", [1, 3, 4, 8])
def test_greedy_equals_the_slow_decoder(strategy: str, block: int) -> None:
    for length, steps in product((1, 7, 12), (1, 3, block)):
        model, prompt = make_model(length), prompt_of(length)
        threshold, gamma = 0.3, 1.5
        got = model.generate(
            prompt, 15, strategy=strategy, steps=steps, threshold=threshold, gamma=gamma, block_size=block
        )
        expected = slow_decode(model, prompt, 15, block, strategy, steps, threshold, gamma)
        assert (got.tokens[0], got.step_map[0]) == expected, (length, steps)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (5, 1.0), (0, 0.7), (12, 0.8)])
def test_sampling_equals_the_slow_decoder(strategy: str, top_k: int, top_p: float) -> None:
    for seed, length in ((1, 6), (2, 8)):
        model, prompt = make_model(seed), prompt_of(length)
        common: dict[str, Any] = dict(temperature=0.9, top_k=top_k, top_p=top_p, threshold=0.2, gamma=2.0)
        got = model.generate(prompt, 18, strategy=strategy, steps=3, block_size=4, seed=seed, n=3, **common)
        for i in range(3):
            expected = slow_decode(model, prompt, 18, 4, strategy, 3, seed=seed + i, **common)
            assert (got.tokens[i], got.step_map[i]) == expected, (seed, i)


def test_batched_equals_single_and_any_batch() -> None:
    model, prompt = make_model(3, vocab=23), prompt_of(10)
    prompt = [t % 20 + 2 for t in prompt]
    options: dict[str, Any] = dict(temperature=1.0, threshold=0.3, block_size=4)
    together = model.generate(prompt, 60, seed=11, n=12, **options)
    assert len({len(t) for t in together.tokens}) > 2, (
        "candidates should end at different places for this test"
    )
    for i in range(12):
        assert model.generate(prompt, 60, seed=11 + i, **options).tokens == [together.tokens[i]]
    assert model.generate(prompt, 60, seed=14, n=4, **options).tokens == together.tokens[3:7]


def test_candidates_of_different_temperatures() -> None:
    model, prompt = make_model(4), prompt_of(9)
    decoder, job = submit(model, prompt, 16, [0.0, 1.0], seed=5)
    list(run(decoder))
    assert job.replies[0].tokens == model.generate(prompt, 16).tokens[0]
    assert job.replies[1].tokens == model.generate(prompt, 16, temperature=1.0, seed=6).tokens[0]


def test_long_replies_outgrow_the_first_cache() -> None:
    model, prompt = make_model(5), prompt_of(5)
    got = model.generate(prompt, 150, strategy="sequential", steps=2, block_size=8, stop_ids=[])
    reply = got.tokens[0]
    assert len(reply) == 150
    last = model(torch.tensor([prompt + reply[:139] + [MASK] * 8]), block_size=8)[0, 144]
    last[MASK] = -math.inf
    assert int(last.argmax()) == reply[139]


def test_rows_leave_after_the_cache_has_grown() -> None:
    model, prompt = make_model(5), prompt_of(5)
    decoder, job = submit(model, prompt, 200, [1.0] * 3, stop_ids=[])
    whole = model.generate(prompt, 200, temperature=1.0, n=3, stop_ids=[]).tokens
    for event in run(decoder):
        if event.candidate < 2 and len(job.replies[event.candidate].tokens) > 150:
            decoder.stop(job, event.candidate)
    assert job.replies[2].tokens == whole[2]


def test_folding_and_forward_count() -> None:
    """Static with S = B: B forwards a block and none for commits."""
    model, prompt = make_model(6), prompt_of(8)
    got = model.generate(prompt, 20, strategy="low_confidence_static", stop_ids=[])
    assert got.forward_count == 20
    assert model.generate(prompt, 20, threshold=0.0, stop_ids=[]).forward_count == 5
    # A last block that the limit cuts need not be finished: only what is returned.
    assert len(model.generate(prompt, 18, strategy="sequential", stop_ids=[]).tokens[0]) == 18
    assert model.generate(prompt, 18, strategy="sequential", stop_ids=[]).forward_count == 18


def test_mask_is_never_sampled_and_prompt_never_changed() -> None:
    model = make_model(7)
    model.lm_head.weight[MASK] = 0
    with torch.no_grad():
        model.lm_head.weight[MASK] = 30 * model.lm_head.weight.abs().mean(0)
    prompt = [*prompt_of(5), MASK, *prompt_of(3)]  # even a mask id in the prompt stays
    for strategy in STRATEGIES:
        got = model.generate(prompt, 20, strategy=strategy, steps=2, temperature=1.5, n=4)
        assert all(MASK not in reply for reply in got.tokens)


def test_cut_right_after_eos() -> None:
    model = make_model(8)
    with torch.no_grad():
        model.lm_head.weight[EOS] *= 3
    replies = model.generate(prompt_of(6), 40, temperature=1.0, n=8).tokens
    assert any(EOS in r for r in replies)
    for reply in replies:
        assert len(reply) == 40 if EOS not in reply else reply.index(EOS) == len(reply) - 1


def test_stopping_one_candidate_leaves_the_others() -> None:
    model, prompt = make_model(9), prompt_of(6)
    whole = model.generate(prompt, 32, temperature=1.0, n=3, stop_ids=[]).tokens
    decoder, job = submit(model, prompt, 32, [1.0] * 3, stop_ids=[])
    for event in run(decoder):
        if event.candidate == 0:
            decoder.stop(job, 0)
            decoder.stop(job, 1)
    assert [len(r.tokens) < 32 for r in job.replies] == [True, True, False]
    assert job.replies[2].tokens == whole[2]
    assert job.replies[0].tokens == whole[0][:2] and job.replies[0].stopped


def test_events_add_up_to_the_replies() -> None:
    model, prompt = make_model(10), prompt_of(7)
    decoder, job = submit(model, prompt, 30, [0.0, 1.0, 1.0], seed=1)
    seen: dict[int, list[int]] = {0: [], 1: [], 2: []}
    ended = []
    for event in run(decoder):
        seen[event.candidate] += event.tokens
        assert len(event.tokens) <= 4 and event.candidate not in ended
        ended += [event.candidate] * event.finished
    assert [seen[i] for i in range(3)] == [r.tokens for r in job.replies]
    assert sorted(ended) == [0, 1, 2]


def test_input_ids_as_tensor() -> None:
    model, prompt = make_model(), prompt_of(5)
    expected = model.generate(prompt, 8)
    assert isinstance(expected, Generation)
    assert model.generate(torch.tensor(prompt), 8) == expected == model.generate(torch.tensor([prompt]), 8)
    with pytest.raises(ValueError, match="one prompt"):
        model.generate(torch.tensor([prompt, prompt]), 8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"strategy": "best"}, "strategy 'best' is none of"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"input_ids": []}, "the prompt is empty"),
        ({"input_ids": [99]}, "outside the vocabulary"),
        ({"max_new_tokens": 40000}, "do not fit the context"),
        ({"n": 0}, "at least one"),
        ({"top_p": 0.0}, "top_p"),
    ],
)
def test_bad_arguments(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_model().generate(**{"input_ids": [3], "max_new_tokens": 4, **arguments})  # type: ignore[arg-type]


def test_noise_is_uniform_and_counter_based() -> None:
    seeds, positions, steps = torch.arange(40), torch.arange(50).expand(40, -1), torch.arange(40) % 4
    noise = counter_noise(seeds, positions, steps)
    assert noise.min() >= 0 and noise.max() < 1 and abs(noise.mean() - 0.5) < 0.02
    assert len(noise.unique()) == noise.numel()
    assert noise[7, 9].item() == slow_noise(7, 9, 3)
    assert counter_noise(seeds[7:8], positions[7:8, 3:5], steps[7:8]).tolist() == noise[7:8, 3:5].tolist()


def test_nan_logits_are_said() -> None:
    model = make_model()
    model.lm_head.weight.fill_(math.nan)
    with pytest.raises(DecodeError, match="not-a-number"):
        model.generate([3, 4, 5], 8)


def mixed_requests(model: SdarModel) -> list[DecodeRequest]:
    """Different lengths, numbers of candidates, strategies and temperatures; two that begin alike."""
    long = prompt_of(150, seed=9)
    options = [
        DecodeOptions(33, "low_confidence_static", steps=2),
        DecodeOptions(20, "sequential"),
        DecodeOptions(40, "low_confidence_dynamic", threshold=0.3),
        DecodeOptions(25, "entropy_bounded", gamma=1.5, top_k=9),
        DecodeOptions(30, "low_confidence_dynamic", threshold=0.2, top_p=0.8),
        DecodeOptions(9, steps=1),
    ]
    prompts = [prompt_of(3), long, [*long[:140], *prompt_of(8)], prompt_of(66), prompt_of(64, seed=3), long]
    temperatures = [[0.0, 1.0], [0.0], [0.0, 0.7, 1.3], [1.0, 1.0], [0.0, 0.9, 0.9], [1.0]]
    return [
        DecodeRequest(prompt, option, range(i, i + len(t)), t)
        for i, (prompt, option, t) in enumerate(zip(prompts, options, temperatures, strict=True))
    ]


def decode_together(
    model: SdarModel, requests: list[DecodeRequest], late: int = 0, **decoder_options: Any
) -> list[list[tuple[list[int], list[int], bool]]]:
    """Replies (tokens, step map, stopped) of one decoder; the last ``late`` requests come during the first passes."""
    decoder = BatchDecoder(model, **{"pages": 64, **decoder_options})
    early = len(requests) - late
    jobs = [decoder.submit(request) for request in requests[:early]]
    for request in requests[early:]:
        decoder.step()
        jobs.append(decoder.submit(request))
    list(run(decoder))
    assert decoder.pool.available == decoder.pool.count - 1, "pages were lost"
    return [[(r.tokens, r.step_map, r.stopped) for r in job.replies] for job in jobs]


def random_rows(size: int, count: int, seed: int, device: str = "cpu") -> Rows:
    """Rows of every strategy and several temperatures, limits and numbers of stop tokens."""
    generator = torch.Generator().manual_seed(seed)
    rows = Rows(count, size, 1, torch.device(device))
    new = []
    for i in range(count):
        tail = torch.randint(2, 50, (i % size,), generator=generator).tolist()
        options = DecodeOptions(8 + i, STRATEGIES[i % 4], steps=1 + i % 3, threshold=0.05, gamma=6.0)
        limit, heat = size * 3 + len(tail) + 2 * i + 1, [0.0, 1.0, 0.7][i % 3]
        new.append(NewRow(size * 3, tail, limit, 7 + i, heat, options, [0, 5, 9, 33][: i % 5]))
    rows.put(range(count), new)
    return rows


@pytest.mark.parametrize("block", [1, 3, 4, 16])
@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize(("late", "limits"), [(0, {}), (3, {}), (2, {"max_rows": 3}), (1, {"pages": 6})])
def test_requests_together_equal_requests_alone(
    block: int, static: bool, late: int, limits: dict[str, int]
) -> None:
    """Shared pages, few rows and few pages, joining and leaving: nothing changes what a request gives."""
    model = make_model(12)
    if limits.get("pages") and block != 4:
        pytest.skip("pages are of another size")
    requests = mixed_requests(model)
    alone = [decode_together(model, [request], block_size=block)[0] for request in requests]
    assert len({len(reply[0]) for replies in alone for reply in replies}) > 4
    assert decode_together(model, requests, late, block_size=block, static=static, **limits) == alone


def test_weights_that_changed_are_not_mixed_with_old_keys() -> None:
    model, prompt = make_model(13), prompt_of(130)
    first = model.generate(prompt, 12)
    other = make_model(14)
    with torch.no_grad():
        for mine, its in zip(model.parameters(), other.parameters(), strict=True):
            mine.copy_(its)
    assert model.generate(prompt, 12) == other.generate(prompt, 12) != first


def test_a_network_that_moved_or_was_copied_decodes_anew() -> None:
    model, prompt = make_model(13), prompt_of(70)
    expected = model.generate(prompt, 12)
    copied = copy.deepcopy(model)
    assert not copied.decoders and copied.generate(prompt, 12) == expected
    model.double()
    assert model.generate(prompt, 12).tokens == expected.tokens
    model.load_state_dict(make_model(14).state_dict(), assign=True)
    assert model.generate(prompt, 12) == make_model(14).generate(prompt, 12)


def test_one_broken_request_leaves_the_others_unharmed() -> None:
    model, good = make_model(15), prompt_of(70)
    request = DecodeRequest(good, DecodeOptions(16), [1, 2], [0.0, 1.0])
    alone = decode_together(model, [request])[0]
    seen = {*good, *(t for reply in alone for t in reply[0])}
    damaged = next(t for t in range(2, 61) if t not in seen)
    model.model.embed_tokens.weight[damaged] = math.nan
    bad = [*prompt_of(66)[:-1], damaged]
    decoder = BatchDecoder(model, pages=12)
    broken = decoder.submit(DecodeRequest(bad, DecodeOptions(16), [1, 2], [0.0, 1.0]))
    for _ in range(3):  # its pages are used again
        job = decoder.submit(request)
        events = []
        while not decoder.idle:
            events += decoder.step()
        failed = [e for e in events if isinstance(e, JobFailed)]
        assert all(e.job is broken and isinstance(e.error, DecodeError) for e in failed)
        assert [(r.tokens, r.step_map, r.stopped) for r in job.replies] == alone
        broken = decoder.submit(DecodeRequest(bad, DecodeOptions(16), [1, 2], [0.0, 1.0]))


def test_a_request_that_can_never_fit_is_refused() -> None:
    decoder = BatchDecoder(make_model(), pages=3)
    with pytest.raises(ValueError, match="need 5 pages of keys and values, there are 3"):
        decoder.submit(DecodeRequest(prompt_of(150), DecodeOptions(64), [0], [0.0]))


def test_rows_that_left_far_behind_do_not_reach_past_the_table() -> None:
    """A long candidate ends first; what is left of it pads the passes of three others, whose pages are fewer."""
    model = make_model(12)
    long = DecodeRequest(prompt_of(300), DecodeOptions(8), [1], [1.0], [])
    short = DecodeRequest(prompt_of(5), DecodeOptions(40), [3, 4, 5], [0.0, 1.0, 1.0], [])
    alone = [decode_together(model, [request])[0] for request in (short, long)]
    assert decode_together(model, [short, long], static=True) == alone


@pytest.mark.parametrize("forced", [1, 2, 4, 7])
def test_a_forced_beginning_is_what_the_model_sees_and_part_of_the_reply(forced: int) -> None:
    model, prompt = make_model(16), prompt_of(9)
    begin = prompt_of(forced, seed=4)
    got = model.generate(prompt, 20, forced=begin, temperature=0.8, n=3, seed=2)
    seen = model.generate([*prompt, *begin], 20 - forced, temperature=0.8, n=3, seed=2)
    for reply, steps, rest, rest_steps in zip(
        got.tokens, got.step_map, seen.tokens, seen.step_map, strict=True
    ):
        assert reply == [*begin, *rest] and steps == [0] * forced + rest_steps
    with pytest.raises(ValueError, match="leave nothing to decode"):
        model.generate(prompt, forced, forced=begin)


@pytest.mark.parametrize("static", [False, True])
def test_higher_priority_first_and_nothing_lost(static: bool) -> None:
    model, requests = make_model(12), mixed_requests(make_model(12))
    alone = [decode_together(model, [request])[0] for request in requests]
    decoder = BatchDecoder(model, pages=64, static=static)
    jobs = []
    for number, request in enumerate(requests):  # each more urgent than the one before, while that one runs
        jobs.append(decoder.submit(request, priority=number))
        decoder.step()
        decoder.step()
    ended: list[int] = []
    for event in run(decoder):
        if not event.job.unfinished:
            ended.append(event.job.priority)
    assert [[(r.tokens, r.step_map, r.stopped) for r in job.replies] for job in jobs] == alone
    if not static:
        assert ended == sorted(ended, reverse=True)


def test_out_of_memory_in_a_pass_ends_the_newest_request_only(monkeypatch: pytest.MonkeyPatch) -> None:
    model, requests = make_model(12), mixed_requests(make_model(12))[:3]
    alone = [decode_together(model, [request])[0] for request in requests]
    decoder = BatchDecoder(model, pages=64)
    jobs = [decoder.submit(request) for request in requests]
    decoder.step()
    forward, left = model.model.forward, [1]

    def exhausted(*arguments: Any) -> torch.Tensor:
        if left and left.pop():
            raise torch.OutOfMemoryError("no memory")
        return forward(*arguments)

    monkeypatch.setattr(model.model, "forward", exhausted)
    failed = []
    while not decoder.idle:
        failed += [event for event in decoder.step() if isinstance(event, JobFailed)]
    assert [event.job for event in failed] == [jobs[2]]
    for job, expected in zip(jobs[:2], alone, strict=False):
        assert [(r.tokens, r.step_map, r.stopped) for r in job.replies] == expected
    assert decoder.pool.available == decoder.pool.count - 1

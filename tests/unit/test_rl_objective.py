"""The TraceRL objective against slow, independent implementations: rows, visibility, losses and gradients in float32.

The slow side never packs anything: for every block and every step it runs the network on the plain sequence up to
that block, with the block as the decoder saw it, under the decoder's own staircase mask.
"""

from __future__ import annotations

import math
import random

import pytest
import torch
from dice_engine.model.config import SdarConfig
from dice_engine.model.network import SdarModel
from dice_training.rl.objective import Batch, dense_visibility, kl_estimate, log_probabilities, policy_loss
from dice_training.rl.policy import Policy
from dice_training.rl.recipe import Phase, RlRecipe
from dice_training.rl.trajectory import Group, Reply, pack, rounds

MASK = 1
VOCAB = 30


def tiny_model(block_size: int, seed: int = 0) -> SdarModel:
    config = SdarConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        block_size=block_size,
        mask_token_id=MASK,
        initializer_range=0.3,
    )
    model = SdarModel(config)
    model.reset_parameters(torch.Generator().manual_seed(seed))
    return model


def random_groups(block_size: int, seed: int, count: int = 3) -> list[Group]:
    """Prompts and replies of any length, replies with steps as a decoder gives them: 0, 1, ... inside each block."""
    rng = random.Random(seed)

    def reply(prompt: int) -> Reply:
        length = rng.randrange(1, 3 * block_size + 2)
        tokens = [rng.randrange(2, VOCAB) for _ in range(length)]
        steps = [0] * length
        for block in {(prompt + i) // block_size for i in range(length)}:
            inside = [i for i in range(length) if (prompt + i) // block_size == block]
            for i in inside:
                steps[i] = rng.randrange(len(inside))
        return Reply(tokens, steps, rng.uniform(-2, 2))

    groups = []
    for _ in range(count):
        prompt = [rng.randrange(2, VOCAB) for _ in range(rng.randrange(1, 3 * block_size))]
        groups.append(Group(prompt, [reply(len(prompt)) for _ in range(rng.randrange(1, 4))]))
    return groups


def slow_terms(
    model: SdarModel, group: Group, reply: Reply, block_size: int, shrink: int = 1
) -> list[tuple[int, torch.Tensor]]:
    """(position, log-probability) of every token of a reply, drawn at its step from the sequence as it was then."""
    text = [*group.prompt, *reply.tokens]
    step = [-1] * len(group.prompt) + [s // shrink for s in reply.step_map]
    terms = []
    for start in range(0, len(text), block_size):
        places = [p for p in range(start, start + block_size) if p < len(text)]
        for now in sorted({step[p] for p in places if step[p] >= 0}):
            seen = text[:start] + [
                text[p] if p < len(text) and step[p] < now else MASK for p in range(start, start + block_size)
            ]
            logits = model(torch.tensor([seen]), block_size=block_size)[0]
            for p in places:
                if step[p] == now:
                    allowed = [t for t in range(VOCAB) if t != MASK]
                    total = torch.logsumexp(logits[p][allowed], 0)
                    terms.append((p, logits[p, text[p]] - total))
    return terms


def recipe(**changes: object) -> RlRecipe:
    values: dict[str, object] = {"row_length": 96, "batch_rows": 2, "learning_rate": 1e-3}
    return RlRecipe("", "", (Phase("infill", "", 1),), **{**values, **changes})  # type: ignore[arg-type]


def packed(groups: list[Group], block_size: int, length: int = 96, shrink: int = 1) -> Batch:
    rows, left_out = pack(groups, length=length, block_size=block_size, mask_id=MASK, shrink=shrink)
    assert not left_out
    return Batch.of(rows, torch.device("cpu"))


def test_rounds_take_the_smallest_remaining_step_of_each_block() -> None:
    # Blocks of 4 from position 0; the prompt ends in the middle of the second one.
    found = rounds(6, [1, 0, 2, 2, 0, 3, 0], 4)
    assert [(b.start, b.hidden, b.drawn) for b in found] == [
        (4, [6, 7], [7]),
        (4, [6], [6]),
        (8, [8, 9, 10, 11], [10]),
        (8, [8, 9, 11], [8, 9]),
        (8, [11], [11]),
        (12, [12, 13, 14, 15], [12]),
    ]


def test_shrink_merges_steps() -> None:
    found = rounds(0, [3, 1, 0, 2], 4, shrink=2)
    assert [(b.hidden, b.drawn) for b in found] == [([0, 1, 2, 3], [1, 2]), ([0, 3], [0, 3])]


@pytest.mark.parametrize("block_size", [1, 3, 4])
def test_every_token_of_a_reply_carries_loss_once(block_size: int) -> None:
    groups = random_groups(block_size, 1)
    batch = packed(groups, block_size)
    wanted = sorted(
        (len(g.prompt) + i, token, round(reply.advantage, 4))
        for g in groups
        for reply in g.replies
        for i, token in enumerate(reply.tokens)
    )
    found = zip(
        batch.position[batch.loss].tolist(),
        batch.target[batch.loss].tolist(),
        [round(a, 4) for a in batch.advantage[batch.loss].tolist()],
        strict=True,
    )
    assert sorted(found) == wanted
    assert (batch.ids[batch.loss] == MASK).all()


@pytest.mark.parametrize("block_size", [1, 3, 4])
def test_visibility_is_the_rule(block_size: int) -> None:
    batch = packed(random_groups(block_size, 2), block_size)
    allowed = dense_visibility(batch, block_size)[:, 0]
    d, b, c, p = (t.tolist() for t in (batch.document, batch.branch, batch.copy, batch.position))
    for row in range(len(allowed)):
        for q in range(allowed.shape[1]):
            for k in range(allowed.shape[1]):
                q_block, k_block = p[row][q] // block_size, p[row][k] // block_size
                clean_key = c[row][k] == 0 and (q_block > k_block or (c[row][q] == 0 and q_block == k_block))
                same_noise = c[row][q] > 0 and c[row][q] == c[row][k] and b[row][q] == b[row][k]
                rule = d[row][q] == d[row][k] and b[row][k] in (0, b[row][q]) and (clean_key or same_noise)
                assert bool(allowed[row, q, k]) == rule


@pytest.mark.parametrize(("block_size", "shrink"), [(1, 1), (3, 1), (4, 1), (4, 2), (8, 1)])
def test_packed_log_probabilities_are_those_of_the_decoders_own_sequences(
    block_size: int, shrink: int
) -> None:
    model, groups = tiny_model(block_size), random_groups(block_size, 3)
    batch = packed(groups, block_size, length=220, shrink=shrink)
    policy = Policy(model, recipe())
    fast, entropy = policy.log_probabilities(model, batch)
    slow = []
    for group in groups:
        for reply in group.replies:
            slow += slow_terms(model, group, reply, block_size, shrink)
    assert len(slow) == len(fast)
    # The same (position, value) pairs, in whatever order the rows hold them.
    ours = sorted(zip(batch.position[batch.loss].tolist(), fast.tolist(), strict=True))
    theirs = sorted((p, value.item()) for p, value in slow)
    for (p, a), (q, b) in zip(ours, theirs, strict=True):
        assert p == q and a == pytest.approx(b, abs=2e-4)
    assert (entropy > 0).all() and (entropy <= math.log(VOCAB - 1) + 1e-5).all()


@pytest.mark.parametrize("kl", [0.0, 0.3])
@pytest.mark.parametrize("batch_rows", [1, 3])
@pytest.mark.parametrize("length", [96, 150])
def test_loss_and_gradient_are_the_formula_whatever_the_rows(
    kl: float, batch_rows: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    block_size = 4
    groups = random_groups(block_size, 4, count=4)
    model, frozen, twin = tiny_model(block_size), tiny_model(block_size, 9), tiny_model(block_size)
    policy = Policy(model, recipe(kl=kl, batch_rows=batch_rows, row_length=length), reference=frozen)
    kept: dict[str, torch.Tensor] = {}

    def keep(*_: object, **__: object) -> torch.Tensor:
        kept.update({n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})
        return torch.tensor(0.0)

    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", keep)
    done = policy.update(policy.prepare(groups))

    total = torch.zeros(())
    tokens = sum(len(reply.tokens) for group in groups for reply in group.replies)
    for group in groups:
        for reply in group.replies:
            theirs = slow_terms(frozen, group, reply, block_size)
            for (_, new), (_, fixed) in zip(slow_terms(twin, group, reply, block_size), theirs, strict=True):
                ratio = torch.exp(new - new.detach())  # the old weights are the weights now
                surrogate = torch.minimum(ratio * reply.advantage, ratio.clamp(0.8, 1.2) * reply.advantage)
                d = new - fixed.detach()
                total = total - surrogate / tokens + kl * (torch.exp(-d) - 1 + d) / tokens
    total.backward()
    assert done.tokens == tokens
    assert done.loss == pytest.approx(total.item(), abs=1e-4)
    for name, parameter in twin.named_parameters():
        assert parameter.grad is not None
        assert torch.allclose(kept[name], parameter.grad, atol=2e-4), name


def test_the_clip_is_the_formula() -> None:
    generator = torch.Generator().manual_seed(0)
    new, old = torch.randn(50, generator=generator), torch.randn(50, generator=generator)
    new[0], old[0] = 40.0, 0.0
    advantage = torch.randn(50, generator=generator)
    loss, clipped = policy_loss(new, old, advantage, 0.2, 77)
    slow, held = 0.0, 0
    for n, o, a in zip(new.tolist(), old.tolist(), advantage.tolist(), strict=True):
        ratio = math.exp(max(-10.0, min(10.0, n - o)))
        free, inside = ratio * a, max(0.8, min(1.2, ratio)) * a
        slow -= min(free, inside) / 77
        held += inside < free
    assert loss.item() == pytest.approx(slow, rel=1e-4)
    assert clipped.item() == pytest.approx(held / 50)


def test_kl_estimate_is_never_negative_and_zero_where_equal() -> None:
    new = torch.linspace(-5, 5, 41)
    values = kl_estimate(new, torch.zeros(41))
    assert (values >= 0).all() and values[20] == 0


def test_the_mask_token_has_no_probability_and_temperature_counts() -> None:
    logits = torch.tensor([[1.0, 50.0, 2.0, 0.5]])
    logp, entropy = log_probabilities(logits, torch.tensor([2]), MASK, 2.0)
    weights = [math.exp(1.0 / 2), math.exp(2.0 / 2), math.exp(0.5 / 2)]
    shares = [w / sum(weights) for w in weights]
    assert logp.item() == pytest.approx(math.log(shares[1]), rel=1e-5)
    assert entropy.item() == pytest.approx(-sum(s * math.log(s) for s in shares), rel=1e-5)


def test_old_probabilities_are_asked_before_the_first_of_several_updates() -> None:
    """With several optimiser steps the ratio of the later ones is against the weights before all of them."""
    groups = random_groups(4, 5, count=4)
    policy = Policy(tiny_model(4), recipe(updates=2, learning_rate=0.05))
    seen: list[torch.Tensor] = []
    real = policy._step

    def spy(rows, old, tokens, done):  # type: ignore[no-untyped-def]
        with torch.no_grad():
            now = [policy.log_probabilities(policy.model, policy._load(m))[0] for m in policy._micro(rows)]
        seen.append(torch.cat(now) - torch.cat(old))
        real(rows, old, tokens, done)

    policy._step = spy  # type: ignore[method-assign]
    policy.update(policy.prepare(groups))
    assert seen[0].abs().max() < 1e-5 and seen[1].abs().max() > 1e-2


def test_a_reply_too_long_for_a_row_is_left_out_and_counted() -> None:
    group = Group([5] * 8, [Reply([6] * 40, [0] * 40, 1.0), Reply([6, 7], [0, 0], -1.0)])
    rows, left_out = pack([group], length=40, block_size=4, mask_id=MASK)
    assert left_out == 1 and int(rows.loss.sum()) == 2


@pytest.mark.parametrize("threshold", [0.05, 0.3, 0.9])
def test_what_the_decoder_took_as_likeliest_is_likeliest_in_the_rows(threshold: float) -> None:
    """The engine's own greedy replies: its grid, its ids and its step map are those that the rows are made of."""
    block_size = 4
    model = tiny_model(block_size, seed=3)
    policy = Policy(model, recipe(row_length=128))
    steps_seen = set()
    for length in range(1, 10):
        prompt = [2 + (7 * i + length) % (VOCAB - 2) for i in range(length)]
        made = model.generate(prompt, 18, threshold=threshold, temperature=0.0, stop_ids=())
        reply = Reply(made.tokens[0], made.step_map[0], 1.0)
        steps_seen |= set(reply.step_map)
        batch = packed([Group(prompt, [reply])], block_size, length=128)
        # Positions behind the end of the reply were decoded as well: the last block is not what the decoder saw.
        whole = batch.loss & (batch.position < (length + 18) // block_size * block_size)
        with torch.no_grad():
            hidden = policy._layers[model](batch.ids, batch.position, dense_visibility(batch, block_size))
            logits = model.head(model.model.norm(hidden[whole]))
        logits[:, MASK] = -torch.inf
        assert logits.argmax(-1).tolist() == batch.target[whole].tolist()
    assert (len(steps_seen) > 1) == (threshold > 0.05)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA GPU")
def test_flex_attention_on_a_gpu_gives_what_the_dense_mask_gives_on_a_cpu() -> None:
    groups = random_groups(4, 6, count=6)
    model = tiny_model(4)
    on_gpu = tiny_model(4).to("cuda")
    values = []
    for where in (model, on_gpu):
        policy = Policy(where, recipe(row_length=256, batch_rows=2))
        rows, _ = policy._pack(groups)
        with torch.no_grad():
            found = [policy.log_probabilities(where, policy._load(m))[0].cpu() for m in policy._micro(rows)]
        values.append(torch.cat(found))
    assert len(values[0]) == sum(len(reply.tokens) for group in groups for reply in group.replies)
    # bfloat16 on the GPU, float32 on the CPU.
    assert (values[0] - values[1]).abs().max() < 0.15

"""Rewards, advantages, the curriculum, and a state from which training goes on bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from dice_engine.model.config import SdarConfig
from dice_engine.model.network import SdarModel
from dice_engine.verify.verdict import BuildInfo, Verdict
from dice_training.recipe import RecipeError
from dice_training.rl.curriculum import Curriculum
from dice_training.rl.policy import Policy
from dice_training.rl.recipe import Phase, RlRecipe, load_rl_recipe
from dice_training.rl.reward import advantages, reward
from dice_training.rl.state import load_state, save_state
from dice_training.rl.trajectory import Group, Reply


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (Verdict("verified", speedup=4.0), 1.0),
        (Verdict("no_gain", speedup=0.8), 1.0),
        (Verdict("correct_unmeasured"), 1.0),
        (Verdict("mismatch"), 0.0),
        (Verdict("build_error"), 0.0),
        (Verdict("deceptive", rule="torch_fallback"), 0.0),
        (Verdict("unsafe"), 0.0),
        (Verdict("crash"), 0.0),
        (Verdict("timeout", build=BuildInfo("nvrtc")), 0.0),
        (Verdict("timeout"), None),
        (Verdict("infra_error"), None),
        (Verdict("no_plan"), None),
    ],
)
def test_rewards(verdict: Verdict, expected: float | None) -> None:
    assert reward(verdict) == expected


def test_the_speed_term_is_bounded_and_never_beats_correctness() -> None:
    times = [0.01, 0.5, 1.0, 2.0, 4.0, 1000.0]
    values = [reward(Verdict("verified", speedup=s), speed=0.4) for s in times]
    assert values == pytest.approx([0.6, 0.6, 1.0, 1.4, 1.8, 1.8])
    assert reward(Verdict("mismatch"), speed=0.4) == 0.0


def test_advantages_are_z_scores_without_the_excluded() -> None:
    assert advantages([1.0, None, 0.0, 0.0, 1.0]) == [1.0, None, -1.0, -1.0, 1.0]
    third = advantages([1.0, 0.0, 0.0, None])
    assert third is not None and third[:3] == pytest.approx([2**0.5, -(0.5**0.5), -(0.5**0.5)])
    for alike in ([1.0, 1.0], [0.0, 0.0, None], [None, None], [1.0], []):
        assert advantages(alike) is None


def test_the_curriculum_rests_what_all_or_none_solve_and_revisits_it() -> None:
    names = [f"t{i}" for i in range(40)]
    curriculum = Curriculum(names, seed=3)
    drawn: dict[str, list[int]] = {name: [] for name in names}
    for step in range(60):
        picked = curriculum.draw(step, 8)
        assert len(set(picked)) == 8
        for name in picked:
            drawn[name].append(step)
            mixed = name in names[:10]
            curriculum.note(name, step, [True, False] if mixed else [name in names[10:25]] * 2)
    mixed = sum(len(drawn[name]) for name in names[:10])
    settled = sum(len(drawn[name]) for name in names[10:])
    assert mixed / 10 > 2 * settled / 30
    assert all(drawn.values())
    for name in names[10:]:
        gaps = [b - a for a, b in zip(drawn[name], drawn[name][1:], strict=False)]
        assert all(gap >= 4 for gap in gaps)
    again = Curriculum(names, seed=3)
    again.restore(curriculum.to_json())
    assert again.draw(60, 8) == curriculum.draw(60, 8)


def test_a_draw_of_more_than_is_due_takes_those_that_rest_shortest() -> None:
    curriculum = Curriculum(["a", "b", "c"], seed=0)
    curriculum.note("a", 0, [True, True])
    curriculum.note("b", 0, [True, False])
    assert curriculum.draw(1, 2) == ["c", "b"]
    assert curriculum.draw(1, 5) == ["c", "b", "a"]


def model() -> SdarModel:
    config = SdarConfig(
        vocab_size=20,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        mask_token_id=1,
        tie_word_embeddings=True,
    )
    made = SdarModel(config)
    made.reset_parameters(torch.Generator().manual_seed(0))
    return made


def recipe(**changes: object) -> RlRecipe:
    values: dict[str, object] = {"row_length": 64, "batch_rows": 1, "learning_rate": 1e-2}
    return RlRecipe("", "", (Phase("infill", "d", 1),), **{**values, **changes})  # type: ignore[arg-type]


GROUPS = [
    Group([3, 4, 5], [Reply([6, 7, 8, 9], [0, 0, 1, 0], 1.0), Reply([9, 8, 7], [1, 0, 0], -1.0)]),
    Group([5, 4, 3, 2, 6], [Reply([11, 12], [0, 1], -0.5), Reply([13], [0], 0.5)]),
]


def test_the_state_goes_on_bit_for_bit(tmp_path: Path) -> None:
    straight = Policy(model(), recipe())
    for _ in range(3):
        straight.update(straight.prepare(GROUPS))

    first = Policy(model(), recipe())
    curriculum = Curriculum(["x", "y"], 0)
    curriculum.note("x", 2, [True, True])
    first.update(first.prepare(GROUPS))
    first.update(first.prepare(GROUPS))
    save_state(tmp_path, recipe(), 2, first.model, first.optimizer, [curriculum])
    second, restored = Policy(model(), recipe()), Curriculum(["x", "y"], 0)
    assert load_state(tmp_path, recipe(save_every=9), second.model, second.optimizer, [restored]) == 2
    assert restored.records == curriculum.records
    second.update(second.prepare(GROUPS))
    for ours, theirs in zip(second.model.parameters(), straight.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_state_of_another_recipe_is_refused(tmp_path: Path) -> None:
    policy = Policy(model(), recipe())
    save_state(tmp_path, recipe(), 0, policy.model, policy.optimizer, [Curriculum([], 0)])
    with pytest.raises(RecipeError, match="another 'clip'"):
        load_state(tmp_path, recipe(clip=0.3), policy.model, policy.optimizer, [Curriculum([], 0)])
    (tmp_path / "state.safetensors").write_bytes(b"no")
    with pytest.raises(RecipeError, match="not the state of a run"):
        load_state(tmp_path, recipe(), policy.model, policy.optimizer, [Curriculum([], 0)])


def test_an_update_makes_rewarded_replies_more_likely() -> None:
    policy = Policy(model(), recipe(learning_rate=1e-3))
    rows, _ = policy._pack(GROUPS)
    batch = policy._load(next(policy._micro(rows)))

    def surrogate() -> float:
        with torch.no_grad():
            logp, _ = policy.log_probabilities(policy.model, batch)
        return float((logp * batch.advantage[batch.loss]).mean())

    before = surrogate()
    policy.update(policy.prepare(GROUPS))
    assert surrogate() > before


@pytest.mark.parametrize("name", ["rl-nano", "rl-nano-both", "rl-ours"])
def test_the_recipes_that_are_shipped_can_be_read(name: str) -> None:
    plan = load_rl_recipe(Path("training/recipes") / f"{name}.toml")
    assert plan.phase_of(0)[1].kind == "infill" and plan.phase_of(plan.steps - 1)[0] == len(plan.phases) - 1
    with pytest.raises(IndexError):
        plan.phase_of(plan.steps)

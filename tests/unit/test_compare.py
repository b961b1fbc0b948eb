"""The comparison: tolerances follow dtype and scale, nothing passes by being small."""

from __future__ import annotations

import math

import pytest
import torch
from dice_engine.source.plan import Tolerance
from dice_engine.verify import compare
from dice_engine.verify.compare import bounds, compare_tensor


def check(expected: torch.Tensor, actual: torch.Tensor, **how) -> compare.Check:
    return compare_tensor(expected, actual, bounds(expected.dtype, **how))


def test_tiny_outputs_are_held_to_their_own_scale():
    x = torch.rand(8, 131072, generator=torch.Generator().manual_seed(0))
    wanted = torch.softmax(x, dim=1)
    shifted = (x - x.amax(1, keepdim=True)).exp()
    other_order = shifted / shifted.reshape(8, 256, -1).sum(2).sum(1, keepdim=True)
    assert check(wanted, other_order).ok
    assert not check(wanted, torch.zeros_like(x)).ok
    assert not check(wanted, torch.full_like(x, 1 / 131072)).ok


@pytest.mark.parametrize("narrow", [torch.float16, torch.bfloat16])
def test_lower_precision_is_found(narrow):
    generator = torch.Generator().manual_seed(1)
    a, b = torch.randn(64, 256, generator=generator), torch.randn(256, 64, generator=generator)
    assert not check(a @ b, (a.to(narrow).float() @ b.to(narrow).float())).ok
    assert check(a @ b, (a.double() @ b.double()).float()).ok


def test_rms_bound_finds_what_single_elements_hide():
    wanted = torch.randn(100_000, generator=torch.Generator().manual_seed(2))
    found = check(wanted, wanted * (1 + 6e-5))
    assert not found.ok
    assert found.rule == "narrowing"


def test_masks_of_nonfinite_values_must_match():
    wanted = torch.tensor([1.0, math.nan, math.inf, -math.inf])
    assert check(wanted, wanted.clone()).ok
    for index, value in ((0, math.nan), (1, 0.0), (2, -math.inf), (3, 3e38)):
        changed = wanted.clone()
        changed[index] = value
        found = check(wanted, changed)
        assert (found.ok, found.rule) == (False, "nonfinite")


def test_integers_and_booleans_are_exact():
    assert check(torch.arange(5), torch.arange(5)).ok
    assert not check(torch.arange(5), torch.tensor([0, 1, 2, 3, 5])).ok
    assert not check(torch.tensor([True]), torch.tensor([False])).ok


def test_dtype_and_shape_are_part_of_the_answer():
    assert "float64" in check(torch.ones(2), torch.ones(2, dtype=torch.float64)).reason
    assert "shape" in check(torch.ones(2), torch.ones(2, 1)).reason
    assert check(torch.ones(0, 3), torch.ones(0, 3)).ok


def test_an_annotated_tolerance_replaces_ours():
    wanted = torch.ones(100)
    loose = bounds(torch.float32, override=Tolerance(rel=1e-2, abs=0.0))
    assert compare_tensor(wanted, wanted * 1.005, loose).ok
    tight = bounds(torch.float32, override=Tolerance(rel=1e-7, abs=0.0))
    assert not compare_tensor(wanted, wanted * 1.00001, tight).ok


def test_elements_that_jump_with_rounding_are_left_out():
    x = torch.linspace(-3, 3, 1001)
    wanted, moved = torch.floor(x), torch.floor(x * (1 - 1e-7))
    noise, jumps = compare.spread(wanted, moved)
    assert jumps is not None
    assert 0 < int(jumps.sum()) <= 10
    assert noise < 1e-3
    assert compare_tensor(wanted, moved, bounds(torch.float32, uncertain=jumps)).ok


def test_structure_is_compared():
    one = torch.ones(2)
    limits = [bounds(torch.float32)] * 2
    assert compare.compare((one, one), [one, one], limits).ok
    assert "list of 1" in compare.compare((one, one), [one], limits).reason
    assert compare.compare({"a": one, "b": None}, {"a": one, "b": None}, limits[:1]).ok
    assert not compare.compare({"a": one}, {"b": one}, limits[:1]).ok
    assert not compare.compare([one, 3], [one, 4], limits[:1]).ok


def test_same_bits_knows_scalars_views_and_signed_zero():
    x = torch.randn(4, 4)
    assert compare.same_bits(x.t(), x.t().contiguous())
    assert compare.same_bits(torch.tensor(1.0), torch.tensor(1.0))
    assert not compare.same_bits(torch.tensor([0.0]), torch.tensor([-0.0]))

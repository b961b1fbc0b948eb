"""The verdict's shape: what is summed up from kernels and bytes, and that it survives JSON."""

from __future__ import annotations

import json

import pytest
from dice_engine.typed import TypeMismatch
from dice_engine.verify.verdict import BuildInfo, GpuState, KernelUse, Verdict


def measured() -> Verdict:
    verdict = Verdict("verified", candidate_ms=0.5, speedup=2.0, build=BuildInfo("nvrtc", 0.1), device="H200")
    verdict.note_kernels(
        [KernelUse("first", 32, 0, 1024, 128, 0.75), KernelUse("second<float>", 80, 16, 0, None, None)]
    )
    verdict.note_traffic(1_000_000, 4e9)
    verdict.gpu = GpuState("NVIDIA H200", "580", 1980, 3201, ["power cap"])
    return verdict


def test_the_hungriest_kernel_speaks_for_all() -> None:
    verdict = measured()
    assert (verdict.registers, verdict.spills, verdict.shared_bytes) == (80, 16, 1024)
    assert verdict.occupancy == 0.75


def test_bytes_a_second_and_share_of_the_roofline() -> None:
    verdict = measured()
    assert verdict.bytes_per_second == pytest.approx(2e9)
    assert verdict.roofline == pytest.approx(0.5)


def test_nothing_is_claimed_without_times() -> None:
    verdict = Verdict("correct_unmeasured")
    verdict.note_traffic(1_000_000, 4e9)
    verdict.note_kernels([])
    assert (verdict.bytes, verdict.bytes_per_second, verdict.roofline, verdict.registers) == (None,) * 4


def test_json_gives_the_same_verdict_back() -> None:
    verdict = measured()
    assert Verdict.from_json(json.loads(json.dumps(verdict.to_json()))) == verdict


def test_json_of_another_shape_is_refused() -> None:
    with pytest.raises(TypeMismatch, match="registers"):
        Verdict.from_json({**measured().to_json(), "registers": "many"})

"""The forty modules of the bench, and the usual way to judge them where no extension has to be built."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from dice_engine.bench.baseline import judge
from dice_engine.bench.field import lines
from dice_engine.bench.modules import module_pairs
from dice_engine.verify.build.device_source import split

REFERENCE = module_pairs()[0].reference


def rewrite(forward: str) -> str:
    return REFERENCE.replace("class Model(", "class ModelNew(").replace("torch.relu(x)", forward)


def test_forty_different_pairs_that_are_whole_programs() -> None:
    pairs = module_pairs()
    assert len(pairs) == len({pair.candidate for pair in pairs}) == len({pair.name for pair in pairs}) == 40
    for pair in pairs:
        compile(pair.reference, pair.name, "exec")
        compile(pair.candidate, pair.name, "exec")
        source = pair.candidate.split('source = """')[1].split('"""')[0]
        assert list(split(source).kernels) == [f"{pair.name}_kernel"]
        assert not {"NAME", "CHECKS", "FORMULA", "RESULT", "TERM", "JOIN"} & set(source.split())


def test_the_baseline_tells_right_from_wrong() -> None:
    assert judge(REFERENCE, rewrite("x.clamp(min=0)"), "cpu", False)["correct"] is True
    assert judge(REFERENCE, rewrite("x.clamp(min=0.1)"), "cpu", False)["correct"] is False
    assert judge(REFERENCE, rewrite("x[:, :-1]"), "cpu", False)["correct"] is False


def test_the_baseline_is_a_process_of_its_own(tmp_path: Path) -> None:
    reference, candidate = tmp_path / "r.py", tmp_path / "c.py"
    reference.write_text(REFERENCE)
    candidate.write_text(rewrite("x.clamp(min=0)"))
    command = [sys.executable, "-m", "dice_engine.bench.baseline", str(reference), str(candidate)]
    done = subprocess.run([*command, "--device", "cpu"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert '"correct": true' in done.stdout


def test_the_report_names_what_failed() -> None:
    ours = {
        "device": "H200",
        "latency_s": 0.5,
        "latency_max_s": 0.6,
        "per_second": 9.0,
        "judged": 80,
        "wall_s": 9.0,
    }
    theirs = {
        "latency_s": 60.0,
        "correct": 7,
        "sampled": 8,
        "wall_s": 70.0,
        "per_second": 0.1,
        "failures": ["no nvcc"],
    }
    targets = {"latency_s": 2.0, "per_second": 8.0, "times_faster": 50.0}
    report = {"modules": 40, "cores": 16, "workers": 15, "targets": targets, "baseline": theirs}
    report |= {
        "ours": {**ours, "verdicts": {"correct_unmeasured": 80}},
        "latency_ratio": 120,
        "throughput_ratio": 90,
    }
    said = "\n".join(lines(report))
    for words in ("120x", "90x", "target 50x", "7 of 8", "no nvcc", "80 correct_unmeasured"):
        assert words in said

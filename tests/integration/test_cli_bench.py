"""``dice bench`` from the outside: each part really measures, and says so in JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_cli import FILE, NANO, dice


def report(*arguments: str) -> dict[str, Any]:
    result = dice("bench", *arguments, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_lsp() -> None:
    found = report(
        "lsp", *["--kernels", "4", "--lines", "200", "--requests", "6", "--jobs", "0", "--ghosts", "0"]
    )
    assert found["kernels"] == 4 and found["lines"] >= 200 and found["jobs"] == 0
    assert 0 < found["initialize_ms"] < 20_000 and found["open_ms"] > 0 and found["memory_mb"] > 10
    assert set(found["requests"]) == {"codeAction", "codeLens", "hover", "didChange", "ping"}
    for times in found["requests"].values():
        assert 0 < times["median_ms"] <= times["p99_ms"] <= times["max_ms"]
    assert found["cancel_ms"] is None and found["ghost_text"] is None


@pytest.mark.skipif(not NANO.exists(), reason="the embedded checkpoint is not in this tree")
def test_decode() -> None:
    found = report("decode", "--device", "cpu", "-n", "2", "--tokens", "8")
    assert found["device"] == "cpu" and found["prompt_tokens"] > 100
    assert [batch["n"] for batch in found["batches"]] == [1, 2]
    for batch in found["batches"]:
        assert batch["forwards"] >= 2 and batch["ms_per_forward"] > 0 and batch["tokens_per_second"] > 0


def test_verify(tmp_path: Path) -> None:
    source = tmp_path / "twice.cu"
    source.write_text(FILE)
    found = report("verify", str(source), "--device", "cpu", "--rounds", "1")
    (pair,) = found["pairs"]
    assert pair["name"] == "twice" and pair["verdict"] == "correct_unmeasured"
    assert pair["seconds"] == [found["max_seconds"]] and found["median_seconds"] > 0


@pytest.mark.parametrize(
    "arguments", ["", "speed", "lsp --kernels 0", "verify none.cu", "decode --checkpoint none"]
)
def test_bad_use_is_one_line(arguments: str) -> None:
    result = dice("bench", *arguments.split())
    assert result.returncode == 2
    assert len(result.stderr.strip().splitlines()) == 1 and result.stderr.startswith("dice bench"), (
        result.stderr
    )

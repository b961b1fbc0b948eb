"""The README's "Fine-tune on your own kernels" in small: a folder of kernels to a checkpoint that writes them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from dice_engine.generate import main as generate
from dice_training.cuke.cli import main as cuke
from dice_training.train_cli import main as train

sys.path.insert(0, str(Path(__file__).parents[1]))
import small_tasks

RECIPE = """
data = "{folder}/mix.jsonl"
output = "{folder}/ours"
noise = "block"
row_length = 512
batch_rows = 1
steps = 120
optimizer = "muon"
learning_rate = 2e-2
adam_rate = 2e-2
ema = 0.9
quantize = false
[shape]
layers = 2
hidden = 64
intermediate = 128
heads = 4
kv_heads = 2
head_dim = 16
vocab = 600
context = 512
"""


@pytest.mark.timeout(600)
def test_own_kernels_become_what_the_engine_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "kernels"
    folder.mkdir()
    for name in ("scale", "shift"):
        row = small_tasks.kernel_row(name)
        (folder / f"{name}.cu").write_text(row["prefix"] + row["core"] + row["suffix"])
        (folder / f"{name}.slow.cu").write_text(row["prefix"] + row["reference"] + row["suffix"])

    ours = tmp_path / "ours.jsonl"
    options = ["--device", "cpu", "--min-speedup", "0", "--split", "train", "--workers", "1"]
    assert cuke(["import", str(folder), "--out", str(ours), *options]) == 0
    rows = [json.loads(line) for line in ours.read_text().splitlines()]
    assert len(rows) == 2 and {row["split"] for row in rows} == {"train"}

    (tmp_path / "mix.jsonl").write_text(ours.read_text())
    (tmp_path / "ours.toml").write_text(RECIPE.format(folder=tmp_path))
    assert train(["sft", str(tmp_path / "ours.toml")]) == 0

    wanted = next(row for row in rows if row["id"] == "scale.cu#0")
    asked = tmp_path / "asked.json"
    asked.write_text(json.dumps({key: wanted[key] for key in ("kind", "prefix", "suffix", "reference")}))
    capsys.readouterr()
    assert (
        generate(["--infill", str(asked), "--checkpoint", str(tmp_path / "ours"), "-n", "1", "--json"]) == 0
    )
    (candidate,) = json.loads(capsys.readouterr().out)["candidates"]
    assert candidate["core"] == wanted["core"]

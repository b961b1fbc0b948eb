"""``from_pretrained`` of transformers on our checkpoint folders: importing ``dice_engine`` is all it takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import dice_engine
import pytest
import torch

IDS = torch.arange(5, 25)[None]


@pytest.mark.parametrize("order", ["dice_engine, transformers", "transformers, dice_engine"])
def test_auto_classes_read_a_checkpoint(tiny_checkpoint: Path, order: str, tmp_path: Path) -> None:
    """In a process of its own: both orders of importing; the published remote code is not asked for."""
    folder = tmp_path / "published"
    folder.mkdir()
    for file in tiny_checkpoint.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "x.SDARConfig", "AutoModelForCausalLM": "x.SDARForCausalLM"}
    (folder / "config.json").write_text(json.dumps(config))
    code = f"""
import sys
import {order}
if {order.startswith("dice")}:
    import dice_engine
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
import torch
config = AutoConfig.from_pretrained({str(folder)!r})
model = AutoModelForCausalLM.from_pretrained({str(folder)!r}, dtype=torch.float32)
tokenizer = AutoTokenizer.from_pretrained({str(folder)!r})
ids = torch.arange(5, 25)[None]
reference = dice_engine.load({str(folder)!r}, "cpu")
assert torch.equal(model(ids).logits, reference(ids))
assert torch.equal(model(ids, block_size=8).logits, reference(ids, block_size=8))
padded = torch.cat((ids, ids[:, :4]), 1)
mask = torch.ones_like(padded)
mask[:, 20:] = 0
assert torch.allclose(model(padded, attention_mask=mask, block_size=4).logits[:, :20], reference(ids), atol=1e-4)
assert model.generate(ids, max_new_tokens=9) == reference.generate(ids, 9)
assert config.block_size == 4 and tokenizer("x[i]")["input_ids"]
model.save_pretrained({str(tmp_path / "again")!r})
assert torch.equal(dice_engine.load({str(tmp_path / "again")!r}, "cpu")(ids), reference(ids))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_quantised_checkpoint_is_unpacked() -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(str(dice_engine.NANO))
    assert model.dtype == torch.bfloat16
    exact = dice_engine.load(device="cpu", dtype="bfloat16")
    assert torch.equal(model(IDS).logits, exact(IDS))


def test_importing_the_package_imports_neither_torch_nor_transformers() -> None:
    code = "import sys, dice_engine; assert not {'torch', 'transformers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)

"""Checkpoint folders: what is written is read back, and what is broken is said in one line."""

from __future__ import annotations

import json
from pathlib import Path

import dice_engine
import pytest
import torch
from dice_engine.model.config import CheckpointError, SdarConfig
from dice_engine.model.network import SdarModel
from dice_engine.model.quantize import fake_quantize
from dice_engine.model.weights import check_memory, load_model, save_folder
from safetensors.torch import load_file, save_file

CONFIG = SdarConfig(
    vocab_size=60,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    mask_token_id=1,
    eos_token_ids=(0, 5),
    dice={"format": "fim"},
)
IDS = torch.arange(10)[None]


@pytest.fixture(params=[False, True], ids=["untied", "tied"])
def model(request: pytest.FixtureRequest) -> SdarModel:
    model = SdarModel(SdarConfig(**{**CONFIG.__dict__, "tie_word_embeddings": request.param}))
    model.reset_parameters(torch.Generator().manual_seed(1))
    return model.eval()


def edit_config(folder: Path, **changes: object) -> None:
    data = json.loads((folder / "config.json").read_text())
    data.update(changes)
    (folder / "config.json").write_text(json.dumps({k: v for k, v in data.items() if v is not None}))


def shard(folder: Path) -> list[str]:
    state = load_file(folder / "model.safetensors")
    names = sorted(state)
    weight_map = {}
    for part, chosen in enumerate((names[::2], names[1::2])):
        file = f"model-{part + 1:05}-of-00002.safetensors"
        save_file({n: state[n] for n in chosen}, folder / file)
        weight_map.update(dict.fromkeys(chosen, file))
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return sorted(set(weight_map.values()))


def test_round_trip(model: SdarModel, tmp_path: Path) -> None:
    save_folder(model, tmp_path)
    loaded = load_model(tmp_path)
    assert torch.equal(loaded(IDS), model(IDS))
    assert loaded.config.eos_token_ids == (0, 5) and loaded.config.format == "fim"
    assert loaded.config.tie_word_embeddings is model.config.tie_word_embeddings
    assert not any(p.is_meta or p.requires_grad for p in loaded.parameters())


def test_shards(model: SdarModel, tmp_path: Path) -> None:
    save_folder(model, tmp_path)
    files = shard(tmp_path)
    assert torch.equal(load_model(tmp_path)(IDS), model(IDS))
    (tmp_path / files[1]).unlink()
    with pytest.raises(CheckpointError, match=r"shard model-00002-of-00002\.safetensors is missing"):
        load_model(tmp_path)


def test_the_file_decides_about_tying(tmp_path: Path) -> None:
    """Published 4B/8B configs are wrong or silent about tying: the head is used where the file has it."""
    model = SdarModel(CONFIG)
    save_folder(model, tmp_path)
    edit_config(tmp_path, tie_word_embeddings=True)
    assert torch.equal(load_model(tmp_path)(IDS), model(IDS))


def test_dtypes(tmp_path: Path) -> None:
    save_folder(SdarModel(CONFIG), tmp_path, dtype=torch.bfloat16)
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "bfloat16"
    assert load_model(tmp_path).dtype == torch.float32
    assert load_model(tmp_path, dtype=torch.bfloat16).dtype == torch.bfloat16


def test_int8(model: SdarModel, tmp_path: Path) -> None:
    save_folder(model, tmp_path, quantize=True)
    stored = load_file(tmp_path / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.weight"
    assert stored[name].dtype == torch.int8 and stored[name + "_scale"].dtype == torch.float16
    loaded = load_model(tmp_path)
    weight = model.state_dict()[name]
    assert torch.equal(loaded.state_dict()[name], fake_quantize(weight))
    assert (loaded.state_dict()[name] - weight).abs().max() <= weight.abs().max() / 250
    assert loaded(IDS).sub(model(IDS)).abs().mean() < 0.1 * model(IDS).abs().mean()


def test_published_config_defaults() -> None:
    data = {**CONFIG.to_json(), "vocab_size": 151936, "torch_dtype": "bfloat16"}
    for key in ("block_size", "mask_token_id", "dice"):
        del data[key]
    config = SdarConfig.from_json(data)
    assert (config.block_size, config.mask_token_id, config.format) == (4, 151669, "chat")
    assert config.dtype == "bfloat16"


def test_stop_ids_also_from_generation_config(tmp_path: Path) -> None:
    save_folder(SdarModel(CONFIG), tmp_path)
    edit_config(tmp_path, eos_token_id=7)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [9, 7]}')
    assert load_model(tmp_path).config.eos_token_ids == (7, 9)


def test_clear_errors(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such checkpoint folder"):
        load_model(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match=r"no config\.json there"):
        load_model(tmp_path)
    save_folder(SdarModel(CONFIG), tmp_path)
    edit_config(tmp_path, intermediate_size=64)
    with pytest.raises(CheckpointError, match=r"mlp\.\w+_proj\.weight has shape .* asks for"):
        load_model(tmp_path)
    edit_config(tmp_path, intermediate_size=48, num_hidden_layers=3)
    with pytest.raises(CheckpointError, match=r"without model\.layers\.2\..*11 tensors missing"):
        load_model(tmp_path)
    edit_config(tmp_path, architectures=["Qwen3ForCausalLM"], model_type="qwen3")
    with pytest.raises(CheckpointError, match="the architecture is Qwen3ForCausalLM"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"config\.json: cannot be read"):
        load_model(tmp_path)


def test_truncated_weights(tmp_path: Path) -> None:
    save_folder(SdarModel(CONFIG), tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:5000])
    with pytest.raises(CheckpointError, match="not a readable safetensors file"):
        load_model(tmp_path)


def test_too_little_gpu_memory_is_said_with_numbers(tmp_path: Path) -> None:
    check_memory(tmp_path, 10, 10, 20)
    with pytest.raises(CheckpointError, match=r"need 16\.4 GB, the GPU has 10\.2 of 24\.0 GB free"):
        check_memory(tmp_path, 16_400_000_000, 10_200_000_000, 24_000_000_000)


def test_an_id_of_the_hub_is_found_in_its_cache_or_missed_in_one_line(
    model: SdarModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The layout that huggingface_hub keeps, without a network."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--some--checkpoint"
    save_folder(model, repository / "snapshots" / "abc")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    assert torch.equal(dice_engine.load("some/checkpoint", "cpu")(IDS), model(IDS))
    with pytest.raises(
        CheckpointError, match="some/other: no such checkpoint folder, and it cannot"
    ) as caught:
        dice_engine.load("some/other", "cpu")
    assert "\n" not in str(caught.value)

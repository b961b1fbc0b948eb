"""Checkpoint folders: safetensors (one file or sharded) and ``config.json``, in and out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from dice_engine.model import quantize as packing
from dice_engine.model.config import CheckpointError, SdarConfig, read_json
from dice_engine.model.network import SdarModel

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
HEAD = "lm_head.weight"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load_model(
    folder: str | Path, device: torch.device | str = "cpu", dtype: torch.dtype | None = None
) -> SdarModel:
    """The network of a checkpoint folder, in eval mode, on ``device``.

    ``dtype`` None: on a GPU what the config names, on a CPU float32. The head is ``lm_head.weight`` where the file has
    it, whatever the config says, else the embedding. One tensor at a time goes from disk to the device. Raises
    :class:`CheckpointError` for a missing file or shard, another architecture, a shape that does not fit, or a GPU with
    too little free memory.
    """
    folder, device = Path(folder), torch.device(device)
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: no such checkpoint folder")
    config = SdarConfig.load(folder)
    method = (config.quantization or {}).get("method")
    if method not in (None, packing.METHOD):
        raise CheckpointError(f"{folder}: config.json: unknown quantization method {method!r}")
    files = _tensor_files(folder)
    config = replace(config, tie_word_embeddings=HEAD not in files)
    if dtype is None:
        dtype = torch.float32 if device.type == "cpu" else DTYPES.get(config.dtype or "", torch.bfloat16)

    with torch.device("meta"):
        model = SdarModel(config)
    wanted = dict(model.named_parameters())
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        check_memory(folder, sum(p.numel() for p in wanted.values()) * dtype.itemsize, free, total)
    missing = sorted(wanted.keys() - files.keys())
    if missing:
        raise CheckpointError(f"{folder}: weights without {missing[0]} ({len(missing)} tensors missing)")
    for path in sorted(set(files.values())):
        _fill_from(path, [n for n in wanted if files[n] == path], wanted, model, device, dtype)
    model.tie_weights()
    return model.eval().requires_grad_(False)


def check_memory(folder: Path, needed: int, free: int, total: int) -> None:
    """Raises :class:`CheckpointError` when ``needed`` bytes of weights do not fit into the ``free`` ones of a GPU."""
    if needed > free:
        raise CheckpointError(
            f"{folder}: its weights need {needed / 1e9:.1f} GB, the GPU has {free / 1e9:.1f} of {total / 1e9:.1f} GB "
            "free; close other programs, take a smaller checkpoint, or use --device cpu"
        )


def save_folder(
    model: SdarModel, folder: str | Path, dtype: torch.dtype | None = None, quantize: bool = False
) -> None:
    """Write ``config.json`` and ``model.safetensors`` that :func:`load_model` reads back.

    ``dtype`` None keeps the model's own; ``quantize`` packs matrices by rows (see ``model.quantize``).
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    dtype = dtype or model.dtype
    state = {n: p.detach().to("cpu").contiguous() for n, p in model.named_parameters()}
    state = packing.pack(state) if quantize else {n: t.to(dtype) for n, t in state.items()}
    config = replace(
        model.config,
        dtype=str(dtype).removeprefix("torch."),
        quantization={"method": packing.METHOD} if quantize else None,
    )
    # The weights first: a folder with a config but old weights would load as something that never existed.
    temporary = folder / (SINGLE + ".part")
    save_file(state, temporary, metadata={"format": "pt"})
    temporary.replace(folder / SINGLE)
    (folder / "config.json").write_text(json.dumps(config.to_json(), indent=2) + "\n", encoding="utf-8")


def _tensor_files(folder: Path) -> dict[str, Path]:
    """Which file holds each tensor. An index wins only where there is no single file."""
    if (folder / SINGLE).is_file():
        with _open(folder / SINGLE) as file:
            return {name: folder / SINGLE for name in file.keys()}  # noqa: SIM118  (not a dict)
    if not (folder / INDEX).is_file():
        raise CheckpointError(f"{folder}: neither {SINGLE} nor {INDEX} there; is the download complete?")
    weight_map = read_json(folder / INDEX).get("weight_map")
    if not isinstance(weight_map, dict):
        raise CheckpointError(f"{folder / INDEX}: no weight_map")
    shards = sorted(set(weight_map.values()))
    absent = [s for s in shards if not (folder / s).is_file()]
    if absent:
        raise CheckpointError(f"{folder}: shard {absent[0]} is missing ({len(absent)} of {len(shards)} are)")
    return {name: folder / shard for name, shard in weight_map.items()}


def _fill_from(
    path: Path,
    names: list[str],
    wanted: dict[str, nn.Parameter],
    model: SdarModel,
    device: torch.device,
    dtype: torch.dtype,
) -> None:
    with _open(path) as file:
        present = set(file.keys())
        for name in names:
            if name not in present:
                raise CheckpointError(f"{path}: the index says {name} is here, it is not")
            tensor: Tensor = file.get_tensor(name)
            if tensor.shape != wanted[name].shape:
                raise CheckpointError(
                    f"{path}: {name} has shape {list(tensor.shape)}, config.json asks for {list(wanted[name].shape)}"
                )
            if tensor.dtype == torch.int8:
                if name + packing.SCALE_SUFFIX not in present:
                    raise CheckpointError(f"{path}: {name} is int8 without {name}{packing.SCALE_SUFFIX}")
                scale = file.get_tensor(name + packing.SCALE_SUFFIX)
                tensor = packing.dequantize_rows(tensor.to(device), scale.to(device))
            module_name, _, attribute = name.rpartition(".")
            # A copy also where nothing changes: the tensor is the file itself, and one that is written anew in place
            # would take this process down.
            tensor = tensor.to(device=device, dtype=dtype, copy=True)
            parameter = nn.Parameter(tensor, requires_grad=False)
            setattr(model.get_submodule(module_name), attribute, parameter)


def _open(path: Path) -> safe_open:
    try:
        return safe_open(path, framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: not a readable safetensors file: {error}") from None

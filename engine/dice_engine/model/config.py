"""The shape of an SDAR network, read from a checkpoint's ``config.json``."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

ARCHITECTURE = "SDARForCausalLM"
DEFAULT_BLOCK_SIZE = 4
DEFAULT_MASK_TOKEN_ID = 151669


class CheckpointError(Exception):
    """A checkpoint folder that cannot be used: one line that says what is wrong and where."""


@dataclass(frozen=True)
class SdarConfig:
    """Sizes of an SDAR network (a Qwen3 decoder, bidirectional inside blocks) and its special token ids.

    Field names are those of the published ``config.json``. ``dice`` holds this project's own metadata, such as
    ``{"format": "fim"}``; ``quantization`` says how the weights on disk are packed (see ``model.quantize``).
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int = 128
    rope_theta: float = 1e6
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 32768
    tie_word_embeddings: bool = False
    block_size: int = DEFAULT_BLOCK_SIZE
    mask_token_id: int = DEFAULT_MASK_TOKEN_ID
    eos_token_ids: tuple[int, ...] = ()
    """Every id that ends a reply."""
    pad_token_id: int | None = None
    initializer_range: float = 0.02
    dtype: str | None = None
    """The dtype the weights were saved in: ``float32``, ``bfloat16`` or ``float16``."""
    dice: dict[str, Any] = field(default_factory=dict)
    quantization: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.num_key_value_heads < 1 or self.num_attention_heads % self.num_key_value_heads:
            raise CheckpointError(
                f"config.json: num_attention_heads ({self.num_attention_heads}) is not a multiple of "
                f"num_key_value_heads ({self.num_key_value_heads})"
            )
        if self.block_size < 1:
            raise CheckpointError(f"config.json: block_size must be at least 1, it is {self.block_size}")
        if not 0 <= self.mask_token_id < self.vocab_size:
            raise CheckpointError(
                f"config.json: mask_token_id {self.mask_token_id} is outside the vocabulary of {self.vocab_size}"
            )

    @property
    def format(self) -> str:
        """The prompt format: ``fim`` for checkpoints of this project's recipe, else ``chat``."""
        return str(self.dice.get("format", "chat"))

    @staticmethod
    def from_json(data: dict[str, Any]) -> SdarConfig:
        """Read a published or saved config. Missing ``block_size`` and ``mask_token_id`` get their defaults."""
        architectures = data.get("architectures") or []
        if ARCHITECTURE not in architectures and data.get("model_type") != "sdar":
            found = ", ".join(architectures) or data.get("model_type") or "none"
            raise CheckpointError(
                f"config.json: the architecture is {found}, this engine runs {ARCHITECTURE} only"
            )
        rope = data.get("rope_parameters") or {}
        scaling = data.get("rope_scaling") or (
            rope if rope.get("rope_type", "default") != "default" else None
        )
        if scaling:
            raise CheckpointError(f"config.json: rope scaling is not supported: {scaling}")
        known = {f.name for f in fields(SdarConfig)}
        values = {k: v for k, v in data.items() if k in known and v is not None}
        if "rope_theta" in rope:
            values["rope_theta"] = rope["rope_theta"]
        values.setdefault("dtype", data.get("torch_dtype"))
        eos = data.get("eos_token_id")
        values["eos_token_ids"] = tuple(eos) if isinstance(eos, list) else () if eos is None else (eos,)
        missing = [f for f in _REQUIRED if f not in values]
        if missing:
            raise CheckpointError(f"config.json: missing {', '.join(missing)}")
        return SdarConfig(**values)

    def to_json(self) -> dict[str, Any]:
        """The same as a published ``config.json``: what ``from_json`` reads back to an equal config."""
        data = {k: v for k, v in asdict(self).items() if v is not None}
        eos = data.pop("eos_token_ids")
        if eos:
            data["eos_token_id"] = list(eos) if len(eos) > 1 else eos[0]
        if not data["dice"]:
            del data["dice"]
        return {"architectures": [ARCHITECTURE], "model_type": "sdar", **data}

    @staticmethod
    def load(folder: Path) -> SdarConfig:
        """Read ``config.json`` of ``folder``; stop ids also come from ``generation_config.json``."""
        data = read_json(folder / "config.json")
        generation = folder / "generation_config.json"
        if generation.is_file():
            more = read_json(generation).get("eos_token_id")
            ids = [*_ids(data.get("eos_token_id")), *_ids(more)]
            data["eos_token_id"] = list(dict.fromkeys(ids)) or None
        try:
            return SdarConfig.from_json(data)
        except CheckpointError as error:
            raise CheckpointError(f"{folder}: {error}") from None
        except TypeError as error:
            raise CheckpointError(f"{folder}: config.json: {error}") from None


_REQUIRED = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from ``path``; raises :class:`CheckpointError` that names the file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path.parent}: no {path.name} there; is it a checkpoint folder?") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from None
    if not isinstance(data, dict):
        raise CheckpointError(f"{path}: not a JSON object")
    return data


def _ids(value: Any) -> list[int]:
    return [] if value is None else list(value) if isinstance(value, list) else [value]

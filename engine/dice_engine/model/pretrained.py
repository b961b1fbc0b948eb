"""SDAR for transformers: ``AutoConfig``, ``AutoModelForCausalLM`` and ``AutoTokenizer`` read our checkpoint folders.

The functions ``register_*`` are called by ``dice_engine.registration`` when transformers is imported.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers.configuration_utils import PretrainedConfig

from dice_engine.model.config import SdarConfig
from dice_engine.model.network import SdarModel, staircase_mask

if TYPE_CHECKING:
    from dice_engine.decode.generation import Generation


class SDARConfig(PretrainedConfig):
    """The published ``config.json`` as transformers sees it; :attr:`sdar` is the same, checked."""

    model_type = "sdar"

    @property
    def sdar(self) -> SdarConfig:
        return SdarConfig.from_json(self.to_dict())


def register_config() -> None:
    from transformers.models.auto.configuration_auto import AutoConfig

    AutoConfig.register(SDARConfig.model_type, SDARConfig, exist_ok=True)


def register_tokenizer() -> None:
    from transformers import PreTrainedTokenizerFast
    from transformers.models.auto.tokenization_auto import AutoTokenizer

    AutoTokenizer.register(SDARConfig, fast_tokenizer_class=PreTrainedTokenizerFast, exist_ok=True)


def register_model() -> None:
    from transformers.modeling_outputs import CausalLMOutput
    from transformers.modeling_utils import PreTrainedModel
    from transformers.models.auto.modeling_auto import AutoModelForCausalLM

    class SDARForCausalLM(PreTrainedModel):
        """``SdarModel`` with the interface of transformers; parameters have the published names in both."""

        config_class = SDARConfig
        base_model_prefix = "model"

        def __init__(self, config: SDARConfig) -> None:
            super().__init__(config)
            self._adopt(SdarModel(config.sdar))

        def _adopt(self, network: SdarModel) -> None:
            self.model, self.lm_head = network.model, network.lm_head
            self.__dict__["network"] = network  # not a submodule: its parameters are listed already
            self.config.tie_word_embeddings = network.config.tie_word_embeddings

        @classmethod
        def from_pretrained(  # type: ignore[override]
            cls,
            pretrained_model_name_or_path: str,
            *args: Any,
            config: SDARConfig | None = None,
            dtype: Any = None,
            torch_dtype: Any = None,
            device_map: Any = None,
            **options: Any,
        ) -> SDARForCausalLM:
            """Our own loader (sharded, tied, quantised, streamed): ``dtype`` None or ``auto`` is the checkpoint's,
            ``device_map`` one device for the whole network."""
            from dice_engine.loading import load
            from dice_engine.model.weights import DTYPES

            chosen = dtype if dtype is not None else torch_dtype
            config = config or SDARConfig.from_pretrained(pretrained_model_name_or_path)
            if chosen in (None, "auto"):
                chosen = DTYPES.get(str(config.sdar.dtype), torch.float32)
            device = device_map.get("", "cpu") if isinstance(device_map, dict) else device_map or "cpu"
            network = load(Path(pretrained_model_name_or_path), str(device), chosen)
            with torch.device("meta"):
                model = cls(config)
            model._adopt(network.requires_grad_(True))
            return model.eval()

        def save_pretrained(self, save_directory: str | Path, **_: Any) -> None:  # type: ignore[override]
            """``config.json`` and ``model.safetensors`` as :func:`dice_engine.load` reads them."""
            from dice_engine.model.weights import save_folder

            save_folder(self.__dict__["network"], save_directory)

        def get_input_embeddings(self) -> torch.nn.Module:
            return self.model.embed_tokens

        def get_output_embeddings(self) -> torch.nn.Module:
            return self.lm_head

        def forward(
            self,
            input_ids: Tensor,
            attention_mask: Tensor | None = None,
            position_ids: Tensor | None = None,
            block_size: int | None = None,
            **_: Any,
        ) -> CausalLMOutput:
            """Logits in place under the staircase mask; ``attention_mask [batch, n]`` hides padding."""
            network: SdarModel = self.__dict__["network"]
            mask = None
            if attention_mask is not None and not bool(attention_mask.all()):
                size = block_size or network.config.block_size
                stairs = staircase_mask(input_ids.shape[1], size, input_ids.device)
                mask = stairs & attention_mask.bool()[:, None, None, :]
            logits = network(input_ids, block_size=block_size, positions=position_ids, attend=mask)
            return CausalLMOutput(logits=logits)  # type: ignore[arg-type]

        def generate(self, input_ids: Tensor, **options: Any) -> Generation:  # type: ignore[override]
            """Block decoding: arguments and result of :func:`dice_engine.decode.generation.generate`."""
            return self.__dict__["network"].generate(input_ids, **options)

    AutoModelForCausalLM.register(SDARConfig, SDARForCausalLM, exist_ok=True)

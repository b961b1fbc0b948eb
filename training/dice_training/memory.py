"""How much memory a GPU needs for a recipe, by counting what is kept.

Bytes a number: weights, gradients and averages in float32, AdamW's two moments in float32 too (16 a trained weight
with a gradient, as in ZeRO, arXiv 1910.02054, which also has the division by the number of GPUs: its stage 3 is
FSDP2). Activations are those that a compiled layer keeps for its backward pass; arXiv 2205.05198 counts so for another
layer.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from math import ceil

from dice_engine.model.config import SdarConfig

from dice_training.forward import head_chunk
from dice_training.recipe import SftRecipe

OTHER = 2 << 30
"""CUDA's context, NCCL's buffers, the kernels' workspaces and what the allocator cannot use."""


@dataclass(frozen=True)
class Sizes:
    """Numbers of weights: of one layer, of what is in no layer, of one layer's adapters, of its matrices."""

    layer: int
    rest: int
    adapters: int
    matrices: int

    @staticmethod
    def of(config: SdarConfig, lora_rank: int) -> Sizes:
        hidden, inner = config.hidden_size, config.intermediate_size
        queries, keys = (
            config.num_attention_heads * config.head_dim,
            config.num_key_value_heads * config.head_dim,
        )
        shapes = [(hidden, queries), (hidden, keys), (hidden, keys), (queries, hidden)]
        shapes += [(hidden, inner), (hidden, inner), (inner, hidden)]
        matrices = sum(a * b for a, b in shapes)
        norms = 2 * hidden + 2 * config.head_dim
        tables = 1 if config.tie_word_embeddings else 2
        return Sizes(
            layer=matrices + norms,
            rest=tables * config.vocab_size * hidden + hidden,
            adapters=lora_rank * sum(a + b for a, b in shapes),
            matrices=matrices,
        )

    def total(self, layers: int) -> int:
        return layers * self.layer + self.rest

    def trained(self, layers: int) -> int:
        return layers * self.adapters or self.total(layers)


@dataclass(frozen=True)
class Memory:
    """Bytes on one GPU (``host``: in the memory of its host, for this GPU's process)."""

    weights: int
    optimizer: int
    average: int
    gradients: int
    whole: int
    """Weights and gradients in other forms than those that are kept: layers that are gathered, or copied to bf16."""
    activations: int
    logits: int
    other: int
    host: int

    @property
    def total(self) -> int:
        return sum(asdict(self).values()) - self.host


def memory(config: SdarConfig, recipe: SftRecipe, gpus: int, hidden: int) -> Memory:
    """At the moment that needs most: when the forward pass turns into the backward pass, all activations there and the
    gradients only of batches before; or at the end of the backward pass. ``hidden``: tokens of a batch that go through
    the head.
    """
    sizes = Sizes.of(config, recipe.lora_rank)
    layers, parts = config.num_hidden_layers, gpus if recipe.shard else 1
    trained = sizes.trained(layers)
    frozen = sizes.total(layers) if recipe.lora_rank else 0
    moments = 8 * trained
    if recipe.optimizer == "muon":  # one momentum for the matrices of the layers
        moments -= 4 * layers * (sizes.adapters if recipe.lora_rank else sizes.matrices)
    kept = {
        "weights": (4 * trained + 2 * frozen) // parts,
        "optimizer": moments // parts,
        "average": 4 * trained // parts if recipe.ema else 0,
    }
    gradients = 4 * trained // parts
    chunks = ceil(hidden / head_chunk(config.vocab_size))
    host = 0
    if recipe.offload:
        host, kept, gradients = sum(kept.values()) + gradients, dict.fromkeys(kept, 0), 0
    forward, backward = _whole(sizes, config, recipe, gpus, trained, chunks)
    turned = Memory(
        **kept,
        gradients=gradients if recipe.accumulate > gpus else 0,
        whole=forward,
        activations=activations(config, recipe),
        logits=_logits(config, chunks),
        other=OTHER,
        host=host,
    )
    ended = replace(
        turned,
        gradients=gradients,
        whole=forward + backward,
        activations=activations(replace(config, num_hidden_layers=1), recipe),
        logits=0,
    )
    return max(turned, ended, key=lambda moment: moment.total)


def _whole(
    sizes: Sizes, config: SdarConfig, recipe: SftRecipe, gpus: int, trained: int, chunks: int
) -> tuple[int, int]:
    """While the passes turn, and what the backward pass adds by its end.

    Sharded: two layers in bf16, the one that runs and the next, and the rest, which stays whole all through a step;
    then the gradients of the largest part in bf16, and in float32 for their sum over the GPUs. Otherwise the copies in
    bf16 that products are made of: kept with a layer's activations, and with each chunk of the logits the head's; then,
    where there are several GPUs, all gradients once more, in one row.
    """
    learning = sizes.adapters if recipe.lora_rank else sizes.layer
    if recipe.shard:
        rest = 0 if recipe.lora_rank else sizes.rest
        return 2 * (2 * (sizes.layer + sizes.adapters) + sizes.rest), (2 + 4) * max(learning, rest)
    copied = sizes.adapters if recipe.lora_rank else sizes.matrices
    head = 0 if recipe.lora_rank else config.vocab_size * config.hidden_size
    layers = 1 if recipe.checkpointing else config.num_hidden_layers
    return 2 * (layers * copied + chunks * head), 4 * trained if gpus > 1 else 0


def activations(config: SdarConfig, recipe: SftRecipe) -> int:
    """Of all layers, in bf16: a layer's input, the inputs of its two norms' products, queries, keys and values (queries
    and keys before their norms as well), attention's output twice, gate, up and their product; in float32 the scale of
    each norm and a number a head. With checkpointing the layers' inputs, and one layer's rest.

    Counted: ``tests/unit/test_plan.py`` does it again.
    """
    width, inner = config.hidden_size, config.intermediate_size
    heads, key_heads = config.num_attention_heads, config.num_key_value_heads
    halves = 3 * width + config.head_dim * (4 * heads + 3 * key_heads) + 3 * inner
    if recipe.lora_rank:  # what the first factors of the adapters give
        halves += width + 7 * recipe.lora_rank
    layer = 2 * halves + 4 * (2 + 2 * heads + key_heads)
    layers = config.num_hidden_layers
    a_position = 2 * width * layers + layer if recipe.checkpointing else layer * layers
    return recipe.batch_rows * recipe.row_length * a_position


def _logits(config: SdarConfig, chunks: int) -> int:
    """In bf16, kept for the backward pass, and of one chunk in float32 with their gradient."""
    return config.vocab_size * head_chunk(config.vocab_size) * (2 * chunks + 4 + 4)

"""The network against formulas written down a second time, and the ways attention is passed in."""

from __future__ import annotations

import math

import pytest
import torch
from dice_engine.model.config import SdarConfig
from dice_engine.model.network import SdarModel, staircase_mask
from torch import Tensor

TINY = SdarConfig(
    vocab_size=97,
    hidden_size=48,
    intermediate_size=80,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    block_size=4,
    mask_token_id=1,
    initializer_range=0.2,
)


def tiny_model(seed: int = 0, **changes: object) -> SdarModel:
    from dataclasses import replace

    model = SdarModel(replace(TINY, **changes))  # type: ignore[arg-type]
    model.reset_parameters(torch.Generator().manual_seed(seed))
    with torch.no_grad():  # norms away from one, so that a forgotten weight shows
        for name, p in model.named_parameters():
            if name.endswith("norm.weight"):
                p.uniform_(0.5, 1.5, generator=torch.Generator().manual_seed(len(name)))
    return model.eval()


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def reference_logits(model: SdarModel, ids: list[int], block: int) -> Tensor:
    """One sequence, one head at a time, from the state dict and the text of the architecture alone."""
    w, c = model.state_dict(), model.config
    n, d, group = len(ids), c.head_dim, c.num_attention_heads // c.num_key_value_heads
    x = w["model.embed_tokens.weight"][ids]
    inverse = torch.tensor([c.rope_theta ** (-2 * i / d) for i in range(d // 2)])

    def rope(v: Tensor) -> Tensor:
        out = torch.empty_like(v)
        for p in range(n):
            for i in range(d // 2):
                angle = p * inverse[i]
                a, b = v[p, i], v[p, i + d // 2]
                out[p, i] = a * torch.cos(angle) - b * torch.sin(angle)
                out[p, i + d // 2] = b * torch.cos(angle) + a * torch.sin(angle)
        return out

    for layer in range(c.num_hidden_layers):
        at = f"model.layers.{layer}."
        h = rms(x, w[at + "input_layernorm.weight"], c.rms_norm_eps)
        q, k, v = (h @ w[f"{at}self_attn.{p}_proj.weight"].T for p in "qkv")
        heads = []
        for head in range(c.num_attention_heads):
            g = head // group
            qh = rope(rms(q[:, head * d : head * d + d], w[at + "self_attn.q_norm.weight"], c.rms_norm_eps))
            kh = rope(rms(k[:, g * d : g * d + d], w[at + "self_attn.k_norm.weight"], c.rms_norm_eps))
            score = qh @ kh.T / math.sqrt(d)
            for i in range(n):
                for j in range(n):
                    if j // block > i // block:
                        score[i, j] = -math.inf
            heads.append(score.softmax(-1) @ v[:, g * d : g * d + d])
        x = x + torch.cat(heads, -1) @ w[at + "self_attn.o_proj.weight"].T
        h = rms(x, w[at + "post_attention_layernorm.weight"], c.rms_norm_eps)
        gate, up = h @ w[at + "mlp.gate_proj.weight"].T, h @ w[at + "mlp.up_proj.weight"].T
        x = x + (gate * torch.sigmoid(gate) * up) @ w[at + "mlp.down_proj.weight"].T
    return rms(x, w["model.norm.weight"], c.rms_norm_eps) @ w["lm_head.weight"].T


@pytest.mark.parametrize("block", [1, 3, 4, 16])
@pytest.mark.parametrize("tied", [False, True])
def test_logits_follow_the_formulas(block: int, tied: bool) -> None:
    model = tiny_model(tie_word_embeddings=tied)
    ids = torch.randint(0, 97, (2, 11), generator=torch.Generator().manual_seed(block))
    with torch.no_grad():
        logits = model(ids, block_size=block)
        expected = torch.stack([reference_logits(model, row.tolist(), block) for row in ids])
    assert logits.shape == (2, 11, 97)
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)


def test_published_names_and_head() -> None:
    names = set(tiny_model().state_dict())
    layer = {
        f"model.layers.0.{n}.weight"
        for n in (
            *("input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm"),
            *("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
            *("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
        )
    }
    assert {n for n in names if ".layers.0." in n} == layer
    assert names - {n for n in names if ".layers." in n} == {
        "model.embed_tokens.weight",
        "model.norm.weight",
        "lm_head.weight",
    }


def test_backbone_and_head_give_the_logits_of_forward() -> None:
    model = tiny_model()
    ids = torch.arange(9)[None]
    with torch.no_grad():
        hidden = model.backbone(ids)
        torch.testing.assert_close(model.head(hidden[:, 3:5]), model(ids)[:, 3:5])


def test_training_layout_equals_block_by_block_decoding_input() -> None:
    """[noisy | clean] with repeated positions gives, at a noisy block, what a plain forward of (clean blocks, noisy
    block) gives there."""
    model, n, b = tiny_model(), 12, 4
    clean = torch.randint(2, 97, (n,), generator=torch.Generator().manual_seed(3))
    noisy = clean.clone()
    noisy[[1, 4, 6, 7, 8, 11]] = 1
    block, half = torch.arange(n).repeat(2) // b, torch.arange(2 * n) >= n
    same, before, up_to = (
        block[:, None] == block[None],
        block[:, None] > block[None],
        block[:, None] >= block[None],
    )
    cq, ck = half[:, None], half[None]
    allow = (~cq & ~ck & same) | (~cq & ck & before) | (cq & ck & up_to)
    with torch.no_grad():
        logits = model(torch.cat((noisy, clean))[None], positions=torch.arange(n).repeat(2), attend=allow)[0]
        for k in range(n // b):
            at = slice(k * b, k * b + b)
            plain = model(torch.cat((clean[: k * b], noisy[at]))[None])[0, at]
            torch.testing.assert_close(logits[at], plain, rtol=1e-4, atol=1e-4)


def test_gradients_reach_every_parameter() -> None:
    model = tiny_model().train()
    model(torch.arange(8)[None]).logsumexp(-1).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def test_bfloat16_keeps_rope_and_norms_wide() -> None:
    model = tiny_model()
    ids = torch.randint(0, 97, (1, 40), generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        wide, narrow = model(ids), model.to(torch.bfloat16)(ids)
    assert narrow.dtype == torch.bfloat16
    assert (wide - narrow.float()).abs().mean() < 0.05 * wide.abs().mean()


def test_staircase_mask() -> None:
    mask = staircase_mask(5, 2)
    assert mask.int().tolist() == [
        [1, 1, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 1, 0],
        [1, 1, 1, 1, 0],
        [1, 1, 1, 1, 1],
    ]

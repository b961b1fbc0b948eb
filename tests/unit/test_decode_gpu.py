"""Decoding on a GPU: passes captured in CUDA graphs give what the same passes give on the CPU, in float32."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from dice_engine.decode.batch import BatchDecoder
from dice_engine.decode.forks import forks
from dice_engine.decode.jobs import DecodeRequest
from dice_engine.decode.rows import LIVE
from dice_engine.decode.sampling import Needs
from dice_engine.decode.strategies import STRATEGIES, DecodeOptions
from test_decode import decode_together, make_model, mixed_requests, prompt_of, random_rows, run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU here"),
]


@pytest.mark.parametrize(("block", "late"), [(1, 3), (3, 0), (4, 3), (16, 0)])
def test_graphs_equal_eager_and_the_cpu(block: int, late: int) -> None:
    model, requests = make_model(12), mixed_requests(make_model(12))
    expected = decode_together(model, requests, block_size=block)
    model = model.to("cuda")
    assert decode_together(model, requests, late, block_size=block, fused=False) == expected
    assert decode_together(model, requests, late, block_size=block, static=False) == expected


@pytest.mark.parametrize(("block", "ours"), [(1, True), (3, False), (4, True), (16, True)])
def test_fused_kernels_equal_the_network(block: int, ours: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from dice_engine.decode import fused, products

    if ours:
        monkeypatch.setattr(products, "OURS", (torch.float32,))
    # Attention in 4, 2 and 1 parts: every number is a program to compile.
    monkeypatch.setattr(fused, "_PROGRAMS", 8)
    model, requests = make_model(12), mixed_requests(make_model(12))
    expected = decode_together(model, requests, block_size=block)
    assert decode_together(model.to("cuda"), requests, 2, block_size=block) == expected


@pytest.mark.parametrize("m", [1, 8, 33])
@pytest.mark.parametrize("kind", [(True, False, False), (True, True, False), (False, False, True)])
def test_our_products_equal_the_library(m: int, kind: tuple[bool, bool, bool]) -> None:
    from dice_engine.decode.products import TILES, Kind, Products

    norm, gated, add = kind
    n, k = 1000, 720
    generator = torch.Generator("cuda").manual_seed(m)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, device="cuda").bfloat16()

    matrices, norms = [random(n * (1 + gated), k) / 27 for _ in range(2)], [random(k) for _ in range(2)]
    products = Products(Kind("test", norm, gated, add), matrices, norms if norm else [], 1e-6)
    x, more = random(m, k), random(m, n) if add else None
    expected = products._library(1, x, more).float()
    for tile in TILES if m == 8 else TILES[:1]:
        if products._fits(x, more, tile):
            torch.testing.assert_close(
                products._ours(1, x, more, tile).float(), expected, atol=0.05, rtol=0.02
            )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_generate_on_the_gpu_equals_the_cpu(strategy: str) -> None:
    common: dict[str, Any] = dict(strategy=strategy, steps=3, temperature=0.9, n=6, seed=5, threshold=0.3)
    model, prompt = make_model(3), prompt_of(150)
    expected = model.generate(prompt, 60, **common)
    gpu = make_model(3).to("cuda")
    for _ in range(2):  # graphs captured, then replayed
        got = gpu.generate(prompt, 60, **common)
        assert (got.tokens, got.step_map) == (expected.tokens, expected.step_map)


@pytest.mark.parametrize(("size", "vocab"), [(1, 61), (3, 5000), (4, 151936), (16, 61), (64, 5000)])
def test_fused_unmasking_equals_its_twin(size: int, vocab: int) -> None:
    from dice_engine.decode import fused_step

    ours, twin = (random_rows(size, 7, vocab, "cuda") for _ in range(2))
    for step in range(4):
        generator = torch.Generator("cuda").manual_seed(step)
        logits = torch.randn(7, size, vocab, generator=generator, device="cuda") * 4
        needs = Needs(sampling=True, filters=False, entropy=True)
        twin.unmask(logits.clone(), needs)
        fused_step.unmask(ours, logits.view(7 * size, vocab), needs)
        live = twin.record[:, LIVE] > 0
        assert torch.equal(ours.record[live], twin.record[live]) and torch.equal(ours.whole, twin.whole)


@pytest.mark.parametrize("block", [1, 4, 16])
def test_forks_equal_those_of_the_cpu(block: int) -> None:
    model, prompt, found = make_model(12), prompt_of(70), []
    for device in ("cpu", "cuda"):
        decoder = BatchDecoder(model.to(device), block, pages=64)
        job = decoder.submit(DecodeRequest(prompt, DecodeOptions(90), [0], [0.0], [], keep=True))
        list(run(decoder))
        reply = job.replies[0]
        found.append((reply.tokens, forks(model, decoder.pool, prompt, reply.tokens, reply.step_map, block)))
    (tokens, ours), (same, theirs) = found
    assert tokens == same
    assert [(fork.place, fork.token) for fork in ours] == [(fork.place, fork.token) for fork in theirs]
    assert [fork.logp for fork in ours] == pytest.approx([fork.logp for fork in theirs], abs=1e-3)

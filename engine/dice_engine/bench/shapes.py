"""The published sizes with random weights: how near decoding comes to the time it takes to read the weights once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from dice_engine.bench.eager import decode_plainly
from dice_engine.decode.batch import BatchDecoder, decode_all
from dice_engine.decode.jobs import DecodeRequest
from dice_engine.decode.pages import PagePool, page_positions
from dice_engine.decode.strategies import DecodeOptions
from dice_engine.model.config import SdarConfig
from dice_engine.model.network import SdarModel

SHAPES = {
    "1.7B": (28, 2048, 6144, 16),
    "4B": (36, 2560, 9728, 32),
    "8B": (36, 4096, 12288, 32),
}
"""Layers, hidden size, intermediate size and query heads; the rest is the same in all."""
CONTEXTS = (1024, 4096)
BATCHES = (8, 32, 128)
NEW_TOKENS = 64
PREFILL = 1500
CANDIDATES = 16
PREFILL_ROUNDS = 5


@dataclass(frozen=True)
class Speed:
    """``seconds`` of decoding without the prefill; ``forwards`` passes of the network in it."""

    seconds: float
    forwards: int
    tokens: int

    def to_json(self) -> dict[str, Any]:
        return {
            "ms_per_forward": round(1000 * self.seconds / self.forwards, 3),
            "tokens_per_second": round(self.tokens / self.seconds, 1),
        }


def config_of(shape: str) -> SdarConfig:
    layers, hidden, intermediate, heads = SHAPES[shape]
    return SdarConfig(
        vocab_size=151936,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=8,
        eos_token_ids=(151643, 151645),
    )


def random_model(config: SdarConfig, device: str, dtype: torch.dtype = torch.bfloat16) -> SdarModel:
    """A network with random weights that are made where they stay."""
    with torch.device("meta"):
        model = SdarModel(config)
    model = model.to(dtype).to_empty(device=device)
    model.tie_weights()
    model.reset_parameters()
    return model.eval().requires_grad_(False)


def copy_bandwidth(device: str) -> float:
    """Bytes a second of a large copy, read and written both counted."""
    source = torch.empty(2**31, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * source.numel() / min(_timed(lambda: target.copy_(source)) for _ in range(5))


def streamed_bytes(model: SdarModel) -> int:
    """What a pass must read of the weights: all but the embedding, of which it gathers a few rows."""
    head = model.lm_head.weight
    rest = [p for n, p in model.named_parameters() if not n.startswith(("model.embed_tokens", "lm_head"))]
    return sum(p.numel() * p.element_size() for p in [*rest, head])


def measure_shape(shape: str, bandwidth: float, device: str, report: Callable[[str], None]) -> dict[str, Any]:
    """Decoding with the static strategy and a step a token, as the published figures were taken."""
    model = random_model(config_of(shape), device)
    floor = streamed_bytes(model) / bandwidth
    decoder = BatchDecoder(model, pages=_pages(model), max_rows=max(BATCHES))
    result: dict[str, Any] = {"shape": shape, "floor_ms": round(1000 * floor, 3), "contexts": []}
    for context in CONTEXTS:
        ours = _decode(decoder, context, 1)
        plain = _plain(model, context)
        line = {
            "context": context,
            **ours.to_json(),
            "ratio": round(ours.seconds / ours.forwards / floor, 2),
            "baseline": {**plain.to_json(), "ratio": round(plain.seconds / plain.forwards / floor, 2)},
        }
        result["contexts"].append(line)
        report(
            f"{shape:5} context {context}: {line['ms_per_forward']:7.3f} ms a forward, {line['ratio']:5.2f}x the floor "
            f"of {1000 * floor:.2f} ms, {line['tokens_per_second']:7.1f} tokens/s; plain eager "
            f"{line['baseline']['ms_per_forward']:7.2f} ms, {line['baseline']['ratio']:5.1f}x, "
            f"{line['baseline']['tokens_per_second']:.1f} tokens/s"
        )
    result["batches"] = []
    for batch in BATCHES:
        speed = _decode(decoder, CONTEXTS[0], batch)
        result["batches"].append({"batch": batch, **speed.to_json()})
        report(
            f"{shape:5} batch {batch:3}, context {CONTEXTS[0]}: {result['batches'][-1]['ms_per_forward']:7.2f} ms a "
            f"forward, {speed.tokens / speed.seconds:8.0f} tokens/s"
        )
    result["prefill"] = _prefill(decoder)
    p = result["prefill"]
    report(
        f"{shape:5} prefill of {PREFILL} tokens: {p['one_ms']:.1f} ms for one candidate, {p['many_ms']:.1f} ms for "
        f"{CANDIDATES}, {p['again_ms']:.1f} ms for a request that shares 95 % of it"
    )
    return result


def _decode(decoder: BatchDecoder, context: int, batch: int) -> Speed:
    """The second of two runs of ``batch`` different prompts: their pages are known by then, so all begin at once."""
    options = DecodeOptions(NEW_TOKENS, "low_confidence_static")
    speed = Speed(0, 0, 0)
    for _ in range(2):
        jobs = [
            decoder.submit(DecodeRequest(_prompt(context, i), options, [i], [0.0], [])) for i in range(batch)
        ]
        while any(job.joined == 0 for job in jobs):
            decoder.step()
        _wait()
        before = max(job.forward_count for job in jobs)
        written = sum(len(job.replies[0].tokens) for job in jobs)
        start = time.perf_counter()
        decode_all(decoder, jobs)
        _wait()
        tokens = sum(len(job.replies[0].tokens) for job in jobs) - written
        speed = Speed(time.perf_counter() - start, max(job.forward_count for job in jobs) - before, tokens)
    return speed


def _plain(model: SdarModel, context: int) -> Speed:
    prompt = torch.tensor([_prompt(context, 0)], device=model.device)
    decode_plainly(model, prompt, model.config.block_size)
    _, seconds, forwards = decode_plainly(model, prompt, NEW_TOKENS // 2)
    return Speed(seconds, forwards, NEW_TOKENS // 2)


def _prefill(decoder: BatchDecoder) -> dict[str, float]:
    """Milliseconds from a request until its candidates can begin: one, many, and one of a prompt that begins like one
    before. Medians of prompts that differ, after a round in which graphs are captured."""
    rounds = [_prefill_round(decoder, 1000 * number) for number in range(1 + PREFILL_ROUNDS)]
    one, many, again = (1000 * median(times) for times in zip(*rounds[1:], strict=True))
    return {"one_ms": round(one, 2), "many_ms": round(many, 2), "again_ms": round(again, 2)}


def _prefill_round(decoder: BatchDecoder, seed: int) -> tuple[float, float, float]:
    options = DecodeOptions(decoder.size, "low_confidence_static", steps=1)

    def until_ready(prompt: list[int], n: int) -> float:
        job = decoder.submit(DecodeRequest(prompt, options, range(n), [0.0] * n, []))
        seconds = _timed(decoder.admit)
        decode_all(decoder, [job])
        return seconds

    base, shared = _prompt(PREFILL, seed), PREFILL * 95 // 100
    changed = [*base[:shared], *_prompt(PREFILL - shared, seed + 1)]
    one = until_ready(base, 1)
    return one, until_ready(_prompt(PREFILL, seed + 2), CANDIDATES), until_ready(changed, 1)


def _pages(model: SdarModel) -> int:
    size = model.config.block_size
    longest = max(CONTEXTS[0] * max(BATCHES) * 2, CONTEXTS[1] * 4) + NEW_TOKENS * max(BATCHES)
    wanted = longest // page_positions(size) + 2 * max(BATCHES)
    if model.device.type != "cuda":
        return wanted
    return min(wanted, int(0.8 * torch.cuda.mem_get_info()[0]) // PagePool.bytes_per_page(model, size))


def _prompt(length: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1000, 150000, (length,), generator=generator).tolist()


def _timed(work: Callable[[], object]) -> float:
    _wait()
    start = time.perf_counter()
    work()
    _wait()
    return time.perf_counter() - start


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()

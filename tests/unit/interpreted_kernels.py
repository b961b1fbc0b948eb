"""The Triton kernels of decoding under Triton's interpreter, against their twins: run by test_kernels_interpreted.py.

    TRITON_INTERPRET=1 python interpreted_kernels.py {products,passes,prefill,unmask,decode}

float16 and float32: the interpreter multiplies the bits of bfloat16.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from triton.runtime import interpreter

sys.path.insert(0, str(Path(__file__).parent))
from dice_engine.decode import fused, fused_step, prefill, products
from dice_engine.decode.jobs import DecodeRequest
from dice_engine.decode.pages import PagePool
from dice_engine.decode.passes import Passes, Shape
from dice_engine.decode.products import TILES, Kind, Products
from dice_engine.decode.rows import LIVE, NewRow, Rows
from dice_engine.decode.sampling import Needs
from dice_engine.decode.strategies import DecodeOptions
from test_decode import decode_together, make_model, prompt_of, random_rows


def keep_masks_narrow() -> None:
    """The interpreter makes an int64 of a scalar truth value that meets a block of them, and refuses it as a mask."""
    builder = interpreter.InterpreterBuilder
    load, store = builder.create_masked_load, builder.create_masked_store

    def narrow(mask: Any) -> Any:
        return interpreter.TensorHandle(mask.data.astype(np.bool_), mask.dtype)

    builder.create_masked_load = lambda self, at, mask, *rest: load(self, at, narrow(mask), *rest)
    builder.create_masked_store = lambda self, at, value, mask, *rest: store(
        self, at, value, narrow(mask), *rest
    )


def refuse_unknown_arguments() -> None:
    """As on a GPU: the interpreter passes over what a kernel does not take."""
    run = interpreter.GridExecutor.__call__

    def checked(self: Any, *args: Any, **named: Any) -> None:
        unknown = named.keys() - set(self.arg_names) - {"num_warps", "num_stages"}
        assert not unknown, f"{self.fn.__name__} takes no {', '.join(unknown)}"
        run(self, *args, **named)

    interpreter.GridExecutor.__call__ = checked


def check_products() -> None:
    n, k = 72, 176
    for m, tile, (norm, gated, add) in (
        (1, TILES[0], (True, True, False)),
        (33, TILES[1], (True, False, False)),
        (8, TILES[3], (False, False, True)),
        (4, TILES[2]._replace(inside=False), (True, False, False)),
    ):
        generator = torch.Generator().manual_seed(m)

        def random(*shape: int, generator: torch.Generator = generator) -> torch.Tensor:
            return torch.randn(*shape, generator=generator).half()

        matrices = [random(n * (1 + gated), k) / 13 for _ in range(2)]
        norms = [random(k) for _ in range(2 if norm else 0)]
        x, more = random(m, k), random(m, n) if add else None
        wide = x.float()
        if norm:
            wide = torch.nn.functional.rms_norm(wide, (k,), norms[1].float(), 1e-6)
        expected = wide @ matrices[1].float().T
        if gated:
            expected = torch.nn.functional.silu(expected[:, :n]) * expected[:, n:]
        expected = expected + more.float() if more is not None else expected
        made = Products(Kind("test", norm, gated, add), matrices, norms, 1e-6)
        for found in (made._ours(1, x, more, tile), made._library(1, x, more)):
            torch.testing.assert_close(found.float(), expected, atol=0.01, rtol=0.01)


def check_unmask() -> None:
    for size, vocab in ((1, 61), (4, 5000)):
        ours, twin = random_rows(size, 7, vocab), random_rows(size, 7, vocab)
        for step in range(3):
            logits = torch.randn(7, size, vocab, generator=torch.Generator().manual_seed(step)) * 4
            needs = Needs(sampling=True, filters=False, entropy=True)
            twin.unmask(logits.clone(), needs)
            fused_step.unmask(ours, logits.view(7 * size, vocab), needs)
            live = twin.record[:, LIVE] > 0
            assert torch.equal(ours.record[live], twin.record[live]), (size, vocab, step)
            assert torch.equal(ours.whole, twin.whole), (size, vocab, step)


def filled_passes(size: int, starts: list[int], into: list[torch.Tensor]) -> Passes:
    """Rows at ``starts`` of a decoder whose pages hold random keys and values; drawing leaves the logits in
    ``into`` and changes nothing."""
    model = make_model(7)
    need = max(starts) // 60 + 2
    pool = PagePool(model, size, len(starts) * need)
    generator = torch.Generator().manual_seed(size)
    for part in (pool.k, pool.v):
        part[:, 1:].normal_(generator=generator)
    rows = Rows(len(starts), size, model.config.mask_token_id, model.device)
    options = DecodeOptions(99)
    rows.put(range(len(starts)), [NewRow(start, [], start + 99, 1, 0.0, options, []) for start in starts])
    for part in (rows.before, rows.block):
        part.copy_(torch.randint(2, 61, part.shape, generator=generator))
    rows.fresh[0] = 1
    rows.active[-1] = 0
    pages = torch.randperm(pool.count - 1, generator=generator)[: len(starts) * need] + 1
    fused_step.unmask = lambda rows, logits, needs: into.append(logits.clone())
    rows.unmask = lambda logits, needs: into.append(logits.flatten(0, 1).clone())
    rows.first = lambda count: rows
    return Passes(model, pool, rows, pages.view(len(starts), need), static=True, fused=True)


def check_passes() -> None:
    """Logits, keys and values of a pass: attention in parts or whole, heads prepared inside it or before."""
    fused._PROGRAMS = 16  # 2 rows and 2 heads: parts of 4
    for size, starts, cells, fold in (
        (3, [66, 0, 9], 128, True),
        (4, [132, 8], 0, True),
        (4, [132, 8], 128, False),
        (64, [64, 64], 128, False),
    ):
        fused._MANY_CELLS = cells
        found = []
        for ours in (False, True):
            logits: list[torch.Tensor] = []
            passes = filled_passes(size, starts, logits)
            shape = Shape(len(starts), fold, passes.table.shape[1], Needs(False, False, False))
            if not ours:
                passes._fused = None
            passes._body(shape)
            live = logits[0].view(len(starts), size, -1)[:-1]
            found.append((live, passes.pool.k[:, 1:], passes.pool.v[:, 1:]))
        for mine, twin in zip(found[1], found[0], strict=True):
            torch.testing.assert_close(mine, twin, atol=1e-4, rtol=1e-4)


def check_prefill() -> None:
    """Keys and values of a prompt's end behind a beginning that is known."""
    prefill.LENGTHS = (16,)
    found = []
    for ours in (False, True):
        passes = filled_passes(4, [132, 8], [])
        if not ours:
            passes._prefill = None
        passes.prefill(prompt_of(8), 64, [3, 5])
        found.append([part[:, 1:] for part in (passes.pool.k, passes.pool.v)])
    for mine, twin in zip(*found, strict=True):
        torch.testing.assert_close(mine, twin, atol=1e-4, rtol=1e-4)


def check_decode() -> None:
    model = make_model(12)
    requests = [
        DecodeRequest(prompt_of(70), DecodeOptions(6, "sequential", steps=2), range(2), [0.0, 1.0]),
        DecodeRequest(prompt_of(9), DecodeOptions(2), range(1), [0.7]),
    ]
    expected = decode_together(model, requests, block_size=4)
    products.OURS = (torch.float32,)
    prefill.LENGTHS = (80,)
    fused._PROGRAMS = fused_step._PROGRAMS = 8  # programs come one after another here
    assert decode_together(model, requests, 1, block_size=4, static=True, fused=True) == expected


if __name__ == "__main__":
    keep_masks_narrow()
    refuse_unknown_arguments()
    torch.set_num_threads(1)
    {
        "products": check_products,
        "passes": check_passes,
        "prefill": check_prefill,
        "unmask": check_unmask,
        "decode": check_decode,
    }[sys.argv[1]]()

"""Triton kernels around the network of a pass: where its tokens sit, what is drawn, and what that does to the rows.

The twins are ``Passes`` and ``Rows.unmask``; ``fused_step.py`` launches these instead. Logits are read where they are,
in the network's dtype, once to know the distribution and once more in one part to find a drawn token.
"""

# What Triton compiles is not what the type checker reads.
# pyright: reportMissingImports=false, reportOperatorIssue=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
from __future__ import annotations

import triton
import triton.language as tl

from dice_engine.decode.kernels import after_former
from dice_engine.decode.rows import MAX_STOP_IDS, SCALARS
from dice_engine.decode.strategies import DYNAMIC, ENTROPY, SEQUENTIAL

_START = tl.constexpr(SCALARS.index("start"))
_STEP = tl.constexpr(SCALARS.index("step"))
_FRESH = tl.constexpr(SCALARS.index("fresh"))
_ACTIVE = tl.constexpr(SCALARS.index("active"))
_PROMPT_END = tl.constexpr(SCALARS.index("prompt_end"))
_LIMIT = tl.constexpr(SCALARS.index("limit"))
_SEED = tl.constexpr(SCALARS.index("seed"))
_STRATEGY = tl.constexpr(SCALARS.index("strategy"))
_STEPS = tl.constexpr(SCALARS.index("steps"))
_STOPS = tl.constexpr(len(SCALARS))
_STOP_COUNT = tl.constexpr(MAX_STOP_IDS)
_BLOCKS = tl.constexpr(len(SCALARS) + MAX_STOP_IDS)
_SEQUENTIAL, _DYNAMIC, _ENTROPY = tl.constexpr(SEQUENTIAL), tl.constexpr(DYNAMIC), tl.constexpr(ENTROPY)


@triton.jit
def layout_kernel(
    whole_ptr, table_ptr, ids_ptr, position_ptr, slot_ptr, visible_ptr, whole_stride, table_stride, page_size,
    SIZE: tl.constexpr, WIDTH: tl.constexpr, PAD: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Token, position, slot and sight of the WIDTH cells of one row: its block, and for WIDTH = 2 SIZE the one before,
    which only counts where the row is fresh."""
    after_former(PDL)
    row, cell = tl.program_id(0), tl.arange(0, PAD)
    ok = cell < WIDTH
    state = whole_ptr + row.to(tl.int64) * whole_stride
    start, active, fresh = tl.load(state + _START), tl.load(state + _ACTIVE), tl.load(state + _FRESH)
    first: tl.constexpr = _BLOCKS + 2 * SIZE - WIDTH  # `before` stands right in front of `block`
    tl.store(ids_ptr + row * WIDTH + cell, tl.load(state + first + cell, mask=ok), mask=ok)
    place = cell + SIZE - WIDTH
    position = tl.maximum(start + place, 0)
    tl.store(position_ptr + row * WIDTH + cell, position, mask=ok)
    sight = tl.where(place < 0, start, start + SIZE)
    tl.store(visible_ptr + row * WIDTH + cell, tl.where(active != 0, tl.maximum(sight, 1), 1), mask=ok)
    used = (active != 0) & ((fresh != 0) | (place >= 0))
    page = tl.load(table_ptr + row * table_stride + position // page_size, mask=ok & used, other=0)
    slot = tl.where(used, page * page_size + position % page_size, cell % page_size)
    tl.store(slot_ptr + row * WIDTH + cell, slot, mask=ok)


@triton.jit
def distribution_kernel(
    logits_ptr, real_ptr, part_ptr, best_ptr, vocab, banned, real_stride,
    SIZE: tl.constexpr, PARTS: tl.constexpr, HOT: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Of one of PARTS parts of the vocabulary at one position: the largest logit (``part`` 0), the sums of exp(x - it)
    (1), of that times x - it (2) and of exp((x - it) / temperature) (3), float64 ``[positions, PARTS, 4]``; and the
    token of the largest (``best``, int64 ``[positions, PARTS]``)."""
    after_former(PDL)
    position, part = tl.program_id(0), tl.program_id(1)
    length = tl.cdiv(vocab, PARTS)
    begin = part * length
    end = tl.minimum(begin + length, vocab)
    heat = 1.0
    if HOT:
        heat = tl.load(real_ptr + position // SIZE * real_stride)
        heat = tl.where(heat > 0, heat, 1.0)
    top = tl.full((), -1e30, dtype=tl.float32)
    best = tl.full((), 0, dtype=tl.int64) + begin
    mass = tl.full((), 0.0, dtype=tl.float64)
    moment = tl.full((), 0.0, dtype=tl.float64)
    hot = tl.full((), 0.0, dtype=tl.float64)
    for start in range(begin, end, BLOCK):
        at = start + tl.arange(0, BLOCK)
        ok = (at < end) & (at != banned)
        x = tl.load(logits_ptr + position.to(tl.int64) * vocab + at, mask=ok, other=-1e30).to(tl.float32)
        here = tl.max(x, axis=0)
        if here > top:
            drop = (top - here).to(tl.float64)
            shrink = tl.exp(tl.maximum(drop, -700.0))
            moment = (moment + mass * drop) * shrink
            mass *= shrink
            hot *= tl.exp(tl.maximum(drop / heat, -700.0))
            top = here
            best = tl.full((), 0, dtype=tl.int64) + start + tl.argmax(x, axis=0)
        away = x - top
        weight = tl.where(ok, tl.exp(away), 0.0)
        mass += tl.sum(weight.to(tl.float64), axis=0)
        moment += tl.sum(tl.where(weight > 0, weight * away, 0.0).to(tl.float64), axis=0)
        if HOT:
            hot += tl.sum(tl.where(ok, tl.exp(away / heat), 0.0).to(tl.float64), axis=0)
    at = part_ptr + (position * PARTS + part) * 4
    tl.store(at, top.to(tl.float64))
    tl.store(at + 1, mass)
    tl.store(at + 2, moment)
    tl.store(at + 3, hot)
    tl.store(best_ptr + position * PARTS + part, best)


@triton.jit
def _mix(x):
    """The finaliser of SplitMix64."""
    x = x + tl.full((), 0x9E3779B97F4A7C15, dtype=tl.uint64)
    x = (x ^ (x >> 30)) * tl.full((), 0xBF58476D1CE4E5B9, dtype=tl.uint64)
    x = (x ^ (x >> 27)) * tl.full((), 0x94D049BB133111EB, dtype=tl.uint64)
    return x ^ (x >> 31)


@triton.jit
def draw_kernel(
    logits_ptr, whole_ptr, real_ptr, part_ptr, best_ptr, token_ptr, confidence_ptr, entropy_ptr,
    vocab, banned, whole_stride, real_stride,
    SIZE: tl.constexpr, PARTS: tl.constexpr, HOT: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The token of one position, its probability and the entropy there, from the parts of the distribution."""
    after_former(PDL)
    position = tl.program_id(0)
    row, place = position // SIZE, position % SIZE
    lane = tl.arange(0, PARTS)
    part = part_ptr + (position * PARTS + lane) * 4
    tops = tl.load(part)
    top = tl.max(tops, axis=0)
    away = tl.maximum(tops - top, -700.0)
    shrink = tl.exp(away)
    masses = tl.load(part + 1)
    mass = tl.sum(masses * shrink, axis=0)
    moment = tl.sum((tl.load(part + 2) + masses * away) * shrink, axis=0)
    token = tl.load(best_ptr + position * PARTS + tl.argmax(tops, axis=0))
    score = top
    if HOT:
        heat = tl.load(real_ptr + row * real_stride)
        if heat > 0:
            state = whole_ptr + row.to(tl.int64) * whole_stride
            key = _mix(tl.load(state + _SEED).to(tl.uint64))
            key = _mix(key + (tl.load(state + _START) + place).to(tl.uint64))
            key = _mix(key + tl.load(state + _STEP).to(tl.uint64))
            noise = (key >> 11).to(tl.float64) * 1.1102230246251565e-16
            sums = tl.load(part + 3) * tl.exp(tl.maximum((tops - top) / heat, -700.0))
            target = noise * tl.sum(sums, axis=0)
            before = tl.cumsum(sums, axis=0) - sums
            # The last part that begins at or before the target and is not empty.
            mine = tl.max(tl.where((before <= target) & (sums > 0), lane, 0), axis=0)
            target -= tl.sum(tl.where(lane == mine, before, 0.0), axis=0)
            length = tl.cdiv(vocab, PARTS)
            begin = mine * length
            end = tl.minimum(begin + length, vocab)
            found = tl.full((), 0, dtype=tl.int64) - 1
            last = tl.full((), 0, dtype=tl.int64) + token
            done = tl.full((), 0.0, dtype=tl.float64)
            for start in range(begin, end, BLOCK):
                at = start + tl.arange(0, BLOCK)
                ok = (at < end) & (at != banned)
                x = tl.load(logits_ptr + position.to(tl.int64) * vocab + at, mask=ok, other=-1e30)
                weight = tl.where(ok, tl.exp((x.to(tl.float32) - top.to(tl.float32)) / heat), 0.0)
                weight = weight.to(tl.float64)
                reached = done + tl.cumsum(weight, axis=0)
                first = tl.min(tl.where((reached > target) & (weight > 0), at, vocab), axis=0)
                found = tl.where((found < 0) & (first < vocab), first.to(tl.int64), found)
                final = tl.max(tl.where(weight > 0, at, -1), axis=0)
                last = tl.where(final >= 0, final.to(tl.int64), last)
                done += tl.sum(weight, axis=0)
            # Rounding may leave the target a hair above the total.
            token = tl.where(found < 0, last, found)
            score = tl.load(logits_ptr + position.to(tl.int64) * vocab + token).to(tl.float64)
    tl.store(token_ptr + position, token)
    tl.store(confidence_ptr + position, (tl.exp(score - top) / mass).to(tl.float32))
    tl.store(entropy_ptr + position, (tl.log(mass) - moment / mass).to(tl.float32))


@triton.jit
def unmask_kernel(
    whole_ptr, real_ptr, record_ptr, token_ptr, confidence_ptr, entropy_ptr, whole_stride, real_stride,
    record_stride, mask_id,
    SIZE: tl.constexpr, PAD: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """``Rows.unmask`` of one row, from what was drawn."""
    after_former(PDL)
    row, i = tl.program_id(0), tl.arange(0, PAD)
    ok = i < SIZE
    state, real = whole_ptr + row.to(tl.int64) * whole_stride, real_ptr + row * real_stride
    start, step = tl.load(state + _START), tl.load(state + _STEP)
    active = tl.load(state + _ACTIVE) != 0
    strategy, steps = tl.load(state + _STRATEGY), tl.load(state + _STEPS)
    before_at = state + _BLOCKS + i
    block = tl.load(before_at + SIZE, mask=ok, other=0)
    masked = tl.load(before_at + 2 * SIZE, mask=ok, other=0) != 0
    when = tl.load(before_at + 3 * SIZE, mask=ok, other=0)
    drawn = tl.load(token_ptr + row * SIZE + i, mask=ok, other=0)
    sure = tl.load(confidence_ptr + row * SIZE + i, mask=ok, other=0.0)
    unsure = tl.load(entropy_ptr + row * SIZE + i, mask=ok, other=0.0)

    quota = tl.maximum(SIZE // steps + (step < SIZE % steps).to(tl.int64), 1)
    j_masked, j_left = masked[None, :], i[None, :] < i[:, None]
    surer = (sure[None, :] > sure[:, None]) | ((sure[None, :] == sure[:, None]) & j_left)
    rank = tl.sum((j_masked & surer).to(tl.int64), axis=1)
    chosen = masked & (rank < quota)
    above = masked & (sure > tl.load(real + 1))
    if (strategy == _DYNAMIC) & (tl.sum(above.to(tl.int64), axis=0) >= quota):
        chosen = above
    if strategy == _SEQUENTIAL:
        chosen = masked & (tl.sum((j_masked & j_left).to(tl.int64), axis=1) < quota)
    if strategy == _ENTROPY:
        calmer = (unsure[None, :] < unsure[:, None]) | ((unsure[None, :] == unsure[:, None]) & j_left)
        calmer = j_masked & calmer
        running = tl.sum(tl.where(calmer, unsure[None, :], 0.0), axis=1) + unsure
        chosen = masked & ((running < tl.load(real + 2)) | (tl.sum(calmer.to(tl.int64), axis=1) == 0))
    chosen = chosen & active
    block = tl.where(chosen, drawn, block)
    when = tl.where(chosen, step, when)
    masked = masked & (chosen == 0)

    is_stop = masked & (masked == 0)
    for s in tl.static_range(_STOP_COUNT):
        is_stop = is_stop | (block == tl.load(state + _STOPS + s))
    is_stop = is_stop & (masked == 0) & ok & (start + i >= tl.load(state + _PROMPT_END))
    stop_at = tl.min(tl.where(is_stop, i, SIZE), axis=0).to(tl.int64)
    room = tl.load(state + _LIMIT) - start
    end = tl.minimum(stop_at + 1, room)  # SIZE + 1 without a stop
    finished = end <= SIZE
    stopped = finished & (stop_at + 1 == end)
    left = tl.sum((masked & (i < end)).to(tl.int64), axis=0)
    complete = active & (left == 0)
    bad = (sure != sure) & ok
    broken = active & (tl.sum(bad.to(tl.int64), axis=0) > 0)

    record = record_ptr + row * record_stride
    tl.store(record, complete.to(tl.int64))
    tl.store(record + 1, finished.to(tl.int64))
    tl.store(record + 2, stopped.to(tl.int64))
    tl.store(record + 3, tl.minimum(end, SIZE))
    tl.store(record + 4, broken.to(tl.int64))
    tl.store(record + 5, active.to(tl.int64))
    tl.store(record + 6 + i, block, mask=ok)
    tl.store(record + 6 + SIZE + i, when, mask=ok)
    onward = complete & (finished == 0)
    tl.store(before_at, block, mask=ok & onward)
    tl.store(before_at + SIZE, tl.where(onward, mask_id, block), mask=ok)
    tl.store(before_at + 2 * SIZE, (masked | onward).to(tl.int64), mask=ok)
    tl.store(before_at + 3 * SIZE, when, mask=ok)
    tl.store(state + _STEP, tl.where(onward, 0, step + active.to(tl.int64)))
    tl.store(state + _START, start + onward.to(tl.int64) * SIZE)
    tl.store(state + _FRESH, tl.where(active, onward.to(tl.int64), tl.load(state + _FRESH)))
    still = active & ((complete & finished) == 0) & (broken == 0)
    tl.store(state + _ACTIVE, still.to(tl.int64))

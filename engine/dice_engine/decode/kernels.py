"""Triton kernels of a decoding pass: few and fused, since at small batches every launch costs as much as its work.

Imported on a GPU only. ``fused.py`` says how they make up a layer; each has an eager twin that it is tested against.
"""

# What Triton compiles is not what the type checker reads.
# pyright: reportMissingImports=false, reportOperatorIssue=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def linear_kernel(
    x_ptr, w_ptr, norm_ptr, add_ptr, out_ptr, m, n, k, eps,
    NORM: tl.constexpr, GATED: tl.constexpr, ADD: tl.constexpr, PRECISION: tl.constexpr,
    SLICES: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """``out[m, n] = f(x[m, k] @ w[n, k].T)`` for few rows ``m <= BM``, at the speed at which ``w`` can be read.

    NORM: x goes through an RMS norm with weight ``norm[k]`` first. GATED: w is ``[2n, k]``, gate above up, and out is
    silu(gate) * up. ADD: plus ``add[m, n]``. With so few rows the chain of products along k is what takes time, so
    SLICES parts of it (one a warp) are summed side by side.
    """
    rows = tl.arange(0, BM)
    cols = tl.program_id(0) * BN + tl.arange(0, BN)
    row_ok, col_ok = rows < m, cols < n
    depth = tl.arange(0, SLICES)[:, None] * BK + tl.arange(0, BK)[None, :]
    x_at = rows[None, :, None] * k
    w_at = cols[None, None, :].to(tl.int64) * k
    up_at = (cols + n)[None, None, :].to(tl.int64) * k
    acc = tl.zeros((SLICES, BM, BN), dtype=tl.float32)
    up = tl.zeros((SLICES, BM, BN), dtype=tl.float32)
    squares = tl.zeros((SLICES, BM), dtype=tl.float32)
    for start in range(0, k, SLICES * BK):
        at = start + depth
        ok = at < k
        w_ok = col_ok[None, None, :] & ok[:, :, None]
        x = tl.load(x_ptr + x_at + at[:, None, :], mask=row_ok[None, :, None] & ok[:, None, :], other=0.0)
        w = tl.load(w_ptr + w_at + at[:, :, None], mask=w_ok, other=0.0)
        if NORM:
            wide = x.to(tl.float32)
            squares += tl.sum(wide * wide, axis=2)
            scale = tl.load(norm_ptr + at, mask=ok, other=0.0).to(tl.float32)
            x = (wide * scale[:, None, :]).to(w.dtype)
        acc = tl.dot(x, w, acc, input_precision=PRECISION)
        if GATED:
            w = tl.load(w_ptr + up_at + at[:, :, None], mask=w_ok, other=0.0)
            up = tl.dot(x, w, up, input_precision=PRECISION)
    total, second = tl.sum(acc, axis=0), tl.sum(up, axis=0)
    if NORM:
        factor = tl.rsqrt(tl.sum(squares, axis=0) / k + eps)[:, None]
        total *= factor
        second *= factor
    if GATED:
        total = total * tl.sigmoid(total) * second
    place = rows[:, None] * n + cols[None, :]
    ok = row_ok[:, None] & col_ok[None, :]
    if ADD:
        total += tl.load(add_ptr + place, mask=ok, other=0.0).to(tl.float32)
    tl.store(out_ptr + place, total.to(out_ptr.dtype.element_ty), mask=ok)


@triton.jit
def prepare_kernel(
    qkv_ptr, q_norm_ptr, k_norm_ptr, frequency_ptr, position_ptr, slot_ptr, q_ptr, k_ptr, v_ptr, eps,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """One head of one token of ``qkv [tokens, (heads + 2 kv_heads) * DIM]``: RMS norm over DIM and rotary embedding
    for q (to ``q [tokens, heads, DIM]``) and k, and k and v to their slots of the pages."""
    token, head = tl.program_id(0), tl.program_id(1)
    at = tl.arange(0, HALF)
    ok = at < DIM // 2
    source = qkv_ptr + (token * (HEADS + 2 * KV_HEADS) + head) * DIM + at
    low = tl.load(source, mask=ok, other=0.0)
    high = tl.load(source + DIM // 2, mask=ok, other=0.0)
    slot = tl.load(slot_ptr + token)
    kv = (slot * KV_HEADS) * DIM + at
    if head >= HEADS + KV_HEADS:
        kv += (head - HEADS - KV_HEADS) * DIM
        tl.store(v_ptr + kv, low, mask=ok)
        tl.store(v_ptr + kv + DIM // 2, high, mask=ok)
    else:
        norm = q_norm_ptr if head < HEADS else k_norm_ptr
        wide_low, wide_high = low.to(tl.float32), high.to(tl.float32)
        scale = tl.rsqrt((tl.sum(wide_low * wide_low) + tl.sum(wide_high * wide_high)) / DIM + eps)
        wide_low *= scale * tl.load(norm + at, mask=ok, other=0.0).to(tl.float32)
        wide_high *= scale * tl.load(norm + at + DIM // 2, mask=ok, other=0.0).to(tl.float32)
        # Rounded here, as the network does it.
        wide_low = wide_low.to(low.dtype).to(tl.float32)
        wide_high = wide_high.to(low.dtype).to(tl.float32)
        angle = tl.load(position_ptr + token).to(tl.float32) * tl.load(frequency_ptr + at, mask=ok, other=0.0)
        cos, sin = tl.cos(angle), tl.sin(angle)
        first = (wide_low * cos - wide_high * sin).to(low.dtype)
        second = (wide_high * cos + wide_low * sin).to(low.dtype)
        q_target, k_target = q_ptr + (token * HEADS + head) * DIM + at, k_ptr + kv + (head - HEADS) * DIM
        target = q_target if head < HEADS else k_target
        tl.store(target, first, mask=ok)
        tl.store(target + DIM // 2, second, mask=ok)


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, table_ptr, visible_ptr, out_ptr, part_ptr, stat_ptr, table_stride, page_size, scale,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, WIDTH: tl.constexpr, DIM: tl.constexpr, DIM_PAD: tl.constexpr,
    SPLITS: tl.constexpr, TILES: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Queries of one row's cells and one kv head against one of SPLITS parts of the row's positions.

    ``q`` and ``out`` are ``[rows * WIDTH, HEADS, DIM]``, pages ``[slots, KV_HEADS, DIM]``, ``table [rows, ...]`` int64,
    ``visible [rows * WIDTH]`` int64 (it does not fall from cell to cell). With one part the result goes to ``out``;
    with more, each leaves its unscaled sum in ``part`` float32 ``[rows * WIDTH, HEADS, SPLITS, DIM]`` and its largest
    score and mass in ``stat`` float32 ``[rows * WIDTH, HEADS, 2, SPLITS]`` for ``combine_kernel``.
    """
    row, split = tl.program_id(0), tl.program_id(2)
    kv_head, tile = tl.program_id(1) // TILES, tl.program_id(1) % TILES
    group: tl.constexpr = HEADS // KV_HEADS
    m = tile * BM + tl.arange(0, BM)
    d = tl.arange(0, DIM_PAD)
    m_ok, d_ok = m < group * WIDTH, d < DIM
    cell, head = row * WIDTH + m % WIDTH, kv_head * group + m // WIDTH
    unit = cell * HEADS + head
    q_ok = m_ok[:, None] & d_ok[None, :]
    q = tl.load(q_ptr + unit[:, None] * DIM + d[None, :], mask=q_ok, other=0.0)
    seen = tl.load(visible_ptr + cell, mask=m_ok, other=1)
    total = tl.load(visible_ptr + row * WIDTH + WIDTH - 1)
    chunk = tl.cdiv(tl.cdiv(total, SPLITS), BN) * BN
    begin = split * chunk
    end = tl.minimum(begin + chunk, total)

    top = tl.full((BM,), -1e30, dtype=tl.float32)
    mass = tl.zeros((BM,), dtype=tl.float32)
    acc = tl.zeros((BM, DIM_PAD), dtype=tl.float32)
    for start in range(begin, end, BN):
        at = start + tl.arange(0, BN)
        ok = at < end
        page = tl.load(table_ptr + row * table_stride + at // page_size, mask=ok, other=0)
        slot = ((page * page_size + at % page_size) * KV_HEADS + kv_head) * DIM
        key = tl.load(k_ptr + slot[None, :] + d[:, None], mask=ok[None, :] & d_ok[:, None], other=0.0)
        score = tl.dot(q, key, input_precision=PRECISION) * scale
        score = tl.where(at[None, :] < tl.minimum(seen, end)[:, None], score, -1e30)
        higher = tl.maximum(top, tl.max(score, axis=1))
        # A cell that sees nothing of this part would else weigh exp(0).
        weight = tl.where(score > -1e29, tl.exp(score - higher[:, None]), 0.0)
        shrink = tl.exp(top - higher)
        mass = mass * shrink + tl.sum(weight, axis=1)
        value = tl.load(v_ptr + slot[:, None] + d[None, :], mask=ok[:, None] & d_ok[None, :], other=0.0)
        acc = acc * shrink[:, None]
        acc = tl.dot(weight.to(value.dtype), value, acc, input_precision=PRECISION)
        top = higher

    if SPLITS == 1:
        out = (acc / mass[:, None]).to(out_ptr.dtype.element_ty)
        tl.store(out_ptr + unit[:, None] * DIM + d[None, :], out, mask=q_ok)
    else:
        place = unit.to(tl.int64) * SPLITS + split
        tl.store(part_ptr + place[:, None] * DIM + d[None, :], acc, mask=q_ok)
        tl.store(stat_ptr + unit * 2 * SPLITS + split, top, mask=m_ok)
        tl.store(stat_ptr + unit * 2 * SPLITS + SPLITS + split, mass, mask=m_ok)


@triton.jit
def combine_kernel(
    part_ptr, stat_ptr, out_ptr, DIM: tl.constexpr, DIM_PAD: tl.constexpr, SPLITS: tl.constexpr
):  # fmt: skip
    """The attention of one head of one cell from its parts; SPLITS is a power of two."""
    unit, split, d = tl.program_id(0), tl.arange(0, SPLITS), tl.arange(0, DIM_PAD)
    tops = tl.load(stat_ptr + unit * 2 * SPLITS + split)
    share = tl.exp(tops - tl.max(tops, axis=0))
    mass = tl.sum(tl.load(stat_ptr + unit * 2 * SPLITS + SPLITS + split) * share, axis=0)
    place = (unit.to(tl.int64) * SPLITS + split)[:, None] * DIM + d[None, :]
    part = tl.load(part_ptr + place, mask=d[None, :] < DIM, other=0.0)
    out = tl.sum(part * share[:, None], axis=0) / mass
    tl.store(out_ptr + unit * DIM + d, out.to(out_ptr.dtype.element_ty), mask=d < DIM)


@triton.jit
def norm_kernel(x_ptr, weight_ptr, out_ptr, size, eps, BLOCK: tl.constexpr):
    """RMS norm of the rows of ``x [m, size]``."""
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    ok = at < size
    x = tl.load(x_ptr + row * size + at, mask=ok, other=0.0).to(tl.float32)
    x *= tl.rsqrt(tl.sum(x * x) / size + eps) * tl.load(weight_ptr + at, mask=ok, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * size + at, x.to(out_ptr.dtype.element_ty), mask=ok)


@triton.jit
def gate_kernel(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    """silu(gate) * up of ``x [m, 2 * size]``, gate before up."""
    row, at = tl.program_id(1), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = at < size
    gate = tl.load(x_ptr + row.to(tl.int64) * 2 * size + at, mask=ok, other=0.0).to(tl.float32)
    up = tl.load(x_ptr + row.to(tl.int64) * 2 * size + size + at, mask=ok, other=0.0).to(tl.float32)
    out = (gate * tl.sigmoid(gate)).to(out_ptr.dtype.element_ty).to(tl.float32) * up
    tl.store(out_ptr + row.to(tl.int64) * size + at, out.to(out_ptr.dtype.element_ty), mask=ok)

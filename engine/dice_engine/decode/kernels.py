"""Triton kernels of a decoding pass: few and fused, since at small batches every launch costs as much as its work.

Imported on a GPU only. ``fused.py`` says how they make up a layer; each has an eager twin that it is tested against.
"""

# What Triton compiles is not what the type checker reads.
# pyright: reportMissingImports=false, reportOperatorIssue=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false, reportPossiblyUnboundVariable=false
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def after_former(PDL: tl.constexpr):
    """Lets the next kernel begin, and waits until what the former ones wrote is there.

    PDL (programmatic dependent launch, Hopper and later): a kernel begins while the former one ends. Every kernel of a
    pass calls this before it touches what another writes, so that the end of one means the end of all before it.
    """
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()


@triton.jit
def fetch_ahead(at, wanted, BYTES: tl.constexpr):
    """Bring BYTES (a multiple of 16) behind each of the ``wanted`` pointers ``at`` to the L2 cache: few and large,
    since one is begun after the other. Hopper and later."""
    tl.inline_asm_elementwise(
        "{ .reg .pred p; setp.ne.u32 p, $2, 0; mov.u32 $0, 0; @p cp.async.bulk.prefetch.L2.global [$1], $3; }",
        "=r,l,r,r",
        [at, wanted.to(tl.int32), BYTES],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit(do_not_specialize=["m"])
def linear_kernel(
    x_ptr, w_ptr, norm_ptr, add_ptr, out_ptr, m, n, k, eps,
    NORM: tl.constexpr, GATED: tl.constexpr, ADD: tl.constexpr, PRECISION: tl.constexpr,
    SLICES: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    PDL: tl.constexpr, AHEAD: tl.constexpr, THREADS: tl.constexpr,
):  # fmt: skip
    """``out[m, n] = f(x[m, k] @ w[n, k].T)`` for few rows ``m <= BM``, at the speed at which ``w`` can be read.

    NORM: x goes through an RMS norm with weight ``norm[k]`` first. GATED: w is ``[2n, k]``, gate above up, and out is
    silu(gate) * up. ADD: plus ``add[m, n]``. With so few rows the chain of products along k is what takes time, so
    SLICES parts of it (one a warp) are summed side by side. w is the left factor: of that one tensor cores want 16 rows
    at least, of the right one 8 are enough. AHEAD: values of each row of w that are asked for before the former kernel
    has ended.
    """
    rows = tl.arange(0, BM)
    cols = tl.program_id(0) * BN + tl.arange(0, BN)
    row_ok, col_ok = rows < m, cols < n
    if PDL and AHEAD > 0:
        thread = tl.arange(0, THREADS)
        line = tl.program_id(0) * BN + thread
        wanted = (thread < BN) & (line < n)
        fetch_ahead(
            w_ptr + line.to(tl.int64) * k, wanted, AHEAD * w_ptr.dtype.element_ty.primitive_bitwidth // 8
        )
        if GATED:
            other = w_ptr + (line + n).to(tl.int64) * k
            fetch_ahead(other, wanted, AHEAD * w_ptr.dtype.element_ty.primitive_bitwidth // 8)
    after_former(PDL)
    place = rows[None, :] * n + cols[:, None]
    place_ok = row_ok[None, :] & col_ok[:, None]
    if ADD:  # asked for early: at the end it would have to be waited for
        more = tl.load(add_ptr + place, mask=place_ok, other=0.0)
    depth = tl.arange(0, SLICES)[:, None] * BK + tl.arange(0, BK)[None, :]
    x_at = rows[None, None, :] * k
    w_at = cols[None, :, None].to(tl.int64) * k
    up_at = (cols + n)[None, :, None].to(tl.int64) * k
    acc = tl.zeros((SLICES, BN, BM), dtype=tl.float32)
    up = tl.zeros((SLICES, BN, BM), dtype=tl.float32)
    squares = tl.zeros((SLICES, BK, BM), dtype=tl.float32)
    for start in range(0, k, SLICES * BK):
        at = start + depth
        ok = at < k
        w_ok = col_ok[None, :, None] & ok[:, None, :]
        x = tl.load(x_ptr + x_at + at[:, :, None], mask=row_ok[None, None, :] & ok[:, :, None], other=0.0)
        w = tl.load(w_ptr + w_at + at[:, None, :], mask=w_ok, other=0.0)
        if NORM:
            wide = x.to(tl.float32)
            squares += wide * wide
            scale = tl.load(norm_ptr + at, mask=ok, other=0.0).to(tl.float32)
            x = (wide * scale[:, :, None]).to(w.dtype)
        acc = tl.dot(w, x, acc, input_precision=PRECISION)
        if GATED:
            w = tl.load(w_ptr + up_at + at[:, None, :], mask=w_ok, other=0.0)
            up = tl.dot(w, x, up, input_precision=PRECISION)
    total, second = tl.sum(acc, axis=0), tl.sum(up, axis=0)
    if NORM:
        factor = tl.rsqrt(tl.sum(tl.sum(squares, axis=1), axis=0) / k + eps)[None, :]
        total *= factor
        second *= factor
    if GATED:
        total = total * tl.sigmoid(total) * second
    if ADD:
        total += more.to(tl.float32)
    tl.store(out_ptr + place, total.to(out_ptr.dtype.element_ty), mask=place_ok)


@triton.jit
def embed_kernel(
    ids_ptr, table_ptr, position_ptr, frequency_ptr, x_ptr, cos_ptr, sin_ptr, size,
    HALF: tl.constexpr, HALF_PAD: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The embedding ``x [tokens, size]`` of one token, and the turns of its position: ``[tokens, HALF]`` float32."""
    after_former(PDL)
    token, at, half = tl.program_id(0), tl.arange(0, BLOCK), tl.arange(0, HALF_PAD)
    row = tl.load(ids_ptr + token).to(tl.int64) * size
    value = tl.load(table_ptr + row + at, mask=at < size, other=0.0)
    tl.store(x_ptr + token.to(tl.int64) * size + at, value, mask=at < size)
    angle = tl.load(position_ptr + token).to(tl.float32) * tl.load(
        frequency_ptr + half, mask=half < HALF, other=0.0
    )
    tl.store(cos_ptr + token * HALF + half, tl.cos(angle), mask=half < HALF)
    tl.store(sin_ptr + token * HALF + half, tl.sin(angle), mask=half < HALF)


@triton.jit
def normed_and_turned(
    low, high, norm_low, norm_high, cos, sin, eps, AXIS: tl.constexpr, DIM: tl.constexpr
):  # fmt: skip
    """RMS norm over DIM, whose halves are ``low`` and ``high`` along AXIS, then the rotary embedding."""
    wide_low, wide_high = low.to(tl.float32), high.to(tl.float32)
    squares = tl.sum(wide_low * wide_low, axis=AXIS) + tl.sum(wide_high * wide_high, axis=AXIS)
    scale = tl.expand_dims(tl.rsqrt(squares / DIM + eps), AXIS)
    # Rounded here, as the network does it.
    wide_low = (wide_low * scale * norm_low.to(tl.float32)).to(low.dtype).to(tl.float32)
    wide_high = (wide_high * scale * norm_high.to(tl.float32)).to(low.dtype).to(tl.float32)
    return (wide_low * cos - wide_high * sin).to(low.dtype), (wide_high * cos + wide_low * sin).to(low.dtype)


@triton.jit
def prepare_kernel(
    qkv_ptr, q_norm_ptr, k_norm_ptr, cos_ptr, sin_ptr, slot_ptr, q_ptr, k_ptr, v_ptr, eps,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, HALF_PAD: tl.constexpr, BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """BLOCK heads of one token of ``qkv [tokens, (heads + 2 kv_heads) * DIM]``: norm and turn of q (to ``q [tokens,
    heads, DIM]``) and k, and k and v to their slots of the pages. For passes of many tokens of one row."""
    after_former(PDL)
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    h = tl.arange(0, HALF_PAD)[None, :]
    h_ok = h < DIM // 2
    ok = (head < HEADS + 2 * KV_HEADS)[:, None] & h_ok
    source = qkv_ptr + (token * (HEADS + 2 * KV_HEADS) + head)[:, None] * DIM + h
    low, high = tl.load(source, mask=ok, other=0.0), tl.load(source + DIM // 2, mask=ok, other=0.0)
    is_q = (head < HEADS)[:, None]
    norm_low = tl.where(
        is_q, tl.load(q_norm_ptr + h, mask=h_ok, other=0.0), tl.load(k_norm_ptr + h, mask=h_ok, other=0.0)
    )
    norm_high = tl.where(
        is_q,
        tl.load(q_norm_ptr + DIM // 2 + h, mask=h_ok, other=0.0),
        tl.load(k_norm_ptr + DIM // 2 + h, mask=h_ok, other=0.0),
    )
    turn = token * (DIM // 2) + h
    cos, sin = tl.load(cos_ptr + turn, mask=h_ok, other=0.0), tl.load(sin_ptr + turn, mask=h_ok, other=0.0)
    first, second = normed_and_turned(low, high, norm_low, norm_high, cos, sin, eps, 1, DIM)
    q_at = q_ptr + (token * HEADS + head)[:, None] * DIM + h
    tl.store(q_at, first, mask=ok & is_q)
    tl.store(q_at + DIM // 2, second, mask=ok & is_q)
    kv = tl.load(slot_ptr + token) * KV_HEADS
    k_at = k_ptr + (kv + head - HEADS)[:, None] * DIM + h
    is_k = (head >= HEADS)[:, None] & (head < HEADS + KV_HEADS)[:, None]
    tl.store(k_at, first, mask=ok & is_k)
    tl.store(k_at + DIM // 2, second, mask=ok & is_k)
    v_at = v_ptr + (kv + head - HEADS - KV_HEADS)[:, None] * DIM + h
    is_v = (head >= HEADS + KV_HEADS)[:, None]
    tl.store(v_at, low, mask=ok & is_v)
    tl.store(v_at + DIM // 2, high, mask=ok & is_v)


@triton.jit
def attend(q_low, q_high, k_low, k_high, value, sees, top, acc, scale, PRECISION: tl.constexpr):
    """One step of a running softmax: the largest scores ``[BM]`` and the sum ``[BM, dim]`` after some more keys, what
    the sums before are worth now ``[BM]``, and the new keys' weights."""
    score = tl.dot(q_low, k_low, input_precision=PRECISION)
    score = tl.dot(q_high, k_high, score, input_precision=PRECISION) * scale
    score = tl.where(sees, score, -1e30)
    higher = tl.maximum(top, tl.max(score, axis=1))
    # A cell that sees nothing of this part would else weigh exp(0).
    weight = tl.where(score > -1e29, tl.exp(score - higher[:, None]), 0.0)
    worth = tl.exp(top - higher)
    acc = tl.dot(weight.to(value.dtype), value, acc * worth[:, None], input_precision=PRECISION)
    return higher, acc, worth, weight


@triton.jit(do_not_specialize=["table_stride", "width", "tiles"])
def attention_kernel(
    x_ptr, q_norm_ptr, k_norm_ptr, cos_ptr, sin_ptr, k_ptr, v_ptr, table_ptr, position_ptr, slot_ptr, visible_ptr,
    out_ptr, part_ptr, stat_ptr, table_stride, width, tiles, scale, eps,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, HALF_PAD: tl.constexpr, PAGE: tl.constexpr,
    FRESH: tl.constexpr, SPLITS: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BW: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Queries of the ``width`` cells of one row and of one kv head against one of SPLITS parts of what they see.

    Pages are ``[slots, KV_HEADS, DIM]``, ``table [rows, ...]``, ``position``, ``slot`` and ``visible [rows * width]``
    int64; a slot of page 0 means that the cell takes no part. FRESH: ``x`` is ``qkv [rows * width, (HEADS + 2 KV_HEADS)
    * DIM]``; q and k are normed and turned here, and the last part adds the new keys and values and writes them to
    their slots. Else ``x`` is ``q [rows * width, HEADS, DIM]`` and the pages hold all.
    With one part the result goes to ``out [rows * width, HEADS, DIM]``; with more, each leaves its unscaled sum in
    ``part`` float32 ``[rows * width, HEADS, SPLITS, DIM]`` and its largest score and mass in ``stat`` float32 ``[rows *
    width, HEADS, 2, SPLITS]`` for ``combine_kernel``.
    """
    after_former(PDL)
    row, split = tl.program_id(0), tl.program_id(2)
    kv_head, tile = tl.program_id(1) // tiles, tl.program_id(1) % tiles
    group: tl.constexpr = HEADS // KV_HEADS
    units: tl.constexpr = HEADS + 2 * KV_HEADS if FRESH else HEADS
    half: tl.constexpr = DIM // 2
    m = tile * BM + tl.arange(0, BM)
    m_ok = m < group * width
    cell, head = row * width + m % width, kv_head * group + m // width
    h, d = tl.arange(0, HALF_PAD), tl.arange(0, 2 * HALF_PAD)
    h_ok, d_ok = h < half, d < DIM
    q_ok = m_ok[:, None] & h_ok[None, :]
    q_at = x_ptr + (cell * units + head)[:, None] * DIM + h[None, :]
    q_low, q_high = tl.load(q_at, mask=q_ok, other=0.0), tl.load(q_at + half, mask=q_ok, other=0.0)
    seen = tl.load(visible_ptr + cell, mask=m_ok, other=1)
    total = tl.max(seen, axis=0)
    if FRESH:
        turn = cell[:, None] * half + h[None, :]
        q_low, q_high = normed_and_turned(
            q_low, q_high,
            tl.load(q_norm_ptr + h, mask=h_ok, other=0.0)[None, :],
            tl.load(q_norm_ptr + half + h, mask=h_ok, other=0.0)[None, :],
            tl.load(cos_ptr + turn, mask=q_ok, other=0.0), tl.load(sin_ptr + turn, mask=q_ok, other=0.0),
            eps, 1, DIM,
        )  # fmt: skip
        for start in range(0, width, BW):
            j = start + tl.arange(0, BW)
            used = tl.load(slot_ptr + row * width + j, mask=j < width, other=0) >= PAGE
            place = tl.load(position_ptr + row * width + j, mask=j < width, other=0)
            total = tl.minimum(total, tl.min(tl.where(used, place, total), axis=0))
    chunk = tl.cdiv(tl.cdiv(total, SPLITS), BN) * BN
    begin = split * chunk
    end = tl.minimum(begin + chunk, total)

    top = tl.full((BM,), -1e30, dtype=tl.float32)
    masses = tl.zeros((BM, BN), dtype=tl.float32)
    acc = tl.zeros((BM, 2 * HALF_PAD), dtype=tl.float32)
    for start in range(begin, end, BN):
        at = start + tl.arange(0, BN)
        ok = at < end
        if PAGE % BN == 0:
            page = tl.load(table_ptr + row * table_stride + start // PAGE)
            slot = page * PAGE + start % PAGE + tl.arange(0, BN)
        else:
            page = tl.load(table_ptr + row * table_stride + at // PAGE, mask=ok, other=0)
            slot = page * PAGE + at % PAGE
        line = (slot * KV_HEADS + kv_head) * DIM
        k_at = k_ptr + line[None, :] + h[:, None]
        k_ok = ok[None, :] & h_ok[:, None]
        k_low, k_high = tl.load(k_at, mask=k_ok, other=0.0), tl.load(k_at + half, mask=k_ok, other=0.0)
        value = tl.load(v_ptr + line[:, None] + d[None, :], mask=ok[:, None] & d_ok[None, :], other=0.0)
        sees = at[None, :] < tl.minimum(seen, end)[:, None]
        top, acc, worth, weight = attend(
            q_low, q_high, k_low, k_high, value, sees, top, acc, scale, PRECISION
        )
        masses = masses * worth[:, None] + weight  # summed at the end: the warps would have to meet for it
    mass = tl.sum(masses, axis=1)
    if FRESH:
        for start in tl.range(0, tl.where(split == SPLITS - 1, width, 0), BW, num_stages=1):
            j = start + tl.arange(0, BW)
            j_ok = j < width
            new = row * width + j
            slot = tl.load(slot_ptr + new, mask=j_ok, other=0)
            place = tl.load(position_ptr + new, mask=j_ok, other=0)
            used = slot >= PAGE
            k_ok = j_ok[None, :] & h_ok[:, None]
            k_at = x_ptr + (new * units + HEADS + kv_head)[None, :] * DIM + h[:, None]
            k_turn = new[None, :] * half + h[:, None]
            k_low, k_high = normed_and_turned(
                tl.load(k_at, mask=k_ok, other=0.0), tl.load(k_at + half, mask=k_ok, other=0.0),
                tl.load(k_norm_ptr + h, mask=h_ok, other=0.0)[:, None],
                tl.load(k_norm_ptr + half + h, mask=h_ok, other=0.0)[:, None],
                tl.load(cos_ptr + k_turn, mask=k_ok, other=0.0), tl.load(sin_ptr + k_turn, mask=k_ok, other=0.0),
                eps, 0, DIM,
            )  # fmt: skip
            v_at = x_ptr + (new * units + HEADS + KV_HEADS + kv_head)[:, None] * DIM + d[None, :]
            v_ok = j_ok[:, None] & d_ok[None, :]
            value = tl.load(v_at, mask=v_ok, other=0.0)
            if tile == 0:
                line = (slot * KV_HEADS + kv_head) * DIM
                k_to = k_ptr + line[None, :] + h[:, None]
                tl.store(k_to, k_low, mask=k_ok & used[None, :])
                tl.store(k_to + half, k_high, mask=k_ok & used[None, :])
                tl.store(v_ptr + line[:, None] + d[None, :], value, mask=v_ok & used[:, None])
            sees = used[None, :] & (place[None, :] < seen[:, None])
            top, acc, worth, weight = attend(
                q_low, q_high, k_low, k_high, value, sees, top, acc, scale, PRECISION
            )
            mass = mass * worth + tl.sum(weight, axis=1)

    unit = cell * HEADS + head
    out_ok = m_ok[:, None] & d_ok[None, :]
    if SPLITS == 1:
        out = (acc / mass[:, None]).to(out_ptr.dtype.element_ty)
        tl.store(out_ptr + unit[:, None] * DIM + d[None, :], out, mask=out_ok)
    else:
        place = unit.to(tl.int64) * SPLITS + split
        tl.store(part_ptr + place[:, None] * DIM + d[None, :], acc, mask=out_ok)
        tl.store(stat_ptr + unit * 2 * SPLITS + split, top, mask=m_ok)
        tl.store(stat_ptr + unit * 2 * SPLITS + SPLITS + split, mass, mask=m_ok)


@triton.jit
def combine_kernel(
    part_ptr, stat_ptr, out_ptr,
    DIM: tl.constexpr, DIM_PAD: tl.constexpr, SPLITS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The attention of one head of one cell from its parts; SPLITS is a power of two."""
    after_former(PDL)
    unit, split, d = tl.program_id(0), tl.arange(0, SPLITS), tl.arange(0, DIM_PAD)
    tops = tl.load(stat_ptr + unit * 2 * SPLITS + split)
    masses = tl.load(stat_ptr + unit * 2 * SPLITS + SPLITS + split)
    share = tl.exp(tops - tl.max(tops, axis=0))
    place = (unit.to(tl.int64) * SPLITS + split)[:, None] * DIM + d[None, :]
    # An empty part is not worth reading.
    part = tl.load(part_ptr + place, mask=(masses > 0)[:, None] & (d[None, :] < DIM), other=0.0)
    out = tl.sum(part * share[:, None], axis=0) / tl.sum(masses * share, axis=0)
    tl.store(out_ptr + unit * DIM + d, out.to(out_ptr.dtype.element_ty), mask=d < DIM)


@triton.jit
def norm_kernel(x_ptr, weight_ptr, out_ptr, size, eps, BLOCK: tl.constexpr, PDL: tl.constexpr):
    """RMS norm of the rows of ``x [m, size]``."""
    after_former(PDL)
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    ok = at < size
    x = tl.load(x_ptr + row * size + at, mask=ok, other=0.0).to(tl.float32)
    x *= tl.rsqrt(tl.sum(x * x) / size + eps) * tl.load(weight_ptr + at, mask=ok, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * size + at, x.to(out_ptr.dtype.element_ty), mask=ok)


@triton.jit
def gate_kernel(x_ptr, out_ptr, size, BLOCK: tl.constexpr, PDL: tl.constexpr):
    """silu(gate) * up of ``x [m, 2 * size]``, gate before up."""
    after_former(PDL)
    row, at = tl.program_id(1), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = at < size
    gate = tl.load(x_ptr + row.to(tl.int64) * 2 * size + at, mask=ok, other=0.0).to(tl.float32)
    up = tl.load(x_ptr + row.to(tl.int64) * 2 * size + size + at, mask=ok, other=0.0).to(tl.float32)
    out = (gate * tl.sigmoid(gate)).to(out_ptr.dtype.element_ty).to(tl.float32) * up
    tl.store(out_ptr + row.to(tl.int64) * size + at, out.to(out_ptr.dtype.element_ty), mask=ok)

"""Launches the kernels around the network of a pass: the fast twins of its layout and of ``Rows.unmask``."""

# pyright: reportMissingImports=false, reportIndexIssue=false, reportCallIssue=false, reportArgumentType=false
from __future__ import annotations

import torch
import triton
from torch import Tensor

from dice_engine.decode.launches import launch_options
from dice_engine.decode.paged import Cells
from dice_engine.decode.rows import Rows
from dice_engine.decode.sampling import Needs
from dice_engine.decode.step_kernels import distribution_kernel, draw_kernel, layout_kernel, unmask_kernel

_BLOCK = 2048
_PROGRAMS = 264
_MAX_PARTS = 64


def layout(rows: Rows, table: Tensor, page_size: int, width: int) -> tuple[Tensor, Cells]:
    """Ids ``[rows * width]`` of the cells of a pass, and where they sit."""
    ids, positions, slots, visible = torch.empty(
        4, rows.count * width, dtype=torch.int64, device=rows.device
    ).unbind(0)
    layout_kernel[(rows.count,)](
        *(rows.whole, table, ids, positions, slots, visible),
        *(rows.whole.stride(0), table.stride(0), page_size),
        SIZE=rows.size,
        WIDTH=width,
        PAD=triton.next_power_of_2(width),
        num_warps=1,
        **launch_options(rows.device),
    )
    return ids, Cells(table, slots, positions, visible, width)


def unmask(rows: Rows, logits: Tensor, needs: Needs) -> None:
    """``rows.unmask`` for ``logits [rows * B, vocab]``; not for top-k and top-p."""
    positions, vocab = logits.shape
    parts = max(1, min(_MAX_PARTS, _PROGRAMS // positions, vocab // _BLOCK))
    parts = 1 << (parts.bit_length() - 1)
    device = logits.device
    part = torch.empty(positions, parts, 4, dtype=torch.float64, device=device)
    best = torch.empty(positions, parts, dtype=torch.int64, device=device)
    tokens = torch.empty(positions, dtype=torch.int64, device=device)
    confidence, entropy = torch.empty(2, positions, dtype=torch.float32, device=device).unbind(0)
    launch = launch_options(device)
    common = {"SIZE": rows.size, "PARTS": parts, "HOT": needs.sampling, "BLOCK": _BLOCK, **launch}
    whole_stride, real_stride = rows.whole.stride(0), rows.real.stride(0)
    distribution_kernel[(positions, parts)](
        logits, rows.real, part, best, vocab, rows.mask_id, real_stride, **common
    )
    draw_kernel[(positions,)](
        *(logits, rows.whole, rows.real, part, best, tokens, confidence, entropy),
        *(vocab, rows.mask_id, whole_stride, real_stride),
        **common,
    )
    unmask_kernel[(rows.count,)](
        *(rows.whole, rows.real, rows.record, tokens, confidence, entropy),
        *(whole_stride, real_stride, rows.record.stride(0), rows.mask_id),
        SIZE=rows.size,
        PAD=triton.next_power_of_2(rows.size),
        num_warps=1 if rows.size <= 16 else 4,
        **launch,
    )

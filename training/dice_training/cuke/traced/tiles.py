"""The tiled schedule of a product of matrices: tiles of both in shared memory, one thread an output element."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dice_training.cuke.traced.emit import at
from dice_training.cuke.traced.values import Buffer, Constant, Moved, Point, Value, Written, reachable, values

if TYPE_CHECKING:
    from dice_training.cuke.traced.kernels import KernelWriter

_SIDE = 16
_LEAST = 32
"""Products with fewer rows, columns or terms than this are left to one loop."""


def tiled_product(value: Value) -> Written | None:
    """The product of two matrices that ``value`` is an elementwise function of, None where it is none of such."""
    found = [
        v
        for v in reachable([value], lambda v: v.memory is None)
        if isinstance(v, Written) and v.heavy and v.memory is None
    ]
    if len(found) != 1 or found[0].tile is None or values(found[0].shape) != values(value.shape):
        return None
    product = found[0]
    inside = reachable([value], lambda v: v.memory is None and v is not product)
    if any(not _plain(v) for v in inside if v is not product):
        return None
    m, n = values(product.shape)
    sizes = (m, n, product.tile.depth.value) if product.tile else ()
    return product if min(sizes) >= _LEAST else None


def _plain(value: Value) -> bool:
    return value.memory is not None or isinstance(value, Point | Buffer | Constant) or _still(value)


def _still(value: Value) -> bool:
    return isinstance(value, Moved) and value.still


def write_tiled(kernel: KernelWriter, value: Value, product: Written, out: Buffer) -> None:
    """The kernel: a block of 16 x 16 threads computes a tile of the result."""
    e, tile = kernel.emitter, product.tile
    assert tile is not None
    rows = kernel.size_name(product.shape[0], "rows")
    cols = kernel.size_name(product.shape[1], "cols")
    depth = kernel.size_name(tile.depth, "depth")
    kernel.grid = f"dim3(({cols} + {_SIDE - 1}) / {_SIDE}, ({rows} + {_SIDE - 1}) / {_SIDE})"
    if kernel.plain is not None:
        _direct(kernel, value, product, out, rows, cols, depth)
        return
    e.names |= {"xs", "ws", "tx", "ty", "row", "col", "start", "k", "acc", "j"}
    e.line(f"__shared__ float xs[{_SIDE}][{_SIDE + 1}];")
    e.line(f"__shared__ float ws[{_SIDE}][{_SIDE + 1}];")
    e.line(f"int tx = threadIdx.x % {_SIDE};")
    e.line(f"int ty = threadIdx.x / {_SIDE};")
    e.line(f"int row = blockIdx.y * {_SIDE} + ty;")
    e.line(f"int col = blockIdx.x * {_SIDE} + tx;")
    e.line("float acc = 0.0f;")
    with e.inside(f"for (int start = 0; start < {depth}; start += {_SIDE})"):
        e.line("int k = start + tx;")
        _load(kernel, "xs[ty][tx]", f"row < {rows} && k < {depth}", product.args[0], tile.x("row", "k"))
        if tile.transposed:  # the second matrix lies with its rows as our columns
            e.line(f"int j = blockIdx.x * {_SIDE} + ty;")
            _load(kernel, "ws[tx][ty]", f"j < {cols} && k < {depth}", product.args[1], tile.y("j", "k"))
        else:
            e.line("int j = start + ty;")
            _load(kernel, "ws[ty][tx]", f"j < {depth} && col < {cols}", product.args[1], tile.y("col", "j"))
        e.line("__syncthreads();")
        with e.inside(f"for (int i = 0; i < {_SIDE}; ++i)"):
            e.line("acc = fmaf(xs[ty][i], ws[i][tx], acc);")
        e.line("__syncthreads();")
    with e.inside(f"if (row < {rows} && col < {cols})", loop=False):
        place = at(product.shape, ["row", "col"])
        e.block.known[id(product), place.key] = "acc"
        text = e.value(value, at(value.shape, ["row", "col"]))
        e.line(f"{out.text}[row * {cols} + col] = {text};")


def _direct(
    kernel: KernelWriter, value: Value, product: Written, out: Buffer, rows: str, cols: str, depth: str
) -> None:
    """The same launch without shared memory: each thread goes along a row and a column in global memory."""
    e, tile = kernel.emitter, product.tile
    assert tile is not None
    e.names |= {"row", "col", "k", "acc"}
    e.line(f"int row = blockIdx.y * {_SIDE} + threadIdx.x / {_SIDE};")
    e.line(f"int col = blockIdx.x * {_SIDE} + threadIdx.x % {_SIDE};")
    with e.inside(f"if (row < {rows} && col < {cols})", loop=False):
        e.line("float acc = 0.0f;")
        with e.inside(f"for (int k = 0; k < {depth}; ++k)"):
            left = e.value(product.args[0], at(product.args[0].shape, tile.x("row", "k")))
            right = e.value(product.args[1], at(product.args[1].shape, tile.y("col", "k")))
            e.line(f"acc += {left} * {right};")
        e.block.known[id(product), at(product.shape, ["row", "col"]).key] = "acc"
        text = e.value(value, at(value.shape, ["row", "col"]))
        e.line(f"{out.text}[row * {cols} + col] = {text};")


def _load(kernel: KernelWriter, target: str, condition: str, value: Value, coords: list[str]) -> None:
    """One element of a tile, zero outside of the matrix."""
    e = kernel.emitter
    lines, known, names = len(e.block.lines), dict(e.block.known), set(e.names)
    text = e.value(value, at(value.shape, coords))
    if len(e.block.lines) == lines and text.endswith("]"):
        e.line(f"{target} = {condition} ? {text} : 0.0f;")
        return
    # It takes statements of its own: they belong behind the condition.
    del e.block.lines[lines:]
    e.block.known, e.names = known, names
    e.line(f"{target} = 0.0f;")
    with e.inside(f"if ({condition})", loop=False):
        e.line(f"{target} = {e.value(value, at(value.shape, coords))};")

"""Chains of elementwise work that several loops of a kernel need alike: a device function computes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from dice_training.cuke.traced.emit import Emitter, Index
from dice_training.cuke.traced.values import (
    Buffer,
    Constant,
    Moved,
    Point,
    Reduced,
    Value,
    ctype,
    reachable,
    values,
)

if TYPE_CHECKING:
    from dice_training.cuke.traced.kernels import KernelWriter


def below(value: Value) -> Value:
    """What a view or broadcast shows."""
    while isinstance(value, Moved) and value.still and value.memory is None:
        value = value.args[0]
    return value.memory or value


def _is_leaf(value: Value) -> bool:
    """Whether ``value`` is only read: memory, perhaps broadcast, or a constant."""
    return isinstance(below(value), Buffer | Constant)


def prepare_chain(kernel: KernelWriter, value: Value, first: Reduced) -> None:
    """The chain that several loops need alike becomes a device function."""
    e = kernel.emitter
    inside = [v for v in reachable([value], lambda v: v.memory is None) if v.memory is None]
    pure: set[int] = set()
    for v in inside:
        plain = isinstance(v, Point) and values(v.shape) == values(first.arg.shape) and not v.inline
        if plain and all(id(a) in pure or _is_leaf(a) for a in v.arguments):
            pure.add(id(v))
    shared = [
        v
        for v in inside
        if id(v) in pure
        and v.uses > 1
        and any(v is a for other in inside if id(other) not in pure for a in other.arguments)
    ]
    if len(shared) != 1:
        return
    chain = shared[0]
    leaves = [
        v
        for v in reachable([chain], lambda v: id(v) in pure)
        if id(v) not in pure and not isinstance(v, Constant)
    ]
    if not leaves or any(v.dtype not in (torch.float32, torch.bool) for v in leaves):
        return
    names = ["v", *(below(v).text for v in leaves[1:])]  # type: ignore[attr-defined]
    if len(set(names)) != len(names):
        return
    inner = Emitter(kernel.size_name, kernel.buffer_name)
    inner.names |= set(names)
    inner.block.own.add("v")
    index = Index(chain.shape, "idx", lambda _: "0")
    for leaf, name in zip(leaves, names, strict=True):
        inner.block.known[id(leaf), index.key] = name
        inner.given[id(leaf)] = name
    result = inner.value(chain, index)
    arguments = ", ".join(f"{ctype(v.dtype)} {name}" for v, name in zip(leaves, names, strict=True))
    head = f"__device__ __forceinline__ {ctype(chain.dtype)} prepare({arguments}) {{"
    lines = [*(f"    {line}" for line in inner.block.lines), f"    return {result};"]
    text = [head, *lines, "}"]
    if kernel.program.helpers.get("prepare", text) != text:
        return
    kernel.late_helpers["prepare"] = text
    e.prepared[id(chain)] = leaves

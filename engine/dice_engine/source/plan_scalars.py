"""What a parameter that is no pointer is: a size symbol, a stream, or a value to draw."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dice_engine.source import host_types as types
from dice_engine.source.plan import Fill, Param

_STREAMS = ("cudaStream_t", "CUstream", "CUDAStream")
_SEEDS = re.compile(r"(?i)seed")


def scalar_fill(param: Param, template: Mapping[str, str]) -> Fill | str | None:
    """``"size"``, ``"stream"``, the Fill of a value, or None for a type that cannot be given.

    Floats are drawn from [0.25, 0.95): right as decay, probability, slope, scale and epsilon alike, and never a value
    (0, 1) that hides what is multiplied with it.
    """
    ctype = template.get(param.ctype, param.ctype)
    if ctype.endswith(_STREAMS):
        return "stream"
    kind = types.KINDS.get(ctype)
    if kind is None:
        return None
    if kind == "bool":
        return Fill("int", "0", "2")
    if types.is_float(kind):
        return Fill("uniform", "0.25", "0.95")
    if _SEEDS.search(param.name):
        return Fill("int", "0", "1000")
    return "size"

"""What a GPU refuses to launch or to assemble, for a backend that could run it."""

from __future__ import annotations

import math
import re

from dice_engine.source.expressions import ExpressionError, evaluate
from dice_engine.verify.build.interface import Dim3, LaunchError

MAX_SHARED = 227 * 1024
"""Bytes of dynamic shared memory a block may ask for: the largest of today's GPUs."""
MAX_STATIC_SHARED = 48 * 1024
"""Bytes of ``__shared__`` variables of known size: more than this ptxas refuses, on every GPU."""
_PARENS = r"\((?:[^()]|\([^()]*\))*\)"
_BOUNDED = re.compile(
    rf"__launch_bounds__\s*\(\s*((?:[^(),]|{_PARENS})+)(?:,[^;{{}}]*?)?\)\s*[^;{{}}()]*?\b(\w+)\s*\("
)
_NAMED = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+([^\n]+)$|\b(?:const|constexpr)\s+[\w\s]*?\b(\w+)\s*=\s*([^;,{}]+);",
    re.MULTILINE,
)


def check_configuration(grid: Dim3, block: Dim3, shared: int, most_threads: int = 1024) -> None:
    """Raise LaunchError, as CUDA would, for a grid, block or dynamic shared memory outside the limits."""
    limits = (("grid", grid, (2**31 - 1, 65535, 65535)), ("block", block, (1024, 1024, 64)))
    for what, extent, most in limits:
        if any(not 0 < size <= limit for size, limit in zip(extent, most, strict=True)):
            _refuse(f"{what} {extent} is not within 1..{most}")
    if math.prod(block) > most_threads:
        why = "" if most_threads == 1024 else " by the kernel's __launch_bounds__"
        _refuse(f"a block of {math.prod(block)} threads; at most {most_threads}{why}")
    if not 0 <= shared <= MAX_SHARED:
        _refuse(f"{shared} bytes of dynamic shared memory; at most {MAX_SHARED}")


def most_threads(text: str, kernel: str, arguments: dict[str, str]) -> int:
    """Threads that a block of ``kernel`` may have by its ``__launch_bounds__`` in ``text``, 1024 where it has none or
    they are not understood. ``arguments``: of its template."""
    bound = next((size for size, name in _BOUNDED.findall(text) if name == kernel), None)
    if bound is None:
        return 1024
    known: dict[str, int] = {}
    for name, value in [
        *((a or b, first or second) for a, first, b, second in _NAMED.findall(text)),
        *arguments.items(),
    ]:
        known.update(_number(name, value, known))
    found = _number("", bound, known).get("", 1024)
    return found if 0 < found < 1024 else 1024


def _number(name: str, text: str, known: dict[str, int]) -> dict[str, int]:
    try:
        return {name: evaluate(text.split("//")[0].strip(), known)}
    except ExpressionError:
        return {}


def _refuse(detail: str) -> None:
    raise LaunchError("cudaErrorInvalidConfiguration", f"invalid configuration argument: {detail}")

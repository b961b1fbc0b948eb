"""Sizes that a text may treat in its own way: at the numbers that it compares sizes with, and large ones."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dice_engine.source.cuda import find_kernels
from dice_engine.source.expressions import ExpressionError
from dice_engine.source.plan import Plan
from dice_engine.source.plan_run import MEASURE, measuring_sizes, total_elements
from dice_engine.source.plans import checking_sizes

Sizes = dict[str, int]
_MOST_ELEMENTS = 1 << 25
_BLOCK = 1024
"""What is compared with more than this is no index of a thread in its block."""
_LEAST_DIVISOR = 64
_NOT_CODE = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)
_CLAUSE = re.compile(r"[;{}?,]|&&|\|\||(?<!:):(?!:)")
_COMPARED = re.compile(r"[=!]=|(?<![<>-])[<>](?![<>])|\bcase\b")
_DIVIDED = re.compile(r"[/%&]|>>|\bmin\b|\bmax\b")
_ONE = r"(?:0[xX][\da-fA-F]+|\d+(?:\.\d*)?(?:[eE]\d+)?)"
_NUMBER = re.compile(rf"(?<![\w.]){_ONE}[uUlLfF]*(?:\s*(?:\*|<<)\s*{_ONE}[uUlLfF]*)*(?!\w)")
_NAMED = re.compile(
    rf"(?:#\s*define\s+(\w+)\s+\(?|\b(?:const|constexpr)\s[\w\s]*?(\w+)\s*=\s*)({_NUMBER.pattern})"
)
_DECLARED = re.compile(r"\b(?:int|long|size_t|unsigned|auto|u?int\d+_t|bool)\s+(\w+)\s*=\s*([^;]+)")
_OF_A_THREAD = re.compile(r"\b(?:threadIdx|blockIdx)\b")


def special_sizes(plan: Plan, candidate: str, original: str) -> list[Sizes]:
    """Size sets at which a comparison in ``candidate`` turns out in another way, the smallest first.

    Looked at are the kernel itself and what ``original`` has not. An annotation's sizes are a promise: larger ones
    are not tried.
    """
    names = set(plan.sizes[0]) if plan.sizes else set()
    if not names or plan.fixture is not None:
        return []
    found: list[Sizes] = []
    base = min(checking_sizes(plan), key=lambda sizes: total_elements(plan, sizes))
    together: Sizes = {}
    for clause, number in _numbers(plan, candidate, original):
        for name in names:
            tried = {sizes[name] for sizes in checking_sizes(plan)}
            found += [{**base, name: number}] if number not in tried else []
            found += [{**base, name: number + 1}] if number >= max(tried) else []
        for name in names & set(re.findall(r"\w+", clause)):
            together.setdefault(name, number + (">" in clause and ">=" not in clause))
    if len(together) > 1:
        found.append({**base, **together})
    most = {name: max(sizes[name] for sizes in plan.sizes) for name in names}
    promised = plan.source == "annotation" and MEASURE not in plan.origin
    fitting = [s for s in found if not promised or all(s[name] <= most[name] for name in names)]
    return sorted(_affordable(plan, fitting), key=lambda sizes: total_elements(plan, sizes))


def large_sizes(plan: Plan) -> tuple[list[Sizes], list[Sizes]]:
    """The sizes that a GPU is timed at: each alone with the others small; and all of them, then ever smaller ones."""
    if MEASURE not in plan.origin or plan.fixture is not None:
        return [], []
    checked = sorted(checking_sizes(plan), key=lambda sizes: total_elements(plan, sizes))
    timed = measuring_sizes(plan)
    alone = [{**checked[0], name: timed[name]} for name in timed] if len(timed) > 1 else []
    shrinking = [{name: max(1, value >> shift) for name, value in timed.items()} for shift in range(8)]
    larger = [sizes for sizes in shrinking if total_elements(plan, sizes) > total_elements(plan, checked[-1])]
    return _affordable(plan, alone), _affordable(plan, larger)


def _affordable(plan: Plan, sets: Sequence[Sizes]) -> list[Sizes]:
    kept: list[Sizes] = []
    for sizes in sets:
        try:
            if sizes not in kept and total_elements(plan, sizes) <= _MOST_ELEMENTS:
                kept.append(sizes)
        except ExpressionError:
            continue
    return kept


def _numbers(plan: Plan, candidate: str, original: str) -> Iterator[tuple[str, int]]:
    """Each clause about sizes with a number in it."""
    kernel = next((span for span in find_kernels(candidate) if span.name == plan.kernel), None)
    if kernel is None:
        return
    own = _NOT_CODE.sub(" ", candidate.encode()[kernel.start : kernel.end].decode())
    text, before = _NOT_CODE.sub(" ", candidate), _NOT_CODE.sub(" ", original)
    known = set(_CLAUSE.split(before)) - set(_CLAUSE.split(own))
    named = {a or b: number for a, b, number in _NAMED.findall(text)}
    sized = {*plan.sizes[0], "gridDim", *(p.name for p in kernel.params if not p.pointer)}
    for name, value in _DECLARED.findall(own) * 2:
        if sized & set(re.findall(r"\w+", value)) and not _OF_A_THREAD.search(value):
            sized.add(name)
    for clause in dict.fromkeys(_CLAUSE.split(text)):
        if clause in known or (not (compared := _COMPARED.search(clause)) and not _DIVIDED.search(clause)):
            continue
        words = set(re.findall(r"\w+", clause))
        written = re.sub(r"\w+", lambda word: named.get(word[0], word[0]), clause)
        least = 2 if compared else _LEAST_DIVISOR
        for number in {_value(found[0]) for found in _NUMBER.finditer(written)}:
            if number >= (least if words & sized else _BLOCK + 1) and (compared or words & sized):
                yield clause, number


def _value(text: str) -> int:
    """``4 * 1024`` and ``1 << 20`` as numbers, read from the left."""
    result, shift = 1, False
    for part in re.findall(rf"{_ONE}|<<", text):
        if part == "<<":
            shift = True
            continue
        number = int(part, 16) if part[:2] in ("0x", "0X") else int(float(part))
        result, shift = (result << min(number, 40) if shift else result * number), False
    return result

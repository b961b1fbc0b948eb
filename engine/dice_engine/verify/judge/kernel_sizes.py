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
_FEW = 7
_NOT_CODE = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)
_CLAUSE = re.compile(r"[;{}?,]|&&|\|\||(?<!:):(?!:)")
_COMPARED = re.compile(r"[=!]=|(?<![<>-])[<>](?![<>])|\bcase\b")
_DIVIDED = re.compile(r"[/%&^-]|>>|\bmin\b|\bmax\b")
_ONE = r"(?:0[xX][\da-fA-F']+|0[bB][01']+|\d[\d']*(?:\.\d*)?(?:[eE]\d+)?)"
_NUMBER = re.compile(rf"(?<![\w.]){_ONE}[uUlLfF]*(?:\s*(?:\*|<<)\s*{_ONE}[uUlLfF]*)*(?!\w)")
_PAIR = re.compile(rf"(?<![\w.*/%<-])({_ONE})[uUlL]*\s*([+*-]|<<)\s*({_ONE})[uUlL]*(?![\w.]|\s*[*/%])")
_BRACKETED = re.compile(rf"(?<!\w)\(\s*({_ONE})[uUlL]*\s*\)")
_NAMED = re.compile(
    r"(?:#[ \t]*define[ \t]+(\w+)[ \t]+|\b(?:const|constexpr)\s[\w\s]*?(\w+)\s*=\s*|[{,]\s*(\w+)\s*=\s*)([^;,\n}]+)"
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
    most = {name: max(sizes[name] for sizes in plan.sizes) for name in names}
    for clause, number in _numbers(plan, candidate, original):
        for name in names:
            tried = {sizes[name] for sizes in checking_sizes(plan)}
            found += [{**base, name: number}] if number not in tried else []
            found += [{**base, name: number + 1}] if number >= max(tried) else []
            found += [{**base, name: 2 * number + 1}] if max(tried) <= number <= most[name] else []
        for name in names & set(re.findall(r"\w+", clause)):
            together.setdefault(name, number + (">" in clause and ">=" not in clause))
    if len(together) > 1:
        found.append({**base, **together})
    if MEASURE in plan.origin:
        found.append({name: min(value, _FEW) for name, value in base.items()})
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
    named = _named(text)
    sized = {*plan.sizes[0], "gridDim", *(p.name for p in kernel.params if not p.pointer)}
    for name, value in _DECLARED.findall(own) * 2:
        if sized & set(re.findall(r"\w+", value)) and not _OF_A_THREAD.search(value):
            sized.add(name)
    for clause in dict.fromkeys(_CLAUSE.split(text)):
        if clause in known:
            continue
        compared, words = _COMPARED.search(clause), set(re.findall(r"\w+", clause))
        least = 2 if compared else _LEAST_DIVISOR if _DIVIDED.search(clause) else _BLOCK + 1
        written = _folded(re.sub(r"[A-Za-z_]\w*", lambda word: named.get(word[0], word[0]), clause))
        for number in {_value(found[0]) for found in _NUMBER.finditer(written)}:
            if number >= (least if words & sized else _BLOCK + 1):
                yield clause, number


def _named(text: str) -> dict[str, str]:
    """Macros, constants and enumerators whose values are numbers."""
    named: dict[str, str] = {}
    for macro, constant, enumerator, value in _NAMED.findall(text):
        folded = _folded(re.sub(r"[A-Za-z_]\w*", lambda word: named.get(word[0], word[0]), value)).strip()
        if _NUMBER.fullmatch(folded):
            named[macro or constant or enumerator] = folded
    return named


def _folded(text: str) -> str:
    """``text`` with what its numbers alone come to."""
    before = ""
    while before != text:
        before = text
        text = _PAIR.sub(lambda found: str(_combined(_whole(found[1]), found[2], _whole(found[3]))), text)
        text = _BRACKETED.sub(r" \1 ", text)
    return text


def _combined(left: int, sign: str, right: int) -> int:
    if sign == "<<":
        return left << min(right, 40)
    return max(0, left + right if sign == "+" else left - right if sign == "-" else left * right)


def _value(text: str) -> int:
    """``4 * 1024`` and ``1 << 20`` as numbers, read from the left."""
    result, shift = 1, False
    for part in re.findall(rf"{_ONE}|<<", text):
        if part == "<<":
            shift = True
            continue
        number = _whole(part)
        result, shift = (result << min(number, 40) if shift else result * number), False
    return result


def _whole(text: str) -> int:
    digits = text.replace("'", "")
    if digits[:2] in ("0x", "0X", "0b", "0B"):
        return int(digits, 0)
    return int(digits, 8) if re.fullmatch(r"0[0-7]+", digits) else int(float(digits))

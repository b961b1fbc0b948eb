"""A kernel's body as a hasty hand leaves it: habits of spelling and waste, line by line. What it computes stays."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence

_LITERAL = re.compile(r"(?<![\w.])(\d+\.\d*(?:e-?\d+)?)f\b")
_FUNCTION = re.compile(r"\b(exp|log|sqrt|tanh|sin|cos|fabs|floor|ceil|pow|erf)f\(")
_VALUE = re.compile(r"(\s*)(?:(float|double|int64_t|int|bool) )?(v\d*) = ([^;]*);$")
_ATOM = re.compile(r"\w+\[[^\[\]]*\]|\w+\([^()]*\)|\w+")
"""What needs no brackets wherever it stands."""
_FMA = re.compile(r"(\s*)(\w+) = fmaf\((.*), \2\);$")
_ELEMENT = "int idx = blockIdx.x * blockDim.x + threadIdx.x;"
_SAME = (
    "int idx = threadIdx.x + blockIdx.x * blockDim.x;",
    "const int idx = blockIdx.x * blockDim.x + threadIdx.x;",
)
_WIDE = (
    "size_t idx = (size_t)blockIdx.x * blockDim.x + threadIdx.x;",
    "long long idx = (long long)blockIdx.x * blockDim.x + threadIdx.x;",
    "size_t idx = blockIdx.x * (size_t)blockDim.x + threadIdx.x;",
)
"""Every index that is computed from it is a division in 64 bits."""
LOCALS = {
    "idx": ("i", "tid", "gid", "index", "id"),
    "row": ("r", "b", "rid", "row_idx"),
    "c": ("j", "col", "i"),
    "v": ("val", "value", "xv", "elem", "t"),
    "total": ("sum", "s", "sum_val", "accum"),
    "peak": ("m", "max_val", "mx", "row_max"),
    "low": ("mn", "min_val"),
    "acc": ("sum", "result", "a", "res"),
    "sq": ("ss", "var_sum", "sum_sq"),
    "mean": ("mu", "avg"),
    "rank": ("pos", "count"),
    "best": ("best_val", "mx"),
    "where": ("best_idx", "arg"),
}


def can_waste(lines: Sequence[str]) -> bool:
    """Whether a body has index arithmetic or a sum that is wasteful in a wider type or in memory."""
    text = "\n".join(lines)
    return _ELEMENT in text and (_is_costly(text) or _step_by_step(list(lines)) != list(lines))


def _is_costly(text: str) -> bool:
    return "for (" in text or bool(re.search(r"int \w+ = idx / ", text))


def hasty(lines: Sequence[str], rng: random.Random, waste: bool) -> list[str]:
    """``lines`` of a body, one statement a line, in the habits that ``rng`` draws. ``waste``: one that costs time is
    among them."""
    made = list(lines)
    if waste and not _is_costly("\n".join(made)):
        made = _step_by_step(made)
    if rng.random() < 0.6:
        made = _nested(made)
    if rng.random() < 0.7:
        made = [_without_fma(line) for line in made]
    if rng.random() < 0.5:
        made = [_LITERAL.sub(r"\1", line) for line in made]
    if rng.random() < 0.5:
        made = [_FUNCTION.sub(r"\1(", line) for line in made]
    if rng.random() < 0.5:
        made = [line.replace("rsqrtf(", "1.0f / sqrtf(") for line in made]
    if rng.random() < 0.3:
        made = [re.sub(r"\b(v\d*) \* \1\b", r"powf(\1, 2.0f)", line) for line in made]
    summed = _in_memory(made) if rng.random() < 0.5 else made
    if waste and summed == made:
        made = [line.replace(_ELEMENT, rng.choice(_WIDE)) for line in made]
    elif rng.random() < 0.5:
        made = [line.replace(_ELEMENT, rng.choice((*_WIDE, *_SAME))) for line in summed]
    else:
        made = summed
    if rng.random() < 0.5:
        made = _early_return(made)
    if rng.random() < 0.6:
        made = _without_base(made)
    return made


def drawn_names(
    texts: Sequence[str], table: Mapping[str, Sequence[str]], rng: random.Random
) -> dict[str, str]:
    """New names, of those in ``table``, for some of the old ones; none that any of ``texts`` has already."""
    taken = set(re.findall(r"\w+", "\n".join(texts)))
    names: dict[str, str] = {}
    for name, choices in table.items():
        free = [choice for choice in choices if choice not in taken]
        if name in taken and free and rng.random() < 0.6:
            names[name] = rng.choice(free)
            taken.add(names[name])
    return names


def renamed(text: str, names: dict[str, str]) -> str:
    """``text`` with ``names`` in place of the old ones, numbered variables too (``v1``)."""
    for old, new in names.items():
        text = re.sub(rf"(?<![\w.]){old}(\d*)\b", rf"{new}\1", text)
    return text


def _without_fma(line: str) -> str:
    found = _FMA.match(line)
    if not found:
        return line
    depth, cuts = 0, []
    for place, sign in enumerate(found[3]):
        depth += (sign in "([") - (sign in ")]")
        if sign == "," and depth == 0:
            cuts.append(place)
    if len(cuts) != 1:
        return line
    return f"{found[1]}{found[2]} += {found[3][: cuts[0]]} * {found[3][cuts[0] + 2 :]};"


def _nested(lines: list[str]) -> list[str]:
    """``v = fmaxf(x[idx], 0.0f);`` in place of a statement for each step, where the next line uses a value once."""
    made: list[str] = []
    for line in lines:
        before = _VALUE.match(made[-1]) if made else None
        uses = len(re.findall(rf"\b{before[3]}\b", line.partition(" = ")[2])) if before else 0
        after = _VALUE.match(line)
        if (
            before
            and after
            and before[1] == after[1]
            and after[3] == before[3]
            and uses == 1
            and not after[2]
        ):
            inner = before[4] if _ATOM.fullmatch(before[4]) else f"({before[4]})"
            kind = f"{before[2]} " if before[2] else ""
            step = re.sub(rf"\b{before[3]}\b", lambda _, text=inner: text, after[4])
            made[-1] = f"{before[1]}{kind}{before[3]} = {step};"
        else:
            made.append(line)
    return made


def _early_return(lines: list[str]) -> list[str]:
    """``if (idx >= n) return;`` in place of braces around the rest."""
    for place, line in enumerate(lines):
        found = re.fullmatch(r"if \((\w+) < (\w+)\) \{", line)
        if found and lines[-1] == "}" and all(inner.startswith("    ") for inner in lines[place + 1 : -1]):
            rest = [inner.removeprefix("    ") for inner in lines[place + 1 : -1]]
            return [*lines[:place], f"if ({found[1]} >= {found[2]}) return;", *rest]
    return lines


def _without_base(lines: list[str]) -> list[str]:
    """The start of the row in each index."""
    for place, line in enumerate(lines):
        found = re.fullmatch(r"(\s*)size_t base = \(size_t\)(\w+) \* (\w+);", line)
        if found:
            index = f"{found[2]} * {found[3]}"
            return [re.sub(r"\bbase\b", index, other) for other in [*lines[:place], *lines[place + 1 :]]]
    return lines


def _step_by_step(lines: list[str]) -> list[str]:
    """Every step of an element written to the result's memory and read from there again."""
    found = [match for line in lines if (match := re.fullmatch(r"\s*(\w+\[idx\]) = (v\d*);", line))]
    if len(found) != 1:
        return lines
    place, name = found[0].groups()
    steps = [line for line in lines if re.match(rf"\s*(float )?{name} = ", line)]
    starts = [line for line in steps if line.strip().startswith("float ")]
    indents = {len(line) - len(line.lstrip()) for line in steps}
    if len(steps) < 2 or len(starts) != 1 or len(indents) != 1:
        return lines
    made = []
    for line in lines:
        if line != found[0][0]:
            line = line.replace(f"float {name} = ", f"{name} = ") if line in starts else line
            made.append(re.sub(rf"\b{name}\b", place, line))
    return made


def _in_memory(lines: list[str]) -> list[str]:
    """A sum that is kept in the result's memory."""
    found = next(
        (re.match(r"\s*(\w+\[\w+\]) = acc;$", line) for line in lines if line.strip().endswith("= acc;")),
        None,
    )
    start = [line for line in lines if re.match(r"\s*(float|int64_t) acc = ", line)]
    if found is None or len(start) != 1 or found[1].startswith("v"):
        return lines
    made = []
    for line in lines:
        if line.strip() == f"{found[1]} = acc;":
            continue
        line = re.sub(r"(\s*)(?:float|int64_t) acc = ", rf"\1{found[1]} = ", line)
        made.append(re.sub(r"\bacc\b", found[1], line))
    return made

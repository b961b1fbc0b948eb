"""The last hand on a kernel's body: no name that nothing uses, no new variable where one has done its work."""

from __future__ import annotations

import re

_INTEGER = re.compile(r"\s*int (\w+) = [^;]*;$")
_VARIABLE = re.compile(r"(\s*)(float|double|int64_t|int|bool) (v\d*)( = [^;]*;|;)$")


def tidy(lines: list[str]) -> list[str]:
    """``lines`` of a kernel's body, one statement a line."""
    return _joined(_numbered(_reused(_without_dead(lines))))


def _joined(lines: list[str]) -> list[str]:
    """``} else {`` on one line."""
    kept: list[str] = []
    for line in lines:
        if line.lstrip().startswith("else") and kept and kept[-1].strip() == "}":
            kept[-1] += " " + line.lstrip()
        else:
            kept.append(line)
    return kept


def _without_dead(lines: list[str]) -> list[str]:
    while True:
        kept = []
        for place, line in enumerate(lines):
            found = _INTEGER.match(line)
            block = "\n".join(lines[place : _end(lines, place)]) if found else ""
            if found is None or len(re.findall(rf"\b{found[1]}\b", block)) > 1:
                kept.append(line)
        if len(kept) == len(lines):
            return _unbraced(lines)
        lines = kept


def _unbraced(lines: list[str]) -> list[str]:
    """``if (lane == 0) out[row] = total;`` where only one statement is left between the braces."""
    made: list[str] = []
    for line in lines:
        if (
            line.strip() == "}"
            and len(made) > 1
            and re.match(r"\s*if \((lane|threadIdx\.x) == 0\) \{$", made[-2])
        ):
            statement = made.pop().strip()
            made[-1] = made[-1].removesuffix("{") + statement
        else:
            made.append(line)
    return made


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _end(lines: list[str], start: int) -> int:
    """Behind the last line of the block that line ``start`` stands in."""
    depth = _depth(lines[start])
    return next((k for k in range(start + 1, len(lines)) if _depth(lines[k]) < depth), len(lines))


def _reused(lines: list[str]) -> list[str]:
    """``float v1 = expf(v);`` becomes ``v = expf(v);`` where ``v`` is of the block and not needed any more."""
    lines = list(lines)
    for place in range(len(lines)):
        found = _VARIABLE.match(lines[place])
        if found is None or not found[4].startswith(" = "):
            continue
        end = _end(lines, place)
        rest = "\n".join(lines[place + 1 : end])
        for name in re.findall(r"\bv\d*\b", found[4]):
            if re.search(rf"\b{name}\b", rest) or not _own(lines, place, name, found[2]):
                continue
            lines[place] = f"{found[1]}{name}{found[4]}"
            _rename(lines, place + 1, end, found[3], name)
            break
    return lines


def _own(lines: list[str], place: int, name: str, kind: str) -> bool:
    """Whether ``name`` is declared as ``kind`` in the block of line ``place``, above it."""
    for k in range(place - 1, -1, -1):
        if _depth(lines[k]) < _depth(lines[place]):
            return False
        found = _VARIABLE.match(lines[k])
        if found and found[3] == name and _depth(lines[k]) == _depth(lines[place]):
            return found[2] == kind
    return False


def _rename(lines: list[str], start: int, end: int, old: str, new: str) -> None:
    for k in range(start, end):
        lines[k] = re.sub(rf"\b{old}\b", new, lines[k])


def _numbered(lines: list[str]) -> list[str]:
    """Variables numbered without gaps: ``v``, ``v1``, ``v2``."""
    lines = list(lines)
    scopes: list[tuple[int, str]] = []
    for place in range(len(lines)):
        while scopes and scopes[-1][0] > _depth(lines[place]):
            scopes.pop()
        found = _VARIABLE.match(lines[place])
        if found is None:
            continue
        taken = {name for _, name in scopes}
        best = next(name for name in ("v", *(f"v{k}" for k in range(1, 999))) if name not in taken)
        end = _end(lines, place)
        if best != found[3] and not re.search(rf"\b{best}\b", "\n".join(lines[place:end])):
            _rename(lines, place, end, found[3], best)
            scopes.append((len(found[1]), best))
        else:
            scopes.append((len(found[1]), found[3]))
    return lines

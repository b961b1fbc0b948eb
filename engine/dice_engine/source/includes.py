"""A source with the project's own headers in their places, and where each of its lines comes from."""

from __future__ import annotations

import functools
import os
import re
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dice_engine.source.plan import Plan

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)[^\n]*$')
_DEFINITION = re.compile(r"(\w+(?:\([\w, ]*\))?)(?:=(.*))?", re.DOTALL)
_LINE = re.compile(r"\bline (\d+)\b")
_MOST_BYTES = 4 << 20
_MOST_FILES = 1000
_MOST_FOLDERS = 2000
_FRESH_S = 5
_SKIPPED = frozenset({"build", "node_modules", "third_party", "__pycache__"})


@dataclass(frozen=True)
class Unit:
    """One text as a compiler sees it. ``places``: file and line (from 1) of each of its lines."""

    path: str
    text: str
    places: tuple[tuple[str, int], ...]
    files: frozenset[str] = frozenset()
    """The headers that stand in it."""

    def placed(self, plan: Plan, document: str) -> Plan:
        """``plan``, which was made for this text, with the lines that it names being those of the files."""

        def name(match: re.Match[str]) -> str:
            number = int(match.group(1))
            if not 1 <= number <= len(self.places):
                return match.group()
            file, line = self.places[number - 1]
            return f"line {line}" if file == document else f"line {line} of {Path(file).name}"

        return replace(
            plan,
            reason=_LINE.sub(name, plan.reason) if plan.reason else None,
            origin={part: _LINE.sub(name, words) for part, words in plan.origin.items()},
        )


def unit(
    text: str,
    path: str,
    folders: Sequence[str] = (),
    definitions: Sequence[str] = (),
    within: Path | None = None,
    known: Mapping[str, str] | None = None,
) -> Unit:
    """``text`` of the file at ``path`` with headers that are found in their places and ``definitions`` on top.

    Headers are looked for as a compiler does, each stands once, and what is not found stays as it is. ``within``: only
    headers below this folder are read. ``known``: texts by full path, for files whose text on disk is not the newest.
    """
    reading = _Reading(tuple(folders), within, dict(known or {}))
    reading.take(text, path)
    if reading.size > _MOST_BYTES:
        reading = _Reading((), Path(os.devnull), {})
        reading.take(text, path)
    defined = [line for line in map(_define, definitions) if line]
    lines = defined + reading.lines
    places = [(path, 1)] * len(defined) + reading.places
    return Unit(path, "\n".join(lines), tuple(places), frozenset(reading.seen))


class _Reading:
    def __init__(self, folders: tuple[str, ...], within: Path | None, known: dict[str, str]) -> None:
        self.folders, self.within, self.known = folders, within, known
        self.lines: list[str] = []
        self.places: list[tuple[str, int]] = []
        self.seen: set[str] = set()
        self.size = 0

    def take(self, text: str, path: str) -> None:
        for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
            match = _INCLUDE.match(line) if "#" in line else None
            header = self._header(Path(path).parent, *match.groups()) if match else None
            if header is None:
                self._put(line, path, number)
            elif header in self.seen:
                self._put("", path, number)
            elif (inside := self._text(header)) is None:
                self._put(line, path, number)
            else:
                self.seen.add(header)
                self.take(inside.removesuffix("\n"), header)

    def _put(self, line: str, path: str, number: int) -> None:
        self.lines.append(line)
        self.places.append((path, number))
        self.size += len(line)

    def _header(self, folder: Path, quoted: str | None, angled: str | None) -> str | None:
        if len(self.seen) >= _MOST_FILES or self.size > _MOST_BYTES:
            return None
        near = [folder] if quoted else []
        for place in (*near, *map(Path, self.folders)):
            try:
                file = (place / (quoted or angled or "")).resolve()
                if self.within is not None and not file.is_relative_to(self.within.resolve()):
                    continue
                if str(file) in self.known or file.is_file():
                    return str(file)
            except (OSError, ValueError, RuntimeError):
                continue
        return None

    def _text(self, file: str) -> str | None:
        return self.known[file] if file in self.known else text_of(file)


def text_of(file: str) -> str | None:
    """The text of a source file, ``\\n`` line ends; None where it cannot be read."""
    try:
        told = Path(file).stat()
        return _read(file, told.st_mtime_ns, told.st_size)
    except (OSError, UnicodeDecodeError):
        return None


@functools.lru_cache(maxsize=_MOST_FILES)
def _read(file: str, modified: int, size: int) -> str:
    if size > _MOST_BYTES:
        raise OSError(f"{file} is too long")
    return Path(file).read_text(encoding="utf-8-sig").replace("\r\n", "\n")


def _define(definition: str) -> str:
    match = _DEFINITION.fullmatch(definition)
    if match is None:
        return ""
    return f"#define {match.group(1)} {'1' if match.group(2) is None else match.group(2)}"


def sources_below(folder: Path) -> tuple[str, ...]:
    """The ``.cu`` files of a project, nearest to the top first; hidden and foreign folders are left out. What was
    found holds for some seconds."""
    return _sources(str(folder), int(time.monotonic() / _FRESH_S))


@functools.lru_cache(maxsize=8)
def _sources(top: str, moment: int) -> tuple[str, ...]:
    found: list[str] = []
    waiting = deque([Path(top)])
    for _ in range(_MOST_FOLDERS):
        if not waiting or len(found) >= _MOST_FILES:
            break
        try:
            inside = sorted(waiting.popleft().iterdir())
            found += [str(one) for one in inside if one.suffix == ".cu" and one.is_file()]
            waiting += [
                one
                for one in inside
                if not one.name.startswith(".")
                and one.name not in _SKIPPED
                and one.is_dir()
                and not one.is_symlink()
            ]
        except OSError:
            continue
    return tuple(found)

"""What a project says about its sources: annotations in ``dice.toml``, include folders and definitions of its build.

Only data is taken: which compiler runs, and whether, is never up to a project.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from dice_engine.source.annotation_text import KERNEL_KEYS, MODULE_KEYS, suggestion
from dice_engine.source.includes import text_of, unit
from dice_engine.source.recorded import FILE as RECORDED
from dice_engine.source.recorded import Recorded, load_recorded

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = "dice.toml"
COMMANDS = ("compile_commands.json", "build/compile_commands.json")
_ASSIGNED = frozenset({"grid", "block", "smem", "host", "fixture"})


@dataclass(frozen=True)
class Build:
    """Include folders (full paths) and definitions (``NAME`` or ``NAME=value``) that a source is compiled with."""

    folders: tuple[str, ...] = ()
    definitions: tuple[str, ...] = ()

    @property
    def flags(self) -> list[str]:
        return [f"-I{folder}" for folder in self.folders] + [f"-D{name}" for name in self.definitions]

    def expanded(self, text: str, path: str) -> str:
        """``text`` of the file at ``path`` with the project's own headers in their places and its definitions on top.

        What is compiled elsewhere then needs no file of the project. Headers that are not found stay as they are.
        """
        whole = unit(text, path, self.folders, self.definitions)
        return whole.text if whole.files or self.definitions else text


@dataclass(frozen=True)
class Project:
    """One project's words. ``problems``: what could not be taken, one line each."""

    root: Path | None = None
    kernels: tuple[tuple[str, str, str], ...] = ()
    """Name, pattern of its file, and the annotation as it would stand after ``@dice``; the same for ``modules``."""
    modules: tuple[tuple[str, str, str], ...] = ()
    build: Build = Build()
    commands: Mapping[str, Build] = field(default_factory=dict)
    """By full path of the source: what its compile command says."""
    recorded: Recorded = field(default_factory=Recorded)
    """What ``dice record`` saw."""
    problems: tuple[str, ...] = ()

    def annotation(self, kind: str, name: str, path: str) -> str | None:
        """The annotation that ``dice.toml`` gives a ``kernel`` or ``module`` of a file."""
        for known, pattern, text in self.kernels if kind == "kernel" else self.modules:
            if known == name and self._matches(path, pattern):
                return text
        return None

    def build_of(self, path: str) -> Build:
        """What a source is compiled with; a header has what some source beside it has."""
        own = self.commands.get(str(Path(path)))
        if own is None:
            near = [file for file in self.commands if Path(file).parent == Path(path).parent]
            own = self.commands[near[0]] if near else Build()
        return Build(
            tuple(dict.fromkeys((*self.build.folders, *own.folders))),
            tuple(dict.fromkeys((*self.build.definitions, *own.definitions))),
        )

    def whole(self, text: str, path: str, through: str | None = None) -> str:
        """The text that is run for a kernel of the file at ``path``: :meth:`Build.expanded`, or where the kernel's plan
        goes ``through`` another source, that source with ``text`` in the header's place.

        Raises OSError where that source cannot be read any more.
        """
        build = self.build_of(through or path)
        if through is None:
            return build.expanded(text, path)
        source = text_of(through)
        if source is None:
            raise OSError(f"{through}, which launches it, cannot be read")
        known = {str(Path(path).resolve()): text}
        return unit(source, through, build.folders, build.definitions, known=known).text

    def _matches(self, path: str, pattern: str) -> bool:
        if not pattern or self.root is None:
            return True
        file = Path(path)
        inside = file.relative_to(self.root).as_posix() if file.is_relative_to(self.root) else file.as_posix()
        return fnmatch(inside, pattern)


def load(root: Path) -> Project:
    """The project at ``root``; one without such files says nothing."""
    problems: list[str] = []
    data = _toml(root / FILE, problems)
    for key in data:
        if key not in ("kernel", "module", "build"):
            hint = suggestion(key, ("kernel", "module", "build"))
            problems.append(
                f"{FILE}: unknown table [{key}].{hint} Known: kernel, module, build. Settings belong to the editor."
            )
    commands: dict[str, Build] = {}
    for name in COMMANDS:
        commands |= _commands(root / name, problems)
    kernels = _annotations(data.get("kernel"), "kernel", KERNEL_KEYS, problems)
    modules = _annotations(data.get("module"), "module", MODULE_KEYS, problems)
    build = _build(data.get("build"), root, problems)
    recorded, wrong = load_recorded(root)
    return Project(root, kernels, modules, build, commands, recorded, (*problems, *wrong))


def project_around(path: str) -> Project:
    """The project of the nearest folder above a file that has a ``dice.toml``, compile commands or a recording, or that
    is a repository."""
    for folder in Path(path).absolute().parents:
        if (
            any((folder / name).is_file() for name in (FILE, *COMMANDS, RECORDED))
            or (folder / ".git").exists()
        ):
            return load(folder)
    return Project()


def _toml(path: Path, problems: list[str]) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        problems.append(f"{path.name} cannot be read: {error}")
        return {}


def _annotations(
    tables: Any, kind: str, keys: Iterable[str], problems: list[str]
) -> tuple[tuple[str, str, str], ...]:
    found = []
    for name, table in tables.items() if isinstance(tables, dict) else ():
        if not isinstance(table, dict):
            problems.append(f"{FILE}: [{kind}.{name}] must be a table")
            continue
        items = []
        for key, value in table.items():
            texts = value if isinstance(value, list) else [value]
            if key not in ("file", *keys):
                known = ", ".join(("file", *keys))
                problems.append(
                    f"{FILE}: [{kind}.{name}] has an unknown key {key!r}.{suggestion(key, keys)} Known: {known}"
                )
            elif not all(isinstance(text, str | int) and not isinstance(text, bool) for text in texts):
                problems.append(f"{FILE}: [{kind}.{name}] {key} must be text")
            elif key != "file":
                joined = ("; " if key == "sizes" else ", ").join(map(str, texts))
                items.append(f"{key}={joined}" if key in _ASSIGNED else f"{key}({joined})")
        pattern = table.get("file", "")
        found.append((name, pattern if isinstance(pattern, str) else "", " ".join(items)))
    return tuple(found)


def _build(table: Any, root: Path, problems: list[str]) -> Build:
    if table is None:
        return Build()
    values: dict[str, tuple[str, ...]] = {"include": (), "define": ()}
    for key, value in table.items() if isinstance(table, dict) else ():
        if key not in values:
            problems.append(f"{FILE}: [build] has an unknown key {key!r}. Known: include, define")
        elif not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            problems.append(f"{FILE}: [build] {key} must be a list of texts")
        else:
            values[key] = tuple(value)
    return Build(tuple(str((root / folder).resolve()) for folder in values["include"]), values["define"])


def _commands(path: Path, problems: list[str]) -> dict[str, Build]:
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        problems.append(f"{path.name} cannot be read: {error}")
        return {}
    found = {}
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, dict) or not isinstance(entry.get("file"), str):
            continue
        folder = Path(str(entry.get("directory", path.parent)))
        arguments = entry.get("arguments")
        if not isinstance(arguments, list):
            try:
                arguments = shlex.split(str(entry.get("command", "")))
            except ValueError:
                continue
        found[str((folder / entry["file"]).absolute())] = _flags([str(one) for one in arguments], folder)
    return found


def _flags(arguments: list[str], folder: Path) -> Build:
    folders, definitions = [], []
    following = ""
    for argument in arguments:
        if following:
            (folders if following == "I" else definitions).append(argument)
            following = ""
        elif argument in ("-I", "-isystem", "-iquote", "--include-path", "-D", "--define-macro"):
            following = "D" if argument in ("-D", "--define-macro") else "I"
        elif argument.startswith("-I") or argument.startswith("--include-path="):
            folders.append(argument.removeprefix("-I").removeprefix("--include-path="))
        elif argument.startswith("-isystem"):
            folders.append(argument.removeprefix("-isystem").lstrip("="))
        elif argument.startswith("-D") or argument.startswith("--define-macro="):
            definitions.append(argument.removeprefix("-D").removeprefix("--define-macro="))
    return Build(tuple(str((folder / one).resolve()) for one in folders), tuple(definitions))

"""``.dice/recorded.json``: what ``dice record`` saw of the user's program. Plans for modules, and hot lines.

The file lies in the workspace, so nothing of it is trusted: shapes must be numbers and types known names before any
of it becomes Python text.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dice_engine.source.plan import Plan
from dice_engine.source.pytorch import Definition, ModuleClass

FILE = ".dice/recorded.json"
_FLOATS = {"float16", "float32", "float64", "bfloat16"}
_WHOLE = {"int8", "int16", "int32", "int64", "uint8"}
_SHORT = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u"}
_HOT = 0.05
"""Least share of the time that makes a line hot."""
_MOST_ELEMENTS = 1 << 31


@dataclass(frozen=True)
class HotLine:
    """A line of a file that took a good part of the recorded time; ``line`` from 0, as it was then."""

    line: int
    text: str
    words: str
    share: float


@dataclass(frozen=True)
class Recorded:
    """A recording; empty when there is none or it cannot be read."""

    root: Path | None = None
    modules: tuple[dict[str, Any], ...] = ()
    functions: tuple[dict[str, Any], ...] = ()
    ops: tuple[dict[str, Any], ...] = ()
    device: str = "cpu"
    command: str = ""

    def plan(self, path: str, one: Definition, has_init: bool) -> Plan | None:
        """The plan that the calls of a class or function give; None when it was not called or cannot be made again.

        ``has_init``: the file says itself what the constructor is given (``get_init_inputs``).
        """
        is_class = isinstance(one, ModuleClass)
        for entry in self.modules if is_class else self.functions:
            if entry["class" if is_class else "function"] != one.name or entry["file"] != str(Path(path)):
                continue
            inputs = _inputs(entry.get("inputs"))
            init = _plain(entry.get("init")) if is_class else []
            if inputs is None or (init is None and not has_init):
                continue
            source = f"\n\ndef get_inputs():\n    return [{', '.join(inputs)}]\n"
            if init is not None:
                source += f"\n\ndef get_init_inputs():\n    return [{', '.join(init)}]\n"
            calls, seen = int(entry["calls"]), ", ".join(map(short, entry["inputs"]))
            origin = f"recorded: {calls} calls with {seen}" + (f" ({self.command})" if self.command else "")
            return Plan("recorded", inputs_source=source, origin={"inputs": origin})
        return None

    def hot_lines(self, path: str) -> list[HotLine]:
        """The hot lines of a file, each once, with all that ran there added up."""
        file, found = str(Path(path)), {}
        for entry in self.ops:
            if entry["file"] == file:
                known = found.setdefault((entry["line"], entry["text"]), [0.0, 0, ""])
                known[0] += entry["share"]
                known[1] += entry["calls"]
                known[2] = known[2] or ", ".join(map(short, entry["inputs"]))
        where = "GPU time" if self.device != "cpu" else "the time"
        return [
            HotLine(line - 1, text, f"{100 * share:.0f} % of {where}, {calls} calls, {shapes}", share)
            for (line, text), (share, calls, shapes) in sorted(found.items())
            if share >= _HOT
        ]


def load_recorded(root: Path) -> tuple[Recorded, list[str]]:
    """The recording of a project, and what is wrong with it."""
    try:
        data = json.loads((root / FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return Recorded(), []
    except (OSError, ValueError) as error:
        return Recorded(), [f"{FILE} cannot be read: {error}"]
    if not isinstance(data, dict) or data.get("version") != 1:
        return Recorded(), [f"{FILE} is of another version; record again"]
    modules = tuple(entry for entry in _entries(data, "modules") if isinstance(entry.get("class"), str))
    functions = tuple(
        entry for entry in _entries(data, "functions") if isinstance(entry.get("function"), str)
    )
    ops = tuple(
        entry
        for entry in _entries(data, "ops")
        if type(entry.get("line")) is int and isinstance(entry.get("text"), str)
    )
    command = data.get("command")
    words = " ".join(map(str, command)) if isinstance(command, list) else ""
    return Recorded(
        root,
        modules,
        functions,
        ops,
        str(data.get("device", "cpu")),
        words.splitlines()[0][:200] if words else "",
    ), []


def _entries(data: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    entries = data.get(kind)
    return [
        entry
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, dict)
        and isinstance(entry.get("file"), str)
        and type(entry.get("calls")) is int
        and isinstance(entry.get("share"), int | float)
        and isinstance(entry.get("inputs"), list)
    ]


def short(given: Any) -> str:
    """``f16[64,1024]``; a plain value as it is."""
    if not isinstance(given, dict) or "shape" not in given:
        return str(given.get("value", "?"))[:20] if isinstance(given, dict) else "?"
    dtype = str(given.get("dtype"))
    kind = dtype.rstrip("0123456789")
    return f"{_SHORT.get(kind, kind)}{dtype[len(kind) :]}[{','.join(str(size) for size in given['shape'])}]"


def _inputs(given: Any) -> list[str] | None:
    made = [_tensor(one) if isinstance(one, dict) and "shape" in one else _value(one) for one in given or []]
    return None if not made or None in made else [one for one in made if one is not None]


def _plain(given: Any) -> list[str] | None:
    if not isinstance(given, list):
        return None
    made = [_value(one) for one in given]
    return None if None in made else [one for one in made if one is not None]


def _tensor(given: dict[str, Any]) -> str | None:
    shape, dtype, stride = given.get("shape"), given.get("dtype"), given.get("stride")
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        return None
    elements = 1
    for size in shape:
        elements *= size
    if elements > _MOST_ELEMENTS:
        return None
    sizes = ", ".join(map(str, shape))
    if dtype in _FLOATS:
        made = f"torch.randn([{sizes}]).to(torch.{dtype})"
    elif dtype in _WHOLE:
        made = f"torch.randint(0, 2, [{sizes}], dtype=torch.{dtype})"
    elif dtype == "bool":
        made = f"torch.rand([{sizes}]) < 0.5"
    else:
        return None
    if isinstance(stride, list) and len(stride) == len(shape) and all(type(one) is int for one in stride):
        order = sorted(range(len(shape)), key=lambda axis: -stride[axis])
        if order != list(range(len(shape))) and all(one > 0 for one in stride):
            # The same dense tensor with its axes in another order.
            back = [order.index(axis) for axis in range(len(shape))]
            laid = ", ".join(str(shape[axis]) for axis in order)
            made = made.replace(f"[{sizes}]", f"[{laid}]", 1)
            made = f"({made}).permute({', '.join(map(str, back))})"
    return made


def _value(given: Any) -> str | None:
    if not isinstance(given, dict) or "value" not in given:
        return None
    value = given["value"]
    plain = isinstance(value, bool | int | float | str) or value is None
    if not plain and not (
        isinstance(value, list) and all(isinstance(one, bool | int | float) for one in value)
    ):
        return None
    numbers = value if isinstance(value, list) else [value]
    finite = all(not isinstance(one, float) or math.isfinite(one) for one in numbers)
    return repr(value) if finite else None

"""Reading ``@dice`` lines into an ``Annotation``."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Literal, cast

from dice_engine.source.annotation import Annotation
from dice_engine.source.annotation_inputs import input_makers
from dice_engine.source.annotation_text import (
    KERNEL_KEYS,
    MODULE_KEYS,
    AnnotationErrors,
    AnnotationText,
    DiceLine,
    Item,
    Span,
    suggestion,
)
from dice_engine.source.expressions import ExpressionError, evaluate
from dice_engine.source.host_types import size_of
from dice_engine.source.plan import Buffer, Fill, Tolerance

_FILLS = ("normal", "int", "prefix_sum")
_BUFFER = re.compile(r"([A-Za-z_]\w*)\s*\[(.*)\]", re.DOTALL)
_INT_FILL = re.compile(r"int\s*\[(.*)([\])])", re.DOTALL)
_SIZEOF = re.compile(r"\bsizeof\s*\(\s*([\w ]+?)\s*\)")


def parse_annotation(lines: Sequence[DiceLine], kind: Literal["kernel", "module"] = "kernel") -> Annotation:
    """Read the ``@dice`` lines above one kernel or module.

    Raises:
        AnnotationErrors: with every fault found, each naming the known keys or forms.
    """
    text = AnnotationText(lines, KERNEL_KEYS if kind == "kernel" else MODULE_KEYS)
    annotation = Annotation(text)
    seen: dict[str, Span] = {}
    for item in text.items():
        key = item.key.text
        if key in seen and key not in ("in", "out", "inout", "tmp", "fill"):
            text.error(item.key, f"`{key}` is given twice (first on line {text.line_of(seen[key])})")
            continue
        seen[key] = item.key
        annotation.places.setdefault(key, item.key)
        _read_item(annotation, item)
    if text.errors:
        raise AnnotationErrors(sorted(text.errors, key=lambda error: (error.line, error.column)))
    return annotation


def _read_item(annotation: Annotation, item: Item) -> None:
    text, key, value = annotation.text, item.key.text, item.value
    if key in ("grid", "block"):
        parts = text.split(value, ",")
        if len(parts) > 3:
            text.error(parts[3], f"`{key}` has at most three dimensions")
        expressions = tuple(_expression(text, part) for part in parts)
        if key == "grid":
            annotation.grid = expressions
        else:
            annotation.block = expressions
    elif key == "smem":
        annotation.smem = _expression(text, value)
    elif key in ("in", "out", "inout", "tmp"):
        _read_buffers(annotation, item)
    elif key == "sizes":
        annotation.sizes = _read_sizes(text, item)
    elif key == "fill":
        _read_fills(annotation, item)
    elif key == "tmpl":
        annotation.templates = _read_templates(text, item)
    elif key == "tol":
        annotation.tolerance = _read_tolerance(text, item)
    elif key == "host":
        annotation.host = value.text
    elif key == "fixture":
        annotation.fixture = value.text
        if not re.fullmatch(r"[^:]+\.py:[A-Za-z_]\w*", value.text):
            text.error(value, f"`fixture=` wants `path.py:function`, found `{value.text}`")
    elif key == "inputs":
        symbols = text.keys != MODULE_KEYS
        annotation.inputs = input_makers(text, item, tensors=True, symbols=symbols)
    else:
        annotation.init = input_makers(text, item, tensors=False)


def _expression(text: AnnotationText, part: Span) -> str:
    """An integer expression of plans; ``sizeof(T)`` becomes a number, or ``sizeof_T``."""

    def size(match: re.Match[str]) -> str:
        name = " ".join(match.group(1).split())
        known = size_of(name)
        if known is None and not name.isidentifier():
            text.error(part, f"the size of `{name}` is not known here: write its number of bytes")
        return str(known) if known is not None else f"sizeof_{name}"

    expression = _SIZEOF.sub(size, part.text)
    try:
        evaluate(expression, _Any())
    except ExpressionError as error:
        if "division by zero" not in str(error) and "64 bits" not in str(error) and "shift" not in str(error):
            text.error(part, str(error))
    return " ".join(expression.split())


class _Any(dict[str, int]):
    """Every symbol has a value: only the form of an expression is looked at."""

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: str) -> int:
        return 7


def _read_buffers(annotation: Annotation, item: Item) -> None:
    text = annotation.text
    role = cast(Literal["in", "out", "inout", "tmp"], item.key.text)
    for part in text.split(item.value, ",;"):
        match = _BUFFER.fullmatch(part.text)
        if match is None or not match.group(2).strip():
            text.error(part, f"a buffer is written as `name[extent]`, found `{part.text}`")
            continue
        name, start = match.group(1), part.start + match.start(2)
        if any(buffer.name == name for buffer in annotation.buffers):
            text.error(part, f"`{name}` is given twice")
            continue
        extent = _expression(text, text.span(start, part.start + match.end(2)))
        annotation.places[f"buffer {name}"] = Span(name, part.start, part.start + len(name))
        annotation.buffers += (Buffer(name, role, extent),)


def _read_sizes(text: AnnotationText, item: Item) -> tuple[dict[str, int], ...]:
    sets = []
    for group in text.split(item.value, ";"):
        values: dict[str, int] = {}
        for part in text.split(group, ","):
            pair = text.pair(part, "`name=number`")
            if pair is None:
                continue
            name, value = pair
            try:
                values[name.text] = evaluate(value.text, values)
            except ExpressionError as error:
                text.error(value, str(error))
                continue
            if values[name.text] < 0:
                text.error(value, f"the size `{name.text}` is negative")
        sets.append(values)
    if not sets:
        text.error(item.key, "`sizes()` is empty: write `sizes(n=1000; n=33)`")
    for values in sets[1:]:
        if values.keys() != sets[0].keys():
            names = ", ".join(sorted(values.keys() ^ sets[0].keys()))
            text.error(item.key, f"every set of sizes must give the same names; only some give {names}")
            break
    return tuple(sets)


def _read_fills(annotation: Annotation, item: Item) -> None:
    text = annotation.text
    for part in text.split(item.value, ";,"):
        pair = text.pair(part, "`name=int[low,high)`, `name=prefix_sum` or `name=normal`")
        if pair is None:
            continue
        name, value = pair
        annotation.places[f"fill {name.text}"] = name
        match = _INT_FILL.fullmatch(value.text)
        if match:
            bounds = text.split(text.span(value.start + match.start(1), value.start + match.end(1)), ",")
            if len(bounds) != 2:
                text.error(value, f"an integer fill is written as `int[low,high)`, found `{value.text}`")
                continue
            low, high = (_expression(text, bound) for bound in bounds)
            inclusive = match.group(2) == "]"
            annotation.fills[name.text] = Fill("int", low, f"({high})+1" if inclusive else high)
        elif value.text in ("normal", "prefix_sum"):
            annotation.fills[name.text] = Fill(value.text)
        else:
            word = re.split(r"[\[(]", value.text)[0].strip()
            hint = suggestion(word, _FILLS)
            text.error(value, f"unknown fill `{value.text}`.{hint} Known: int[low,high), prefix_sum, normal.")


def _read_templates(text: AnnotationText, item: Item) -> tuple[dict[str, str], ...]:
    choices: dict[str, list[str]] = {}
    for part in text.split(item.value, ",;"):
        pair = text.pair(part, "`T=float|half`")
        if pair is not None:
            name, value = pair
            choices[name.text] = [
                " ".join(choice.split()) for choice in value.text.split("|") if choice.strip()
            ]
    return tuple(dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values()))


def _read_tolerance(text: AnnotationText, item: Item) -> Tolerance:
    values = {"rel": 0.0, "abs": 0.0}
    for part in text.split(item.value, ",;"):
        pair = text.pair(part, "`rel=1e-3` or `abs=1e-6`")
        if pair is None:
            continue
        name, value = pair
        if name.text not in values:
            text.error(
                name, f"unknown tolerance `{name.text}`.{suggestion(name.text, values)} Known: rel, abs."
            )
            continue
        try:
            values[name.text] = float(value.text)
        except ValueError:
            text.error(value, f"`{value.text}` is no number")
            continue
        if not 0 <= values[name.text] < float("inf"):
            text.error(value, f"the tolerance `{name.text}` must be zero or more")
    return Tolerance(**values)

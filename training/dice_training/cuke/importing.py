"""Programs that people have to rows with a hole: folders of kernels, and JSONL of the published form.

A ``.py`` file with ``load_inline`` and a PyTorch module gives its CUDA source (``load_inline_core``) and, where the
module stands before what replaces it, the whole replacement (``module``). A ``.cu`` file gives the body of each
kernel that can be run. ``NAME.slow.cu`` beside ``NAME.cu`` is the version that it replaced: its bodies are the
references; without one the reference is empty, and there is nothing to be faster than. Rows that ``dice cuke build``
wrote are taken as they are, to be timed and filtered.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dice_engine.source.hole import Hole
from dice_engine.source.holes import decode, find_holes
from dice_engine.source.pytorch import ModuleClass, module_classes, parse

from dice_training.cuke.forward_form import operators
from dice_training.cuke.spec import is_test
from dice_training.cuke.verify import Row
from dice_training.data import DataError
from dice_training.tasks import task_row

SLOW = ".slow.cu"
_PUBLISHED = ("pytorch_code", "cuda_code")
_CUKE = ("id", "kind", "family", "split", "reference", "prefix", "core", "suffix")


class Unusable(ValueError):
    """A file or line that gives no row; the message says why."""


def sources(places: list[Path]) -> Iterator[tuple[str, Path, str | dict[str, Any]]]:
    """(name, path, text or published row) of everything in folders, single files and JSONL files, in order."""
    for place in places:
        if place.is_dir():
            files = (path for path in sorted(place.rglob("*")) if path.suffix in (".py", ".cu", ".cuh"))
        elif place.suffix in (".py", ".cu", ".cuh", ".jsonl"):
            files = iter([place])
        else:
            raise DataError(f"{place}: not a folder, .py, .cu or .jsonl file")
        for path in files:
            if path.name.endswith(SLOW):
                continue
            try:
                text = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise DataError(f"{path}: cannot be read: {error}") from error
            if path.suffix == ".jsonl":
                yield from _entries(path, text)
            else:
                name = path.relative_to(place).as_posix() if place.is_dir() else path.name
                yield name, path, text


def _entries(path: Path, text: str) -> Iterator[tuple[str, Path, dict[str, Any]]]:
    """Lines of the published form, or of a CuKe file."""
    for number, line in enumerate(text.splitlines(), 1):
        try:
            entry = json.loads(line)
            wanted = _CUKE if "core" in entry else _PUBLISHED
            if not all(isinstance(entry[key], str) for key in wanted):
                raise TypeError(f"{', '.join(wanted)} must be text")
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}:{number}: not a row with {', '.join(_PUBLISHED)}: {error}") from error
        yield f"{path.name}:{entry.get('id', number)}", path, entry


def rows_of(name: str, path: Path, content: str | dict[str, Any], licence: str) -> list[Row]:
    """The rows of one source, not verified yet. Raises Unusable where it has none."""
    if isinstance(content, dict) and "core" in content:
        return [{"licence": licence, "provenance": {"source": name}, **content}]
    if isinstance(content, dict):
        drafts = _published_rows(content)
        text = content["cuda_code"]
        licence = str(content.get("licence", licence))
    elif path.suffix == ".py":
        drafts, text = _python_rows(content), content
    else:
        drafts, text = _cuda_rows(path, content), content
    digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    for number, row in enumerate(drafts):
        row["id"] = f"{name}#{number}"
        row["program"] = row["prefix"] + row["core"] + row["suffix"]
        row["split"] = "test" if is_test(row["family"]) else "train"
        row["provenance"] = {"source": name, "digest": digest}
        row["licence"] = licence
    return drafts


def _published_rows(entry: dict[str, Any]) -> list[Row]:
    pytorch, program = entry["pytorch_code"], entry["cuda_code"]
    parts = tuple(entry.get(key) for key in ("prefix", "middle", "suffix"))
    if not all(isinstance(part, str) for part in parts) or "".join(map(str, parts)) != program:
        hole = _core_hole(find_holes(program, "program.py"))
        whole = decode(hole)
        parts = (whole.prefix, whole.core, whole.suffix)
    core = _row("load_inline_core", pytorch, *map(str, parts))
    try:
        task = task_row("", pytorch)
    except ValueError as error:
        raise Unusable(f"pytorch_code: {error}") from error
    core["class_name"] = task["class_name"]
    written = "\n\n\n" + needed(program, ("ModelNew",)).rstrip("\n")
    module = _row("module", pytorch, task["prefix"], written, task["suffix"])
    module["class_name"] = task["class_name"]
    return [core, module]


def _python_rows(text: str) -> list[Row]:
    hole = _core_hole(find_holes(text, "program.py"))
    file = parse(text.encode())
    classes = module_classes(file)
    references = [c for c in classes if not c.uses_inline and c.used_by is None]
    fast = next((c for c in classes if c.uses_inline and c.name == "ModelNew"), None)
    if not references or fast is None:
        missing = (
            "PyTorch module to be compared with" if not references else "class ModelNew that uses load_inline"
        )
        raise Unusable(f"no {missing}")
    slow = next((c for c in references if c.name == "Model"), references[-1])
    reference = needed(text, (slow.name, "get_inputs", "get_init_inputs"))
    parts = decode(hole)
    rows = [_row("load_inline_core", reference, parts.prefix, parts.core, parts.suffix)]
    rows += _whole_replacement(text, reference, slow, fast)
    for row in rows:
        row["class_name"] = slow.name
    return rows


def _whole_replacement(text: str, reference: str, slow: ModuleClass, fast: ModuleClass) -> list[Row]:
    """What stands between the module and the end of its replacement, unless it holds the input makers."""
    data = text.encode()
    if fast.start < slow.insert:
        return []
    core = data[slow.insert : fast.end].decode()
    before = data[: slow.insert].decode()
    if "def get_inputs" in core or "load_inline(" in before:
        return []
    return [_row("module", reference, before, core, data[fast.end :].decode())]


def _cuda_rows(path: Path, text: str) -> list[Row]:
    holes = [hole for hole in find_holes(text, path.name) if hole.kind == "kernel_body" and hole.editable]
    runnable = [hole for hole in holes if hole.plan.runnable]
    if not runnable:
        why = holes[0].plan.reason if holes else "no kernel"
        raise Unusable(f"no kernel that can be run: {why}")
    before: dict[str, Hole] = {}
    original = text
    slow = path.with_name(path.name.removesuffix(path.suffix) + SLOW)
    if slow.is_file():
        original = slow.read_text(encoding="utf-8")
        before = {hole.name: hole for hole in find_holes(original, slow.name) if hole.kind == "kernel_body"}
    rows = []
    for hole in runnable:
        parts = decode(hole)
        reference = decode(before[hole.name]).core if hole.name in before else ""
        row = _row("kernel_body", reference, parts.prefix, parts.core, parts.suffix)
        row |= {"kernel": hole.name, "original": original, "ops": [hole.name], "family": hole.name}
        row["plan"] = asdict(hole.plan)
        rows.append(row)
    return rows


def _core_hole(holes: list[Hole]) -> Hole:
    found = [hole for hole in holes if hole.kind == "load_inline_core"]
    if not found:
        raise Unusable("no load_inline call with a CUDA source")
    good = [hole for hole in found if hole.editable]
    if not good:
        raise Unusable(f"its CUDA source cannot be cut out: {found[0].reason}")
    return max(good, key=lambda hole: len(hole.core))


def _row(kind: str, reference: str, prefix: str, core: str, suffix: str) -> Row:
    ops = operators(reference) if kind != "kernel_body" else []
    return {
        "kind": kind,
        "family": "+".join(sorted(set(ops))) or "none",
        "ops": list(dict.fromkeys(ops)),
        "reference": reference,
        "prefix": prefix,
        "core": core,
        "suffix": suffix,
        "plan": {"source": "inputs"},
    }


def needed(text: str, names: tuple[str, ...]) -> str:
    """The imports of a Python text and the top-level statements that ``names`` need, as they stand."""
    tree = ast.parse(text)
    lines = text.splitlines(keepends=True)
    defined: dict[str, list[ast.stmt]] = {}
    for node in tree.body:
        for name in _bound(node):
            defined.setdefault(name, []).append(node)
    kept: set[ast.stmt] = set()
    waiting = [node for name in names for node in defined.get(name, [])]
    while waiting:
        node = waiting.pop()
        if node not in kept:
            kept.add(node)
            used = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
            waiting += [other for name in used for other in defined.get(name, [])]
    used_names = {n.id for node in kept for n in ast.walk(node) if isinstance(n, ast.Name)}
    parts = []
    for node in tree.body:
        imports = isinstance(node, ast.Import | ast.ImportFrom) and used_names & set(_bound(node))
        if imports or (node in kept and not isinstance(node, ast.Import | ast.ImportFrom)):
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
            end = node.end_lineno or node.lineno
            parts.append(("" if imports else "\n\n") + "".join(lines[first - 1 : end]).rstrip("\n") + "\n")
    return "".join(parts).lstrip("\n")


def _bound(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [(alias.asname or alias.name).split(".")[0] for alias in node.names]
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
    return []

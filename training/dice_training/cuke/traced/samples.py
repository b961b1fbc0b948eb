"""Rows of CuKe from PyTorch tasks: the teacher's answer to each, in one of three forms."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import random
import re
from dataclasses import dataclass
from typing import Any, Literal

from dice_engine.source.plain_pytorch import reference_source

from dice_training.cuke.module_writer import (
    Binding,
    declaration_statement,
    load_call,
    pick_binding,
)
from dice_training.cuke.spec import is_test
from dice_training.cuke.style import function_name
from dice_training.cuke.traced import UNWRITTEN
from dice_training.cuke.traced.bodies import Body, body_in_file, body_in_source, hasty_source
from dice_training.cuke.traced.module import Answer, module_core, write
from dice_training.cuke.traced.values import Unwritten
from dice_training.tasks import task_row

Row = dict[str, Any]
Kind = Literal["load_inline_core", "module", "kernel_body"]
KIND_SHARE: dict[Kind, float] = {"module": 0.45, "load_inline_core": 0.25, "kernel_body": 0.30}
STOOD_SHARE = 0.4
"""Sources that are given the one that stood there as their reference, among those whose module is in another file."""
FILE_SHARE = 0.6
"""Kernels in a `.cu` file of their own, among kernel bodies."""
MAX_CHARS = 5800
"""About 2,000 tokens at the 2.9 characters that a token has."""
TOO_LONG = "too long for the context"
_LOAD = "from torch.utils.cpp_extension import load_inline"


@dataclass(frozen=True)
class Task:
    """A PyTorch file with a module class, ``get_inputs`` and ``get_init_inputs``."""

    id: str
    text: str


def draws(seed: int, index: int) -> random.Random:
    digest = hashlib.blake2b(f"task:{seed}:{index}".encode(), digest_size=8).digest()
    return random.Random(int.from_bytes(digest, "big"))


def task_sample(task: Task, seed: int, index: int, kind: Kind | None = None) -> Row:
    """The row ``seed-index`` for ``task``; where it cannot be written, its verdict ``unwritten`` says why."""
    rng = draws(seed, index)
    chosen = kind or rng.choices(list(KIND_SHARE), list(KIND_SHARE.values()))[0]
    base = {"id": f"{seed}-{index}", "task": task.id, "kind": chosen, "family": ""}
    try:
        return base | _fitting(task, chosen, rng)
    except Unwritten as reason:
        if (
            chosen == "kernel_body" and kind is None
        ):  # not every kernel can be made better: then the whole answer
            return task_sample(task, seed, index, "module")
        return base | {"verdict": {"verdict": UNWRITTEN, "reason": str(reason)}}


def _fitting(task: Task, kind: Kind, rng: random.Random) -> Row:
    row = {"kind": kind} | _written(task, kind, rng)
    if row_chars(row) > MAX_CHARS:
        raise Unwritten(TOO_LONG)
    return row


def row_chars(row: Row) -> int:
    """What a model reads and writes for this row, in characters: a ``module`` shows its reference around the core."""
    told = 0 if row["kind"] == "module" else len(row["reference"])
    return told + len(row["prefix"]) + len(row["core"]) + len(row["suffix"])


def _written(task: Task, kind: Kind, rng: random.Random) -> Row:
    try:
        hole = task_row(task.id, task.text)
    except ValueError as error:
        raise Unwritten(str(error)) from error
    name = hole["class_name"]
    if kind == "module":
        answer = write(task.text, name)
        parts: Row = {
            "reference": task.text,
            "prefix": hole["prefix"],
            "core": module_core(answer),
            "suffix": hole["suffix"],
        }
    elif kind == "kernel_body" and rng.random() < FILE_SHARE:
        answer = write(task.text, name, _stem(task, name, rng), twins=rng)
        parts = _parts_of(body_in_file(answer.extension, answer.inputs, rng))
    else:
        stood = kind == "load_inline_core" and rng.random() < STOOD_SHARE
        answer, binding = _bound(task, name, rng, twins=rng if stood or kind == "kernel_body" else None)
        prefix, suffix = _file_around(task.text, name, answer, binding, rng)
        if kind == "kernel_body":
            parts = _parts_of(body_in_source(answer.extension, rng))
            parts["around"] = [f'{prefix}{binding.source} = """', f'"""{suffix}']
            parts["pytorch"] = task.text
        else:
            core = f'{binding.source} = """{answer.extension.source()}"""'
            # Where the module stands in the same file, the reference is what an editor makes of it.
            beside = reference_source(prefix + core + suffix)
            parts = {"reference": beside or task.text, "prefix": prefix, "core": core, "suffix": suffix}
            if stood and beside is None:
                with contextlib.suppress(
                    Unwritten
                ):  # nothing to be made faster: then the module is the reference
                    parts["reference"] = f'{binding.source} = """{hasty_source(answer.extension, rng)}"""'
                    parts["pytorch"] = task.text
    family = "+".join(sorted(set(answer.operators)))
    row: Row = {
        "family": family,
        "split": "test" if is_test(family) else "train",
        "program": parts["prefix"] + parts["core"] + parts["suffix"],
        **parts,
        "ops": list(answer.operators),
    }
    if answer.kept:
        row["kept"] = list(answer.kept)
    return row | ({"class_name": name} if name != "Model" else {})


def _parts_of(body: Body) -> Row:
    return {
        "reference": body.existing,
        "prefix": body.prefix,
        "core": body.better,
        "suffix": body.suffix,
        "kernel": body.kernel,
    }


def _bound(task: Task, name: str, rng: random.Random, twins: random.Random | None) -> tuple[Answer, Binding]:
    """The answer under names that the rest of its file chooses."""
    names = {node.id for node in ast.walk(ast.parse(task.text)) if isinstance(node, ast.Name)}
    answer = write(task.text, name)
    inputs = {buffer.text for program in answer.extension.functions for buffer in program.inputs}
    taken = names | inputs | {name, "ModelNew"}
    words = [_word(op) for op in answer.operators] or ["op"]
    function = function_name(rng, words, taken)
    binding = pick_binding(rng, function, taken)
    return write(task.text, name, function, binding.extension, twins), binding


def _stem(task: Task, name: str, rng: random.Random) -> str:
    """What a file calls the computation: the operators that are work."""
    words = [_word(op) for op in write(task.text, name).operators]
    return "_".join(dict.fromkeys(words[:2])) or "op"


def _word(operator: str) -> str:
    """An operator as part of a function's name."""
    return re.sub(r"\W", "", operator.strip("_")) or "op"


def _file_around(
    text: str,
    name: str,
    answer: Answer,
    binding: Binding,
    rng: random.Random,
) -> tuple[str, str]:
    """What stands before and behind the source string: imports, perhaps the task's class; binding and ``ModelNew``."""
    lines = text.splitlines()
    owner = next(n for n in ast.parse(text).body if isinstance(n, ast.ClassDef) and n.name == name)
    before = "\n".join(lines[: owner.lineno - 1]).strip("\n")
    imports = "\n".join(line for line in before.splitlines() if re.match(r"(import|from) ", line))
    both = rng.random() < 0.4 and len(text) < 1500
    if both:
        whole = "\n".join(lines[: owner.end_lineno])
        prefix = f"{imports}\n{_LOAD}\n\n\n" + whole[len(before) :].strip("\n") + "\n\n\n"
        if before != imports:
            prefix = f"{_LOAD}\n{whole}\n\n\n"
    else:
        others = "" if before == imports else before.removeprefix(imports).strip("\n") + "\n\n\n"
        prefix = f"{imports}\n{_LOAD}\n\n" + (others if "def " in others or "=" in others else "")
    after = [
        declaration_statement(binding, answer.extension.declaration, rng),
        load_call(binding, answer.extension.names, rng),
    ]
    rest = "\n".join(lines[owner.end_lineno :]).strip("\n") if both else ""
    suffix = (
        "\n\n" + "\n\n".join(after) + "\n\n\n" + answer.class_text + "\n" + (f"\n\n{rest}\n" if rest else "")
    )
    return prefix, suffix

"""Rows of CuKe from PyTorch tasks: the teacher's answer to each, in one of two forms."""

from __future__ import annotations

import ast
import hashlib
import random
import re
from dataclasses import dataclass
from typing import Any, Literal

from dice_training.cuke.module_writer import (
    Binding,
    declaration_statement,
    load_call,
    pick_binding,
)
from dice_training.cuke.spec import is_test
from dice_training.cuke.style import function_name
from dice_training.cuke.traced import UNWRITTEN
from dice_training.cuke.traced.module import Answer, module_core, write
from dice_training.cuke.traced.values import Unwritten
from dice_training.tasks import task_row

Row = dict[str, Any]
Kind = Literal["load_inline_core", "module"]
KIND_SHARE: dict[Kind, float] = {"module": 0.55, "load_inline_core": 0.45}
MAX_CHARS = 5000
"""About 2,000 tokens at the 2.5 characters that a token of dense CUDA has."""
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
        row = base | _written(task, chosen, rng)
        if row_chars(row) > MAX_CHARS:
            raise Unwritten(TOO_LONG)
        return row
    except Unwritten as reason:
        return base | {"verdict": {"verdict": UNWRITTEN, "reason": str(reason)}}


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
        prefix, core, suffix = hole["prefix"], module_core(answer), hole["suffix"]
    else:
        names = {node.id for node in ast.walk(ast.parse(task.text)) if isinstance(node, ast.Name)}
        answer = write(task.text, name)
        inputs = {buffer.text for program in answer.extension.functions for buffer in program.inputs}
        taken = names | inputs | {name, "ModelNew"}
        words = [_word(op) for op in answer.operators] or ["op"]
        function = function_name(rng, words, taken)
        binding = pick_binding(rng, function, taken)
        answer = write(task.text, name, function, binding.extension)
        core = f'{binding.source} = """{answer.extension.source()}"""'
        prefix, suffix = _file_around(task.text, name, answer, binding, rng)
    family = "+".join(sorted(set(answer.operators)))
    row: Row = {
        "family": family,
        "split": "test" if is_test(family) else "train",
        "reference": task.text,
        "program": prefix + core + suffix,
        "prefix": prefix,
        "core": core,
        "suffix": suffix,
        "ops": list(answer.operators),
    }
    if answer.kept:
        row["kept"] = list(answer.kept)
    return row | ({"class_name": name} if name != "Model" else {})


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

"""How much of a file of tasks the teacher can write, and what is missing most."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import torch

from dice_training.cuke.ops import OPS
from dice_training.cuke.row_ops import ROW_OPS
from dice_training.cuke.traced.lower import base_name
from dice_training.cuke.traced.samples import Task, task_sample
from dice_training.cuke.traced.tasks import time_limit
from dice_training.cuke.traced.trace import trace
from dice_training.cuke.traced.values import Unwritten

_SECONDS = 20
_CHAIN_WORDS = frozenset(
    word
    for op in [*OPS.values(), *ROW_OPS.values()]
    for text in op.torch
    for word in re.findall(r"\w+", text)
) | {"detach", "lift_fresh_copy", "multiply", "to"}
"""Operators of the first teacher (``spec.py``), by the words of their spellings."""
_MOVES = re.compile(
    r"view|reshape|permute|transpose|\bt\b|pad|cat|stack|roll|flip|gather|index|embedding|repeat|split|chunk|unbind"
    r"|slice|select|expand|squeeze|tri[lu]|diag|rot90|meshgrid|unfold|im2col|pixel|one_hot|flatten|isin|take|narrow"
)
_FAMILIES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("convolution", re.compile(r"conv")),
    ("pooling", re.compile(r"pool")),
    ("resizing", re.compile(r"upsample|interpolate|grid")),
    ("norm layer", re.compile(r"(layer|group|batch|instance|rms)_norm")),
    ("softmax", re.compile(r"softmax|logsumexp")),
    ("loss", re.compile(r"loss|kl_div|entropy")),
    ("scan", re.compile(r"^cum|logcumsum")),
    ("order", re.compile(r"sort|topk|median|kthvalue|histc|unique|nonzero|masked_select")),
    ("product", re.compile(r"linear|matmul|^[ab]?[a-z]*mm$|einsum|attention|outer|^dot$|cdist|bilinear")),
    ("movement", _MOVES),
    (
        "reduction",
        re.compile(
            r"sum|mean|prod|^a?m(ax|in)$|arg(max|min)|^any$|^all$|std|var|norm|dist|cosine|count_nonzero|equal"
        ),
    ),
    ("complex", re.compile(r"complex|polar|fft|real|angle")),
    ("random", re.compile(r"rand|multinomial|bernoulli|dropout")),
)


def family_of(operator: str) -> str:
    """The family of an ATen operator, ``elementwise`` where no other claims it."""
    return next((name for name, pattern in _FAMILIES if pattern.search(operator)), "elementwise")


@dataclass
class Coverage:
    """Counts over tasks. ``written`` by the teacher; ``mixed``: with some operators left in torch; ``chains``: of the
    first teacher's operators alone."""

    tasks: int = 0
    written: int = 0
    mixed: int = 0
    chains: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    families: Counter[str] = field(default_factory=Counter)
    families_written: Counter[str] = field(default_factory=Counter)
    operators: Counter[str] = field(default_factory=Counter)

    def add(self, found: dict[str, Any]) -> None:
        self.tasks += 1
        self.written += not found["reason"]
        self.mixed += bool(found["kept"])
        self.operators.update(set(found["operators"]))
        families = {family_of(op) for op in found["operators"]}
        self.families.update(families)
        if found["reason"]:
            self.reasons[found["reason"]] += 1
        else:
            self.families_written.update(families)
        self.chains += bool(found["operators"]) and set(found["operators"]) <= _CHAIN_WORDS

    def to_json(self) -> dict[str, Any]:
        return {
            "tasks": self.tasks,
            "written": self.written,
            "mixed": self.mixed,
            "share": self.written / max(1, self.tasks),
            "chains_share": self.chains / max(1, self.tasks),
            "families": {
                name: {"tasks": count, "written": self.families_written[name]}
                for name, count in self.families.most_common()
            },
            "reasons": dict(self.reasons.most_common()),
            "operators": dict(self.operators.most_common()),
        }


def examine(task: Task) -> dict[str, Any]:
    """The operators of a task and why it cannot be written, "" where it can."""
    operators: list[str] = []
    kept: list[str] = []
    reason = ""
    try:
        with time_limit(_SECONDS):
            row = task_sample(task, 0, 0, "module")
            operators, kept = row.get("ops", []), row.get("kept", [])
            if "verdict" in row:
                reason = row["verdict"]["reason"]
                operators = [
                    base_name(node.target)
                    for node in trace(task.text).graph.nodes
                    if node.op == "call_function" and base_name(node.target) != "getitem"
                ]
    except TimeoutError:
        reason = f"takes longer than {_SECONDS} s to trace"
    except Unwritten as error:
        reason = str(error)
    return {"id": task.id, "operators": operators, "kept": kept, "reason": reason}


def coverage(tasks: Iterable[Task], workers: int) -> Iterator[dict[str, Any]]:
    """``examine`` for each task, in processes of their own."""
    with ProcessPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        yield from pool.map(examine, tasks, chunksize=8)


def text_of(found: Coverage, most: int = 12) -> str:
    """Coverage as a table."""
    lines = [
        f"{found.written} of {found.tasks} tasks can be written ({found.written / max(1, found.tasks):.1%}), "
        f"{found.mixed} of them with operators left in torch; "
        f"{found.chains} ({found.chains / max(1, found.tasks):.1%}) have none but the operators of the first teacher",
        "",
        f"{'family':14} {'tasks':>6} {'written':>8}",
    ]
    for name, count in found.families.most_common():
        lines.append(f"{name:14} {count:6} {found.families_written[name] / count:8.1%}")
    lines += ["", f"{'tasks':>6}  why not"]
    lines += [f"{count:6}  {reason}" for reason, count in found.reasons.most_common(most)]
    return "\n".join(lines)


def dumped(found: Coverage) -> str:
    return json.dumps(found.to_json())

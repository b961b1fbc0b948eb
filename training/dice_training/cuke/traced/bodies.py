"""Rows of kind ``kernel_body`` from tasks: one kernel of an answer with a hasty body as what stands there and the
teacher's as what shall replace it, in a `.cu` file of its own or inside the module's file."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

import torch

from dice_training.cuke.device import block_helper, warp_shuffle
from dice_training.cuke.traced.body_plans import KernelPlan, Picked
from dice_training.cuke.traced.hasty import LOCALS, can_waste, drawn_names, hasty, renamed
from dice_training.cuke.traced.program import Launch
from dice_training.cuke.traced.stages import Extension
from dice_training.cuke.traced.values import Unwritten

_UNIT = "    "
_HELPER = re.compile(r"(\w+) = (warp|block)_reduce_(sum|max|min|prod)\(\1\);")
_TOGETHER = re.compile(r"_reduce_|__shared__|__shfl|float4")
"""Threads that work together, where those of the simple body do not."""


@dataclass(frozen=True)
class Body:
    """A file cut at a kernel's body. ``existing`` and ``better`` fill the hole."""

    kernel: str
    prefix: str
    existing: str
    better: str
    suffix: str


def body_in_source(extension: Extension, rng: random.Random) -> Body:
    """The CUDA source of a module's file, one of its kernels with a hasty body."""
    picked = _pick(extension, rng)
    source = extension.source()
    head, lines = _parts(picked)
    whole = "\n".join(picked.program.kernels[picked.place])
    before, _, after = source.partition(whole)
    existing, better = _both(picked, lines, source, rng)
    plain = rng.random() < 0.6
    if plain:
        before, head = before.replace(" __restrict__ ", " "), head.replace(" __restrict__ ", " ")
    unused = _without_helpers(before, existing + after)
    return Body(picked.launch.kernel, unused + head, existing, better, "}" + after)


def body_in_file(extension: Extension, inputs: dict[str, torch.Tensor], rng: random.Random) -> Body:
    """A `.cu` file with the kernel, its wrapper and a line that says how it is run. ``inputs``: the task's tensors by
    their C++ names. Raises Unwritten where nothing is known about what the kernel reads."""
    picked = _pick(extension, rng)
    plan = KernelPlan(picked, inputs)
    head, lines = _parts(picked)
    if rng.random() < 0.6:
        head = head.replace(" __restrict__ ", " ")
    helper = "prepare" in "\n".join(picked.program.kernels[picked.place])
    existing, better = _both(picked, lines, head + plan.wrapper("launch"), rng)
    includes = rng.choice(("#include <cuda_runtime.h>", "#include <cuda_runtime.h>\n#include <math.h>"))
    if "int64_t" in head or "uint8_t" in head or "INT64" in existing:
        includes += "\n#include <cstdint>"
    if "INFINITY" in existing and "math.h" not in includes:
        includes += "\n#include <math.h>"
    words = [w for w in re.split(r"_", picked.program.function) if w != "fused"]
    stem = "_".join(words) or "kernel"
    assert not helper or "prepare" in better
    taken = head + existing + better + plan.wrapper("launch") + plan.annotation()
    names = drawn_names([taken], _FILE_NAMES, rng)
    text = renamed_file(f"{plan.annotation()}{head}", names)
    wrapper = renamed_file(plan.wrapper(rng.choice((f"launch_{stem}", f"run_{stem}", f"{stem}_cuda"))), names)
    return Body(
        picked.launch.kernel,
        f"{includes}\n\n{text}",
        renamed_file(existing, names),
        renamed_file(better, names),
        f"}}\n\n{wrapper}",
    )


def hasty_source(extension: Extension, rng: random.Random) -> str:
    """The CUDA source as a hasty hand leaves it: every kernel with a simple body, under its signature and launch.
    Raises Unwritten where no kernel would be slower."""
    _pick(extension, rng)
    source = extension.source()
    for program in extension.functions:
        for kernel, simple in zip(program.kernels, program.simple, strict=True):
            own = [line.strip() for line in kernel[1:-1]]
            waste = not any(_TOGETHER.search(line) for line in own) and can_waste(own)
            body = [_UNIT + line for line in hasty(simple, rng, waste)]
            source = source.replace("\n".join(kernel), "\n".join([kernel[0], *body, "}"]))
    return _without_helpers(source, "")


def _pick(extension: Extension, rng: random.Random) -> Picked:
    """A kernel that a hasty hand would have made slower. Raises Unwritten where there is none."""
    found: list[tuple[Picked, float]] = []
    for program in extension.functions:
        launches = [step for step in program.steps if isinstance(step, Launch)]
        for place, launch in enumerate(launches):
            own = [line.strip() for line in program.kernels[place][1:-1]]
            differs = any(_TOGETHER.search(line) for line in own)
            if differs or can_waste(own):
                found.append((Picked(program, place, launch, differs), 5 if differs else 1))
    if not found:
        raise Unwritten("no kernel that a hasty hand makes slower")
    return rng.choices([picked for picked, _ in found], [weight for _, weight in found])[0]


def _parts(picked: Picked) -> tuple[str, list[str]]:
    kernel = picked.program.kernels[picked.place]
    return kernel[0], [line.removeprefix(_UNIT) for line in kernel[1:-1]]


def _both(picked: Picked, lines: list[str], around: str, rng: random.Random) -> tuple[str, str]:
    """The hasty and the better body. Locals that both have go by the name that stands in the hasty one."""
    existing = hasty(picked.program.simple[picked.place], rng, waste=not picked.differs)
    better = self_contained(lines, picked.program.helpers)
    names = drawn_names([around, *existing, *better], LOCALS, rng)
    shown = set(re.findall(r"[A-Za-z_]\w*", "\n".join(existing)))
    names = {old: new for old, new in names.items() if old in shown}
    unit = rng.choice((_UNIT, _UNIT, "  "))

    def text(body: list[str]) -> str:
        return renamed("\n" + "\n".join(unit + line.replace(_UNIT, unit) for line in body) + "\n", names)

    first, second = text(existing), text(better)
    if rng.random() < 0.15:
        first = first.replace("for (", "for(").replace("if (", "if(")
    return first, second


def self_contained(lines: list[str], helpers: dict[str, list[str]]) -> list[str]:
    """The body with what it calls inside it: shuffles in place, a block's reduction and a chain as lambdas."""
    made: list[str] = []
    lambdas: dict[str, list[str]] = {}
    for line in lines:
        found = _HELPER.search(line)
        depth = line[: len(line) - len(line.lstrip())]
        if found and found[2] == "warp":
            made += [depth + text for text in warp_shuffle(found[3], found[1], _UNIT)]  # type: ignore[arg-type]
            continue
        if found:
            lambdas[f"block_{found[3]}"] = _block_lambda(found[3])
            line = f"{depth}{found[1]} = block_{found[3]}({found[1]});"
        elif "prepare(" in line:
            lambdas["prepare"] = _as_lambda(helpers["prepare"])
        made.append(line)
    shared = ["__shared__ float shared[32];"] if any(name.startswith("block_") for name in lambdas) else []
    return [*shared, *(line for text in lambdas.values() for line in text), *made]


def _block_lambda(combine: str) -> list[str]:
    inner = [line.replace("partial[", "shared[") for line in block_helper(combine, _UNIT)[2:-1]]  # type: ignore[arg-type]
    inner = [re.sub(r"\bv\b", "a", line) for line in inner]
    return [f"auto block_{combine} = [&](float a) {{", *inner, "};"]


def _as_lambda(helper: list[str]) -> list[str]:
    head = re.sub(r"^__device__ __forceinline__ \w+ (\w+)\((.*)\) \{$", r"auto \1 = [&](\2) {", helper[0])
    return [head, *helper[1:-1], "};"]


def _without_helpers(before: str, rest: str) -> str:
    """``before`` without device functions that nothing calls any more."""
    for found in re.findall(r"__device__ __forceinline__ .*?\n}\n\n", before, re.DOTALL):
        name = re.search(r"(\w+)\(", found)
        assert name is not None
        if len(re.findall(rf"\b{name[1]}\(", before + rest)) == 1:
            before = before.replace(found, "")
    return before


_FILE_NAMES = {
    "x_0": ("batch", "B", "num_rows"),
    "out": ("output", "dst", "y", "result", "res", "C"),
    "x": ("input", "in", "src", "data", "inp", "A"),
    "n": ("size", "count", "num_elements", "len", "N", "total_size"),
    "rows": ("batch", "num_rows", "B", "m_rows"),
    "cols": ("dim", "width", "num_cols", "D", "hidden", "ncol"),
    "threads": ("block", "block_size", "tpb"),
    "t0": ("tmp", "scores", "values", "buf"),
    "t1": ("tmp", "scores", "values", "buf"),
}


def renamed_file(text: str, names: dict[str, str]) -> str:
    """As ``renamed``, but no numbered variants, and never a keyword of the annotation."""
    for old, new in names.items():
        text = re.sub(rf"(?<![\w.]){old}\b(?!\()", new, text)
    return text

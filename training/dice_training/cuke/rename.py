"""Other names for the same sample, so that a model learns to copy names rather than to expect the teacher's.

Only names that the sample itself introduces are changed (kernels, host functions, parameters, the variables that
hold sources and extensions), everywhere in the sample at once.
"""

from __future__ import annotations

import random
import re

PARTS = ("reference", "prefix", "core", "suffix")

_KERNEL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\s*\(([^)]*)\)")
_HOST = re.compile(r"^(?:void|torch::Tensor|at::Tensor|static void)\s+(\w+)\s*\(([^)]*)\)", re.M)
_BOUND = re.compile(r"^(\w+)\s*=\s*(?:r?\"\"\"|'''|r?'|r?\"|load_inline|torch\.utils\.cpp_extension)", re.M)
_EXTENSION = re.compile(r"name=[\"'](\w+)[\"']")
_PARAMETER = re.compile(r"(\w+)\s*$")

# Names with a meaning outside the sample: keyword arguments and functions of PyTorch, CUDA and C++.
RESERVED = frozenset(
    re.findall(
        r"\w+",
        """
        x y z w weight bias dim alpha beta value min max p eps input other exponent end out name functions
        verbose mean var std sum norm relu gelu abs neg exp log sqrt scale size shape dtype device keepdim
        unbiased inplace approximate negative_slope min_val max_val lambd threshold features module source
        sign floor ceil round sin cos tanh rows cols n gamma math forward lower upper tensor1 tensor2 target
        correction index data float int self torch nn F
        """,
    )
)

WORDS = tuple(
    re.findall(
        r"\w+",
        """
        act acts amp angle arr attn axis band base batch beam bin blend block box buf bytes cache cell chan
        charge coef col color count cost cube curve decay delta depth dist drift dst edge emb energy err
        expo feat field fill filt flow flux force frame freq gain gate gauss grad grid hid hist img inner
        kern key lane lane_sum lat layer leaf left len level lhs line logit loss mag map mask mass mat mix
        mode mom noise norm_in obs offs outer pack pair patch peak phase pixel plane point pos power press
        prob proj pts query rate ratio ray reg resid res rhs right ring row_in score seg sig signal slope
        slot span spec speed spin src state step strip table tap temp term tile time tok track trend unit
        val vals vec vel view vol wave width win word zone
        """,
    )
)
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def rename(row: dict, rng: random.Random) -> dict:
    """The row with some of its own names replaced by others; ``program`` and ``kernel`` follow."""
    text = "\n".join(row[part] for part in PARTS)
    shown = set(re.findall(r"\w+", "\n".join(row[part] for part in PARTS if part != "core")))
    taken = set(re.findall(r"\w+", text))
    names = own_names(text)
    table: dict[str, str] = {}
    for name in names:
        if name in shown and rng.random() < 0.7:
            table[name] = fresh_name(rng, taken)
            taken.add(table[name])
    # A name that only the core holds must stay predictable: it follows the name it was made from, or stays.
    for name in names:
        stem = next((old for old in table if name.startswith(old + "_")), None)
        if stem and name not in shown:
            table[name] = table[stem] + name[len(stem) :]
    if not table:
        return row
    pattern = re.compile(r"(?<![\w.])(" + "|".join(map(re.escape, table)) + r")(?!\w)")
    # An extension's function is reached as an attribute too: ext.name(...).
    attribute = re.compile(r"(?<=\.)(" + "|".join(map(re.escape, table)) + r")(?=\()")
    functions = set(re.findall(r"functions=\[[\"'](\w+)[\"']", text))

    def replaced(part: str) -> str:
        part = pattern.sub(lambda match: table[match[1]], part)
        return attribute.sub(lambda match: table[match[1]] if match[1] in functions else match[1], part)

    renamed = {**row, **{part: replaced(row[part]) for part in PARTS}}
    renamed["program"] = renamed["prefix"] + renamed["core"] + renamed["suffix"]
    if "kernel" in row:
        renamed["kernel"] = table.get(row["kernel"], row["kernel"])
    return renamed


def own_names(text: str) -> list[str]:
    """The names a sample introduces, in order of appearance."""
    found: dict[str, None] = {}
    for pattern in (_KERNEL, _HOST):
        for name, parameters in pattern.findall(text):
            found[name] = None
            for parameter in parameters.split(","):
                match = _PARAMETER.search(parameter)
                if match:
                    found[match[1]] = None
    for pattern in (_BOUND, _EXTENSION):
        found.update(dict.fromkeys(pattern.findall(text)))
    return [name for name in found if name not in RESERVED and not name.startswith("cuda")]


def fresh_name(rng: random.Random, taken: set[str]) -> str:
    while True:
        roll = rng.random()
        if roll < 0.35:
            name = rng.choice(WORDS)
        elif roll < 0.75:
            name = f"{rng.choice(WORDS)}_{rng.choice(WORDS)}"
        elif roll < 0.85:
            name = f"{rng.choice(WORDS)}{rng.randrange(10)}"
        else:
            name = "".join(rng.choice(_LETTERS) for _ in range(rng.randrange(2, 6)))
        if name not in taken and name not in RESERVED and not _keyword(name):
            return name


def _keyword(name: str) -> bool:
    return name in {
        "as",
        "is",
        "in",
        "if",
        "or",
        "for",
        "def",
        "del",
        "do",
        "new",
        "asm",
        "int",
        "and",
        "not",
        "try",
        "auto",
        "else",
    }

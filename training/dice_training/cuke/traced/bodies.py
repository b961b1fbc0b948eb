"""Rows of kind ``kernel_body`` from tasks: one kernel of an answer with a hasty body as what stands there and the
teacher's as what shall replace it, in a `.cu` file of its own or inside the module's file."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

import torch

from dice_training.cuke.device import block_helper, warp_shuffle
from dice_training.cuke.traced.hasty import can_waste, drawn_names, hasty, renamed
from dice_training.cuke.traced.kernels import Launch, Program
from dice_training.cuke.traced.stages import Extension
from dice_training.cuke.traced.values import Buffer, Unwritten, ctype, values

_UNIT = "    "
_HELPER = re.compile(r"(\w+) = (warp|block)_reduce_(sum|max|min|prod)\(\1\);")
_FIXED = frozenset(("0", "1", "2", "3", "4", "5", "8", "16", "31", "32"))
"""Numbers of a body that are no sizes."""
_MOST_ELEMENTS = 1 << 20
"""Larger kernels take too long on a CPU to be checked by themselves."""


@dataclass(frozen=True)
class Body:
    """A file cut at a kernel's body. ``existing`` and ``better`` fill the hole."""

    kernel: str
    prefix: str
    existing: str
    better: str
    suffix: str


@dataclass(frozen=True)
class _Picked:
    program: Program
    place: int
    launch: Launch
    differs: bool
    """Whether the simple body goes another way; else it only wastes."""


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
    plan = _Plan(picked, inputs)
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
    names = _file_names(head + existing + better, plan, rng)
    text = renamed_file(f"{plan.annotation()}{head}", names)
    wrapper = renamed_file(plan.wrapper(rng.choice((f"launch_{stem}", f"run_{stem}", f"{stem}_cuda"))), names)
    return Body(
        picked.launch.kernel,
        f"{includes}\n\n{text}",
        renamed_file(existing, names),
        renamed_file(better, names),
        f"}}\n\n{wrapper}",
    )


def _pick(extension: Extension, rng: random.Random) -> _Picked:
    """A kernel that a hasty hand would have made slower. Raises Unwritten where there is none."""
    found: list[tuple[_Picked, float]] = []
    for program in extension.functions:
        launches = [step for step in program.steps if isinstance(step, Launch)]
        for place, launch in enumerate(launches):
            own = [line.strip() for line in program.kernels[place][1:-1]]
            differs = own != [line.strip() for line in program.simple[place]]
            if differs or can_waste(own):
                found.append((_Picked(program, place, launch, differs), 5 if differs else 1))
    if not found:
        raise Unwritten("no kernel that a hasty hand makes slower")
    return rng.choices([picked for picked, _ in found], [weight for _, weight in found])[0]


def _parts(picked: _Picked) -> tuple[str, list[str]]:
    kernel = picked.program.kernels[picked.place]
    return kernel[0], [line.removeprefix(_UNIT) for line in kernel[1:-1]]


def _both(picked: _Picked, lines: list[str], around: str, rng: random.Random) -> tuple[str, str]:
    """The hasty and the better body. Locals that both have go by the name that stands in the hasty one."""
    existing = hasty(picked.program.simple[picked.place], rng, waste=not picked.differs)
    better = self_contained(lines, picked.program.helpers)
    names = drawn_names([around, *existing, *better], rng)
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


# -- a file of its own


class _Plan:
    """How the kernel is run by itself: the numbers of its sizes, the extents of its buffers, what indices hold."""

    def __init__(self, picked: _Picked, inputs: dict[str, torch.Tensor]) -> None:
        self.picked, self.launch, self.inputs = picked, picked.launch, inputs
        self.numbers = {name: self._number(text) for name, text in self.launch.sizes.items()}
        self.own = {}
        """Integer parameters of the wrapper alone: name -> expression in the grid."""
        grid = self.launch.grid
        if ".size(" in grid or ".numel(" in grid:
            name = "rows" if "rows" not in self.numbers else "blocks"
            self.own = {name: grid}
            self.numbers[name] = self._number(grid)
        for name in set(re.findall(r"[a-z_]\w*", grid)) - {"threads", "dim3", *self.numbers}:
            if not self.own:
                self.own[name] = self.picked.program.sizes[name]
                self.numbers[name] = self._number(self.picked.program.sizes[name])
        total = sum(buffer_elements(buffer) for buffer in self.launch.buffers)
        if total > _MOST_ELEMENTS:
            raise Unwritten("a kernel too large to be checked by itself")
        self.symbolic = self._free()

    def _number(self, text: str) -> int:
        program = self.picked.program
        sizes = program.known | {
            f"{b.text}.size({k})": d.value for b in self._all() for k, d in enumerate(b.shape)
        }
        sizes |= {f"{b.text}.numel()": buffer_elements(b) for b in self._all()}

        def number(found: re.Match[str]) -> str:
            if found[0] not in sizes:
                raise Unwritten("a size that is not known")
            return str(sizes[found[0]])

        expression = re.sub(r"\w+\.(?:size\(\d+\)|numel\(\))", number, text).replace("/", "//")
        if not re.fullmatch(r"[\d+\-*/() ]+", expression):
            raise Unwritten("a size that is not known")
        return int(eval(expression, {"__builtins__": {}}))

    def _all(self) -> list[Buffer]:
        launches = [step for step in self.picked.program.steps if isinstance(step, Launch)]
        return [*self.picked.program.inputs, *(b for launch in launches for b in launch.buffers)]

    def _free(self) -> bool:
        """Whether the kernel is right for any sizes, and its buffers' extents follow from them."""
        body = "\n".join(self.picked.program.kernels[self.picked.place])
        numbers = set(re.findall(r"(?<![\w.])\d+(?![\w.])", body))
        if not numbers <= _FIXED or any(not b.dtype.is_floating_point for b in self.launch.buffers):
            return False
        numbers_ = list(self.numbers.values())
        plain = all(number > 1 for number in numbers_) and len(set(numbers_)) == len(numbers_)
        return plain and (set(self.numbers) <= {"n"} or set(self.numbers) == {"rows", "cols"})

    def extent(self, buffer: Buffer) -> str:
        count = buffer_elements(buffer)
        if self.symbolic:
            rows, cols = self.numbers.get("rows"), self.numbers.get("cols")
            known = {"n": self.numbers.get("n"), "cols": cols, "rows": rows}
            if rows and cols:
                known = {"rows*cols": rows * cols} | known
            name = next((name for name, number in known.items() if number == count and count > 1), None)
            if name is None and count > 1:
                raise Unwritten("a buffer of unknown extent")
            if name is not None:
                return name
        return str(count)

    def annotation(self) -> str:
        given = ", ".join(f"{b.text}[{self.extent(b)}]" for b in self.launch.buffers[:-1])
        out = self.launch.buffers[-1]
        lines = [f"in({given}) out({out.text}[{self.extent(out)}])"]
        sets = [", ".join(f"{name}={number}" for name, number in self.numbers.items())]
        if self.symbolic:
            odd = {"n": 1000, "rows": 33, "cols": 77}
            sets.append(", ".join(f"{name}={odd[name]}" for name in self.numbers))
        if self.numbers:
            lines.append(f"sizes({'; '.join(sets)})")
        fills = [self._fill(b) for b in self.launch.buffers[:-1] if not b.dtype.is_floating_point]
        if fills:
            lines.append(f"fill({'; '.join(fills)})")
        return "".join(f"// @dice {line}\n" for line in lines)

    def _fill(self, buffer: Buffer) -> str:
        given = self.inputs.get(buffer.text)
        if buffer.dtype == torch.bool:
            return f"{buffer.text}=int[0,2)"
        if given is None or not given.numel():
            raise Unwritten("integers of unknown range")
        return f"{buffer.text}=int[{min(0, int(given.min()))},{int(given.max()) + 1})"

    def wrapper(self, name: str) -> str:
        launch = self.launch
        kinds = [
            f"{'' if b is launch.buffers[-1] else 'const '}{ctype(b.dtype)}* {b.text}" for b in launch.buffers
        ]
        parameters = [*kinds, *(f"int {size}" for size in self.numbers)]
        grid = next(iter(self.own)) if launch.grid in self.own.values() else launch.grid
        lines = ["const int threads = 256;"]
        if grid.startswith("dim3"):
            lines.append(f"dim3 grid{grid.removeprefix('dim3')};")
            grid = "grid"
        arguments = ", ".join([*(b.text for b in launch.buffers), *launch.sizes])
        lines.append(f"{launch.kernel}<<<{grid}, threads>>>({arguments});")
        return (
            f"void {name}({', '.join(parameters)}) {{\n"
            + "".join(f"{_UNIT}{line}\n" for line in lines)
            + "}\n"
        )


def buffer_elements(buffer: Buffer) -> int:
    count = 1
    for size in values(buffer.shape):
        count *= size
    return count


_FILE_NAMES = {
    "out": ("output", "dst", "y", "result", "res", "C"),
    "x": ("input", "in", "src", "data", "inp", "A"),
    "n": ("size", "count", "num_elements", "len", "N", "total_size"),
    "rows": ("batch", "num_rows", "B", "m_rows"),
    "cols": ("dim", "width", "num_cols", "D", "hidden", "ncol"),
    "threads": ("block", "block_size", "tpb"),
    "t0": ("tmp", "scores", "values", "buf"),
    "t1": ("tmp", "scores", "values", "buf"),
}


def _file_names(text: str, plan: _Plan, rng: random.Random) -> dict[str, str]:
    words = set(re.findall(r"\w+", text + plan.wrapper("launch") + plan.annotation()))
    names: dict[str, str] = {}
    for old, choices in _FILE_NAMES.items():
        free = [choice for choice in choices if choice not in words]
        if old in words and free and rng.random() < 0.6:
            names[old] = rng.choice(free)
            words.add(names[old])
    return names


def renamed_file(text: str, names: dict[str, str]) -> str:
    """As ``renamed``, but no numbered variants, and never a keyword of the annotation."""
    for old, new in names.items():
        text = re.sub(rf"(?<![\w.]){old}\b(?!\()", new, text)
    return text

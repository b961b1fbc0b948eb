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
_TOGETHER = re.compile(r"_reduce_|__shared__|__shfl")
"""Threads that work together, where those of the simple body do not."""
_DIM = re.compile(r"\w+\.size\(\d+\)")
_WORD = re.compile(r"\b[a-z_]\w*\b")
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
    """Whether its threads work together, as those of the simple body do not; else that only wastes."""


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
            differs = any(_TOGETHER.search(line) for line in own)
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
    """How the kernel is run by itself: sizes that do not depend on each other, extents, what indices hold."""

    def __init__(self, picked: _Picked, inputs: dict[str, torch.Tensor]) -> None:
        self.launch, self.inputs, self.program = picked.launch, inputs, picked.program
        launches = [step for step in self.program.steps if isinstance(step, Launch)]
        buffers = [*self.program.inputs, *(b for launch in launches for b in launch.buffers)]
        self._shapes = {b.text: b.shape for b in buffers}
        if sum(buffer_elements(buffer) for buffer in self.launch.buffers) > _MOST_ELEMENTS:
            raise Unwritten("a kernel too large to be checked by itself")
        self.alone = self._one_size()
        """Whether the number of elements is all that matters."""
        self.sizes = {} if self.alone else {n: self._expanded(t) for n, t in self.launch.sizes.items()}
        used = {
            name: self.program.sizes[name]
            for name in set(_WORD.findall(self.launch.grid)) & set(self.program.sizes)
        }
        self.grid = self._expanded(self.launch.grid)
        if not self.alone:
            self.sizes |= {name: self._expanded(text) for name, text in used.items()}
        self.dims = {
            dim: self._name(dim) for text in (*self.sizes.values(), self.grid) for dim in _DIM.findall(text)
        }
        """Sizes of tensors that the rest follows from -> the wrapper's parameter."""

    def _one_size(self) -> bool:
        body = "\n".join(self.program.kernels[self.program_place])
        plain = all(b.dtype.is_floating_point for b in self.launch.buffers)
        count = buffer_elements(self.launch.buffers[-1])
        same = all(buffer_elements(b) == count for b in self.launch.buffers)
        return plain and same and set(self.launch.sizes) == {"n"} and "for (" not in body

    @property
    def program_place(self) -> int:
        launches = [step for step in self.program.steps if isinstance(step, Launch)]
        return launches.index(self.launch)

    def _expanded(self, text: str) -> str:
        """``text`` in sizes of tensors alone."""

        def product(found: re.Match[str]) -> str:
            dims = [dim.text for dim in self._shapes[found[1]] if dim.text != "1"]
            return " * ".join(f"({d})" if re.search(r"[+\-/]", d) else d for d in dims) or "1"

        return re.sub(r"(\w+)\.numel\(\)", product, text)

    def _name(self, dim: str) -> str:
        found = next((name for name, text in self.sizes.items() if text == dim), None)
        return found or dim.replace(".size(", "_").removesuffix(")")

    def _number(self, dim: str) -> int:
        owner, place = dim.removesuffix(")").split(".size(")
        shape = self._shapes.get(owner)
        return shape[int(place)].value if shape else self.program.known[dim]

    def _written(self, text: str) -> str:
        return _DIM.sub(lambda found: self.dims[found[0]], text)

    @property
    def numbers(self) -> dict[str, int]:
        """The wrapper's integer parameters and what they are in the task."""
        if self.alone:
            return {"n": buffer_elements(self.launch.buffers[-1])}
        return {name: self._number(dim) for dim, name in self.dims.items()}

    def annotation(self) -> str:
        def extent(buffer: Buffer) -> str:
            return "n" if self.alone else str(buffer_elements(buffer))

        given = ", ".join(f"{b.text}[{extent(b)}]" for b in self.launch.buffers[:-1])
        out = self.launch.buffers[-1]
        lines = [f"in({given}) out({out.text}[{extent(out)}])"]
        sets = [", ".join(f"{name}={number}" for name, number in self.numbers.items())]
        if self.alone:
            sets.append("n=1000")
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
        """The host function on raw pointers."""
        launch = self.launch
        kinds = [
            f"{'' if b is launch.buffers[-1] else 'const '}{ctype(b.dtype)}* {b.text}" for b in launch.buffers
        ]
        parameters = [*kinds, *(f"int {size}" for size in self.numbers)]
        derived = {size: text for size, text in self.sizes.items() if text not in self.dims}
        lines = [f"int {size} = {self._written(text)};" for size, text in derived.items()]
        lines.append("const int threads = 256;")
        grid = self._written(self.grid)
        if grid.startswith("dim3"):
            lines.append(f"dim3 grid{grid.removeprefix('dim3')};")
            grid = "grid"
        arguments = ", ".join([*(b.text for b in launch.buffers), *(self._argument(n) for n in launch.sizes)])
        lines.append(f"{launch.kernel}<<<{grid}, threads>>>({arguments});")
        return (
            f"void {name}({', '.join(parameters)}) {{\n"
            + "".join(f"{_UNIT}{line}\n" for line in lines)
            + "}\n"
        )

    def _argument(self, size: str) -> str:
        return size if self.alone else self.dims.get(self.sizes[size], size)


def buffer_elements(buffer: Buffer) -> int:
    count = 1
    for size in values(buffer.shape):
        count *= size
    return count


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

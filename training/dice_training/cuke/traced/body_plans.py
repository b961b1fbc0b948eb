"""How a kernel of an answer is run by itself: its wrapper, and the annotation that goes with it."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch

from dice_training.cuke.traced.program import Launch, Program
from dice_training.cuke.traced.values import Buffer, Unwritten, ctype, values

_UNIT = "    "
_DIM = re.compile(r"\w+\.size\(\d+\)")
_WORD = re.compile(r"\b[a-z_]\w*\b")
_MOST_ELEMENTS = 1 << 20
"""Larger kernels take too long on a CPU to be checked by themselves."""


@dataclass(frozen=True)
class Picked:
    program: Program
    place: int
    launch: Launch
    differs: bool
    """Whether its threads work together, as those of the simple body do not; else that only wastes."""


class KernelPlan:
    """How the kernel is run by itself: sizes that do not depend on each other, extents, what indices hold."""

    def __init__(self, picked: Picked, inputs: dict[str, torch.Tensor]) -> None:
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

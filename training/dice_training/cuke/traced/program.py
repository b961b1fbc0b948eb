"""Decides which kernels compute a graph of values, and writes the host function that launches them."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field

import torch

from dice_training.cuke.traced.emit import NeedsMemory
from dice_training.cuke.traced.kernels import KernelWriter
from dice_training.cuke.traced.tidy import tidy
from dice_training.cuke.traced.values import (
    Buffer,
    Moved,
    Point,
    Ranked,
    Reduced,
    Scanned,
    Unwritten,
    Value,
    Written,
    ctype,
    reachable,
    values,
)

_UNIT = "    "
_SLOW = re.compile(r"exp|log|tanh|sin|cos|tan|pow|erf|sqrt| / ")
"""What is not computed again for every column of a product."""
_SIZE = re.compile(r"\b(\w+)\.size\(\d+\)")
_OPTIONS = {
    torch.bool: "torch::kBool",
    torch.int64: "torch::kInt64",
    torch.int32: "torch::kInt32",
    torch.float32: "torch::kFloat32",
    torch.float64: "torch::kFloat64",
    torch.uint8: "torch::kUInt8",
    torch.int8: "torch::kInt8",
    torch.int16: "torch::kInt16",
}


@dataclass
class Launch:
    kernel: str
    grid: str
    arguments: list[str]
    buffers: list[Buffer]
    """What the pointers point to, the result last."""
    sizes: dict[str, str]
    """The integer parameters and their expressions."""


@dataclass
class Program:
    """The CUDA source of a function of ``inputs`` that returns ``outputs``."""

    function: str
    inputs: list[Buffer]
    outputs: list[Value]
    given: dict[int, Buffer] = field(default_factory=dict)
    """Values that are among the inputs, by id."""
    known: dict[str, int] = field(default_factory=dict)
    """Sizes of all tensors of the task (``x.size(0)``)."""
    helpers: dict[str, list[str]] = field(default_factory=dict)
    """Device functions that the source has already, and then also those that the kernels need."""
    twins: random.Random | None = None
    """Draws what the simple body of each kernel is like; None where none is wanted."""
    kernels: list[list[str]] = field(default_factory=list)
    simple: list[list[str]] = field(default_factory=list)
    """A simple body for each kernel, under its signature and launch."""
    sizes: dict[str, str] = field(default_factory=dict)
    """Name of an ``int`` on the host -> its expression."""
    steps: list[str | Launch] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.names |= {buffer.text for buffer in self.inputs} | {"out", "threads", "blocks"}
        self.helpers = dict(self.helpers)
        inside = reachable(self.outputs, lambda v: id(v) not in self.given)
        for value in inside:
            value.uses, value.memory = 0, self.given.get(id(value))
        for value in inside:
            if value.memory is None:
                for argument in value.arguments:
                    argument.uses += 1
        for buffer in self.given.values():
            buffer.uses = max((v.uses for v in inside if v.memory is buffer), default=0)
        self.products = sum(isinstance(v, Written) and v.tile is not None for v in inside)
        """More than one make the source long: then each is one loop."""
        results = [self.memory(value, "out") for value in self.outputs]
        self.results = [buffer.text for buffer in results]

    # -- memory and kernels

    def memory(self, value: Value, base: str = "t") -> Buffer:
        """Where ``value`` lies once the kernels so far have run."""
        if isinstance(value, Buffer):
            raise Unwritten("an output that is an input")
        if value.memory is not None:
            return value.memory
        if 0 in values(value.shape):
            raise Unwritten("an empty tensor")
        self._before(value)
        while True:
            try:
                writer = KernelWriter(self, value)
                out = Buffer(shape=value.shape, dtype=value.dtype, text=self._name(base), name=value.name)
                writer.write(out)
                simple = writer.simple(out, self.twins) if self.twins else None
                break
            except NeedsMemory as need:
                if need.value is value:
                    raise Unwritten(f"no kernel for {value.name}") from need
                self.memory(need.value)
        self.names.add(out.text)
        self.steps.append(f"auto {out.text} = {self._empty(out)};")
        self._commit(writer, out, simple)
        value.memory = out
        out.uses = value.uses
        return out

    def _before(self, value: Value) -> None:
        """Compute first, in whole, what a kernel of ``value`` could only take apart or compute again and again."""
        for inner in reachable([value], lambda v: v.memory is None):
            if inner.memory is not None or (isinstance(inner, Moved) and inner.still):
                continue
            if isinstance(inner, Point) or (inner is value and isinstance(inner, Moved)):
                continue
            for argument in inner.arguments:
                self._small_first(argument, inner)
                if self._costly(argument, inner):
                    while isinstance(argument, Moved):
                        argument = argument.args[0]
                    if argument is not value:
                        self.memory(argument)

    def _small_first(self, argument: Value, by: Value) -> None:
        """Statistics of other rows get memory by themselves: what is computed from them can then be part of ``by``."""
        for inner in reachable([argument], lambda v: v.memory is None):
            if (
                inner.memory is None
                and isinstance(inner, Reduced)
                and isinstance(by, Reduced)
                and by.domain != inner.domain
            ):
                self.memory(inner)

    def _costly(self, argument: Value, by: Value) -> bool:
        """Whether ``argument`` holds work that does not fit into the kernel that computes ``by`` from it."""
        for inner in reachable([argument], lambda v: v.memory is None):
            if inner.memory is not None:
                continue
            if isinstance(inner, Scanned | Ranked) or (isinstance(inner, Written) and inner.heavy):
                return True
            if isinstance(inner, Reduced) and not (isinstance(by, Reduced) and by.domain == inner.domain):
                return True
            if (
                isinstance(inner, Point)
                and isinstance(by, Written)
                and by.repeats
                and _SLOW.search(inner.template)
            ):
                return True
        return False

    def _name(self, base: str) -> str:
        if base == "out":
            if len(self.outputs) == 1:
                return "out"
            base = "out"
            numbers = (f"out{i}" for i in range(99))
            return next(name for name in numbers if name not in self.names)
        return next(name for name in (f"t{i}" for i in range(99)) if name not in self.names)

    def _empty(self, out: Buffer) -> str:
        for buffer in self.inputs:
            if values(buffer.shape) == values(out.shape) and buffer.dtype == out.dtype:
                return f"torch::empty_like({buffer.text})"
        owner = next((buffer for buffer in self.inputs if buffer.dtype == out.dtype), self.inputs[0])
        options = f"{owner.text}.options()"
        if owner.dtype != out.dtype:
            options += f".dtype({_OPTIONS[out.dtype]})"
        return f"torch::empty({{{', '.join(dim.text for dim in out.shape)}}}, {options})"

    def _commit(self, writer: KernelWriter, out: Buffer, simple: KernelWriter | None) -> None:
        kernel = f"{self.function}_kernel"
        if kernel in self.names:
            kernel = next(
                name
                for name in (f"{self.function}_kernel{i}" for i in range(2, 99))
                if name not in self.names
            )
        self.names.add(kernel)
        parameters = [f"const {ctype(b.dtype)}* __restrict__ {b.text}" for b in writer.reads]
        parameters.append(f"{ctype(out.dtype)}* __restrict__ {out.text}")
        body = tidy(writer.emitter.block.lines)
        text = "\n".join(body)
        if simple is not None:
            self.simple.append(tidy(simple.emitter.block.lines))
            text += "\n".join(["", *self.simple[-1]])
            writer.used_sizes = list(dict.fromkeys([*writer.used_sizes, *simple.used_sizes]))
            writer.new_sizes = {**writer.new_sizes, **simple.new_sizes}
        sizes = [name for name in writer.used_sizes if re.search(rf"\b{name}\b", text)]
        parameters += [f"int {name}" for name in sizes]
        self.kernels.append(
            [f"__global__ void {kernel}({', '.join(parameters)}) {{", *(_UNIT + line for line in body), "}"]
        )
        for name, text in {**writer.helpers, **writer.late_helpers}.items():
            self.helpers.setdefault(name, text)
        pointers = [f"{b.text}.data_ptr<{ctype(b.dtype)}>()" for b in [*writer.reads, out]]
        new = {
            name: text
            for name, text in writer.new_sizes.items()
            if name in sizes or re.search(rf"\b{name}\b", writer.grid)
        }
        self.steps += [f"int {name} = {text};" for name, text in new.items()]
        self.steps += [writer.check] if writer.check else []
        self.sizes |= new
        self.names |= set(new)
        buffers = [*writer.reads, out]
        known = {**self.sizes, **new}
        self.steps.append(
            Launch(kernel, writer.grid, pointers + sizes, buffers, {name: known[name] for name in sizes})
        )

    # -- text

    @property
    def returned(self) -> str:
        return "torch::Tensor" if len(self.outputs) == 1 else "std::vector<torch::Tensor>"

    def declaration(self) -> str:
        arguments = ", ".join(f"torch::Tensor {buffer.text}" for buffer in self.inputs)
        return f"{self.returned} {self.function}({arguments})"

    def host(self) -> list[str]:
        """The host function."""
        lines = [_UNIT + self._own_sizes(line) for line in self._host()]
        return [f"{self.declaration()} {{", *lines, "}"]

    def canonical(self) -> str:
        """The text with its own names numbered: equal for functions that do the same."""
        text = "\n".join(line for block in [*self.kernels, self.host()] for line in block)
        names = {self.function: "f"} | {b.text: f"p{k}" for k, b in enumerate(self.inputs)}
        for name, short in names.items():
            text = re.sub(rf"\b{name}(?=\b|_)", short, text)
        return text

    def _own_sizes(self, line: str) -> str:
        """``line`` without sizes of tensors that this function is not given."""
        renamed = {
            dim.text: f"{buffer.text}.size({k})"
            for value in reachable(self.outputs, lambda v: id(v) not in self.given)
            if (buffer := self.given.get(id(value))) is not None
            for k, dim in enumerate(value.shape)
        }

        def own(found: re.Match[str]) -> str:
            if found[1] in self.names:
                return found[0]
            return renamed.get(found[0], str(self.known.get(found[0], found[0])))

        return _SIZE.sub(own, line)

    def _host(self) -> list[str]:
        lines: list[str] = []
        launches = [step for step in self.steps if isinstance(step, Launch)]
        threads = False
        for step in self.steps:
            if isinstance(step, str):
                lines.append(step)
                continue
            if not threads:
                lines.append("const int threads = 256;")
                threads = True
            grid = step.grid
            if grid.startswith("dim3"):
                name = f"grid{launches.index(step) or ''}"
                lines.append(f"const dim3 {name}{grid.removeprefix('dim3')};")
                grid = name
            elif len(launches) == 1 and " " in grid:
                lines.append(f"const int blocks = {grid};")
                grid = "blocks"
            lines.append(f"{step.kernel}<<<{grid}, threads>>>({', '.join(step.arguments)});")
        if len(self.outputs) == 1:
            lines.append(f"return {self.results[0]};")
        else:
            lines.append(f"return {{{', '.join(self.results)}}};")
        return lines

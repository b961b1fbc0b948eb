"""Writes the statements of one kernel: variables, indices and loops."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from dice_training.cuke.traced.literals import expression
from dice_training.cuke.traced.values import (
    Buffer,
    Constant,
    Dim,
    Moved,
    Point,
    Shape,
    Size,
    Value,
    Written,
    ctype,
    times,
    values,
)

_UNIT = "    "
_NAME = re.compile(r"[A-Za-z_]\w*")


class NeedsMemory(Exception):
    """``value`` cannot be computed where it is wanted: an earlier kernel has to write it."""

    def __init__(self, value: Value) -> None:
        super().__init__(value.name)
        self.value = value


class Index:
    """A place in a shape: by ``flat`` (a C expression in row-major order), by coordinates, or by both."""

    def __init__(self, shape: Shape, flat: str | None, coords: Callable[[int], str]) -> None:
        self.shape, self.flat, self._coords = shape, flat, coords

    def coord(self, dim: int) -> str:
        return "0" if self.shape[dim].value == 1 else self._coords(dim)

    def coords(self) -> list[str]:
        return [self.coord(dim) for dim in range(len(self.shape))]

    @property
    def key(self) -> str:
        return self.flat if self.flat is not None else ", ".join(self.coords())


def at(shape: Shape, coords: Sequence[str], flat: str | None = None) -> Index:
    return Index(shape, flat, lambda dim: coords[dim])


class Block:
    """Statements between two braces, and the names of what they have computed."""

    def __init__(self, outer: Block | None, depth: int) -> None:
        self.outer, self.depth = outer, depth
        self.lines: list[str] = []
        self.known: dict[object, str] = {}
        self.own: set[str] = set()

    def find(self, key: object) -> str | None:
        block: Block | None = self
        while block is not None:
            if key in block.known:
                return block.known[key]
            block = block.outer
        return None


class Emitter:
    """The body of one kernel under construction. ``taken``: names that the kernel's parameters have."""

    def __init__(self, size_name: Callable[[Dim], str], buffer_name: Callable[[Buffer], str]) -> None:
        self.block = Block(None, 0)
        self.names: set[str] = set()
        self.size_name, self.buffer_name = size_name, buffer_name
        self.stats: dict[int, tuple[Index, str]] = {}
        """Reductions of the row at hand: id -> where they hold and the variable."""
        self.given: dict[int, str] = {}
        """Values that are parameters of a device function."""
        self.prepared: dict[int, list[Value]] = {}
        """Values that the device function ``prepare`` computes: id -> what it is given."""
        self.places: dict[tuple[str, tuple[int, ...]], Index] = {}
        """Indices whose coordinates are known without dividing their flat number."""
        self.whole: str | None = None
        """The flat index at which heavy values may be computed."""
        self.looping = 0

    # -- statements

    def line(self, text: str) -> None:
        self.block.lines.append(_UNIT * self.block.depth + text)

    @contextmanager
    def inside(self, head: str, loop: bool = True) -> Iterator[None]:
        start = _UNIT * self.block.depth + f"{head} {{"
        inner = Block(self.block, self.block.depth + 1)
        self.block, outer = inner, self.block
        self.looping += loop
        before = set(self.names)
        counter = re.match(r"for \(int (\w+)", head)
        if counter:
            self.names.add(counter[1])
        yield
        # What stands between the braces is free again behind them.
        self.names = before | (self.names & outer.own)
        self.looping -= loop
        self.block = outer
        outer.lines += [start, *inner.lines]
        self.line("}")

    def fresh(self, base: str) -> str:
        if re.fullmatch(r"[a-z]\d", base):  # a coordinate
            base = next((k + base[1] for k in base[0] + "jmpqrt" if k + base[1] not in self.names), base)
        name, number = base, 1
        while name in self.names:
            name = f"{base}{number}"
            number += 1
        self.names.add(name)
        return name

    def declare(self, kind: str, base: str, expression: str) -> str:
        name = self.fresh(base)
        self.line(f"{kind} {name} = {expression};")
        self.block.own.add(name)
        return name

    def size(self, dim: Dim) -> str:
        return dim.text if dim.literal else self.size_name(dim)

    def product(self, dims: Sequence[Dim]) -> str:
        """The product of sizes, in names of this kernel."""
        real = [dim for dim in dims if dim.text != "1"]
        if all(dim.literal for dim in real):
            return times(real).text
        return " * ".join(self.size(dim) for dim in real)

    # -- indices

    def split(self, flat: str, shape: Shape, letter: str = "i", home: Block | None = None) -> Index:
        """The place of row-major number ``flat``; a coordinate is computed where it is first asked for."""
        known = self.places.get((flat, values(shape)))
        if known is not None:
            return known
        positions = [dim for dim in range(len(shape)) if shape[dim].value != 1]
        sizes = [shape[dim] for dim in positions]

        def coord(dim: int) -> str:
            place = positions.index(dim)
            key = ("coord", flat, values(sizes), place)
            found = self.block.find(key)
            if found is None:
                here = self.block
                self.block = home or here
                found = self._coordinate(flat, sizes, place, letter)
                self.block.known[key] = found
                self.block = here
            return found

        return Index(shape, flat, coord)

    def _coordinate(self, flat: str, sizes: Sequence[Dim], place: int, letter: str) -> str:
        if len(sizes) == 1:
            return flat if _NAME.fullmatch(flat) else self.declare("int", letter, flat)
        base = flat if _NAME.fullmatch(flat) else f"({flat})"
        rest = self.product(sizes[place + 1 :]) if place + 1 < len(sizes) else ""
        if rest:
            base += f" / ({rest})" if " " in rest else f" / {rest}"
        if place:
            base += f" % {self.size(sizes[place])}"
        return self.declare("int", f"{letter}{place}", base)

    def linear(self, index: Index, shape: Shape) -> str:
        """The row-major number of ``index`` in memory of ``shape``."""
        if index.flat is not None:
            return index.flat
        parts = [(index.coord(dim), shape[dim]) for dim in range(len(shape)) if shape[dim].value != 1]
        if not parts:
            return "0"
        text = parts[0][0]
        for coord, size in parts[1:]:
            left = text if _NAME.fullmatch(text) or text.isdigit() else f"({text})"
            product = f"{left} * {self.size(size)}"
            text = coord if left == "0" else product if coord == "0" else f"{product} + {coord}"
        return text

    # -- values

    def value(self, value: Value, index: Index) -> str:
        """The element of ``value`` at ``index``: a variable, a literal or a read."""
        if isinstance(value, Constant):
            return value.text
        if isinstance(value, Size):
            return value.write(self, index)
        if id(value) not in self.given and value.memory is not None:
            value = value.memory
        if id(value) in self.given:
            return self.given[id(value)]
        if id(value) in self.stats:
            return self._statistic(value, index)
        key = (id(value), index.key)
        found = self.block.find(key)
        if found is not None:
            return found
        if isinstance(value, Buffer):
            text = f"{self.buffer_name(value)}[{self.linear(index, value.shape)}]"
            if value.uses > 1:
                text = self._keep(key, ctype(value.dtype), text)
            return text
        if isinstance(value, Moved):
            return self.value(value.args[0], value.place(self, index))
        if id(value) in self.prepared:
            reads = [self.value(leaf, index) for leaf in self.prepared[id(value)]]
            return self._keep(key, ctype(value.dtype), f"prepare({', '.join(reads)})")
        if isinstance(value, Point):
            if value.inline:
                return self.term(value, index)
            return self._point(value, index, key)
        if isinstance(value, Written):
            if value.heavy and (self.looping or index.flat is None or index.flat != self.whole):
                raise NeedsMemory(value)
            text = value.write(self, index)
            return text if _NAME.fullmatch(text) else self._keep(key, ctype(value.dtype), text)
        raise NeedsMemory(value)

    def variable(self, value: Value, index: Index) -> str:
        """As ``value``, but never a read: a variable or a literal."""
        text = self.value(value, index)
        if isinstance(value, Constant) or _NAME.fullmatch(text):
            return text
        return self._keep((id(value), index.key), ctype(value.dtype), text)

    def _keep(self, key: object, kind: str, text: str) -> str:
        name = self.declare(kind, "v", text)
        self.block.known[key] = name
        return name

    def _statistic(self, value: Value, index: Index) -> str:
        row, name = self.stats[id(value)]
        if index.coords() != row.coords():
            raise NeedsMemory(value)
        return name

    def term(self, value: Point, index: Index) -> str:
        """The expression of ``value`` itself; its arguments are variables or reads."""
        return self._expression(value, self._arguments(value, index))

    def _arguments(self, value: Point, index: Index) -> list[str]:
        texts = []
        for position, argument in enumerate(value.args):
            often = value.template.count(f"{{{position}}}") > 1
            inline = isinstance(argument, Point) and argument.inline
            wanted = self.variable if (position == 0 and not inline) or often else self.value
            texts.append(wanted(argument, index))
        return texts

    def _expression(self, value: Point, texts: Sequence[str]) -> str:
        return expression(value.template, texts, value.args[0].dtype if value.args else value.dtype)

    def _point(self, value: Point, index: Index, key: object) -> str:
        texts = self._arguments(value, index)
        text = self._expression(value, texts)
        kind = ctype(value.dtype)
        first = texts[0] if texts else ""
        if self._replaceable(value, first, kind):
            self.line(f"{first} = {text};")
            for block_key in [k for k, name in self.block.known.items() if name == first]:
                del self.block.known[block_key]
            self.block.known[key] = first
            return first
        return self._keep(key, kind, text)

    def _replaceable(self, value: Point, name: str, kind: str) -> bool:
        """Whether the first argument's variable is free for the result."""
        first = value.args[0] if value.args else None
        if isinstance(first, Point) and first.inline:
            # Its own first argument's variable: free where the term was all that needed it.
            return False
        while isinstance(first, Moved) and first.uses <= 1:
            first = first.args[0]
        return (
            first is not None
            and first.uses <= 1
            and name in self.block.own
            and ctype(first.dtype) == kind
            and name.startswith("v")
        )

"""Kernel bodies in pairs: how it was written in a hurry, and a better one for the same signature and launch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from dice_training.cuke.device import Place, phase_fields, read
from dice_training.cuke.ops import Op
from dice_training.cuke.spec import Operand, Spec, Step

Schedule = Literal["guard", "stride", "grid2d", "thread_row", "block_serial", "block_tree", "warp_row"]


@dataclass(frozen=True)
class Names:
    """What the file's author calls things; shared by both bodies."""

    x: str
    out: str
    n: str
    rows: str
    cols: str
    i: str
    row: str
    col: str
    tid: str
    v: str
    shared: str
    stats: dict[str, str]
    pointers: dict[str, str]
    """Operand name in the specification -> parameter name."""


@dataclass(frozen=True)
class Layout:
    """Launch facts that both bodies rely on."""

    schedule: Schedule
    dynamic_shared: bool = False
    static_shared: str = "256"
    unit: str = "    "


@dataclass(frozen=True)
class HelperStep(Step):
    """A step that the file has a device function for; bodies call it."""

    helper: str = ""

    @property
    def definition(self) -> Op:
        call = f"{self.helper}({{v}})"
        return replace(super().definition, cuda=call, hasty=(call,))


class BodyWriter:
    """What both bodies of a kernel share."""

    def __init__(self, spec: Spec, names: Names, layout: Layout) -> None:
        self.spec, self.names, self.layout = spec, names, layout
        self.linear = f"{names.row} * {names.cols} + {names.col}"

    def _at(self, element: str, column: str) -> Place:
        def place(operand: Operand) -> str:
            pointer = self.names.pointers[operand.name]
            return read(pointer, operand, element, column)

        return place

    def _column(self) -> str:
        return (
            self.names.col
            if self.spec.row or self.layout.schedule == "grid2d"
            else f"{self.names.i} % {self.names.cols}"
        )

    def heads(self) -> list[str]:
        n = self.names
        return {
            "guard": [f"int {n.i} = blockIdx.x * blockDim.x + threadIdx.x;"],
            "stride": [f"int {n.i} = blockIdx.x * blockDim.x + threadIdx.x;"],
            "grid2d": [
                f"int {n.col} = blockIdx.x * blockDim.x + threadIdx.x;",
                f"int {n.row} = blockIdx.y * blockDim.y + threadIdx.y;",
            ],
            "thread_row": [f"int {n.row} = blockIdx.x * blockDim.x + threadIdx.x;"],
        }.get(self.layout.schedule, [f"int {n.row} = blockIdx.x;"])

    def _fields(self) -> dict[str, str]:
        row = self.spec.row
        assert row
        fields = phase_fields(row.definition.phases, self.names.cols, row.eps, self.names.stats)
        return fields | dict(
            zip("wc", (f"{self.names.pointers[o.name]}[{self.names.col}]" for o in row.affine), strict=False)
        )

    def _over_threads(self) -> str:
        n = self.names
        step = "32" if self.layout.schedule == "warp_row" else "blockDim.x"
        return f"for (int {n.col} = {n.tid}; {n.col} < {n.cols}; {n.col} += {step})"

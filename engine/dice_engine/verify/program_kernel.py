"""Kernel programs: a CUDA text and a plan, run through the host interpreter on guarded buffers."""

from __future__ import annotations

import time
from typing import Any

import torch

from dice_engine.source.expressions import ExpressionError
from dice_engine.source.host import HostProgram, Pointer
from dice_engine.source.plan import Buffer, Fill, Param, Plan
from dice_engine.source.plans import buffer_ctype, instantiations, run_plan
from dice_engine.verify.extension import Toolchain
from dice_engine.verify.memory import Arena
from dice_engine.verify.placement import Placement
from dice_engine.verify.program import ProgramError, RunOptions, RunResult
from dice_engine.verify.replay import Recording
from dice_engine.verify.torch_runtime import TorchRuntime, element_dtype


class KernelProgram:
    """The kernels of one text, compiled, with the plan that says how they are called."""

    def __init__(self, text: str, plan: Plan, toolchain: Toolchain):
        self.plan = plan
        self.toolchain = toolchain
        self.program = HostProgram(text)
        self.module = toolchain.build_device(text, instantiations(self.program, plan))
        self.runtime = TorchRuntime(
            self.module, toolchain.launches, toolchain.device, text if plan.wrapper is not None else ""
        )
        self._kept: tuple[Arena, dict[str, torch.Tensor]] | None = None
        """The buffers of the last run."""

    def run(self, case: dict[str, Any], options: RunOptions) -> RunResult:
        """One run of the plan. ``case``: template, sizes, scalars, and the contents of each buffer by name."""
        plan, launched = self.plan, 0
        arena, buffers = self._filled(case, options.reuse_inputs)
        pointers = {
            buffer.name: Pointer(buffers[buffer.name], 0, buffer_ctype(plan, buffer, case["template"]))
            for buffer in plan.buffers
        }
        self.runtime.names = {tensor.untyped_storage().data_ptr(): name for name, tensor in buffers.items()}
        self.toolchain.begin(options.launches)
        self.toolchain.set_order(options.order, arena)
        started = time.perf_counter()
        try:
            run_plan(
                self.program, plan, case["sizes"], case["template"], pointers, case["scalars"], self.runtime
            )
            self.module.synchronize()
        except ExpressionError as error:
            raise ProgramError("no_plan", str(error)) from error
        finally:
            launched = self.toolchain.end()
        seconds = time.perf_counter() - started
        written = [buffer.name for buffer in plan.buffers if buffer.role in ("out", "inout")]
        mutated = [
            buffer.name
            for buffer in plan.buffers
            if buffer.role == "in"
            and not torch.equal(_bits(buffers[buffer.name].cpu()), _bits(case["buffers"][buffer.name]))
        ]
        return RunResult(
            outputs={name: buffers[name].cpu() for name in written},
            launches=launched,
            race=self.toolchain.race(),
            stray=self.toolchain.stray(),
            misaligned=self.toolchain.misaligned(),
            unasked=self.toolchain.launches.unasked,
            damage=arena.damage(),
            mutated=mutated,
            seconds=seconds,
        )

    def _filled(self, case: dict[str, Any], again: bool) -> tuple[Arena, dict[str, torch.Tensor]]:
        """Guarded buffers with the contents of ``case``; ``again``: those of the last run, of the same sizes."""
        kept, self._kept = self._kept if again else None, None
        if kept is None:
            arena = Arena(self.toolchain.device, case["seed"])
            kept = (arena, {name: arena.like(contents, name) for name, contents in case["buffers"].items()})
        else:
            for name, contents in case["buffers"].items():
                kept[1][name].copy_(contents)
        self._kept = kept
        return kept

    def prepare_timing(self, case: dict[str, Any]) -> None:
        """Buffers of the measuring size on the device, and the launches of one run noted for replay."""
        device = self.toolchain.device
        self._pristine = {name: contents.to(device) for name, contents in case["buffers"].items()}
        self._placement = Placement(device)
        self._place()
        pointers = {
            buffer.name: Pointer(
                self._buffers[buffer.name], 0, buffer_ctype(self.plan, buffer, case["template"])
            )
            for buffer in self.plan.buffers
        }
        recording = Recording(self.runtime, self._order)
        run_plan(
            self.program, self.plan, case["sizes"], case["template"], pointers, case["scalars"], recording
        )
        self.module.synchronize()
        if recording.broken:
            raise ProgramError("no_plan", "the wrapper's launches depend on what the buffers hold")
        self._again = recording.finish(None)

    def choose(self, which: int) -> None:
        """There is one input set, in memory elsewhere; launches are counted from here."""
        self._place()
        self.toolchain.begin("run")

    def _place(self) -> None:
        self._buffers, self._order = {}, []
        self._placement.move()
        self._buffers = {name: contents.clone() for name, contents in self._pristine.items()}
        self._order = list(self._buffers.values())

    def call(self) -> None:
        """One run under the clock."""
        self._again(self._order)

    def restore(self) -> None:
        """The buffers as they were before the first run."""
        for buffer in self.plan.buffers:
            if buffer.role != "in":
                self._buffers[buffer.name].copy_(self._pristine[buffer.name])

    def outputs(self) -> dict[str, torch.Tensor]:
        """What the last run left."""
        return {b.name: self._buffers[b.name].cpu() for b in self.plan.buffers if b.role in ("out", "inout")}


def plan_from_message(message: dict[str, Any]) -> Plan:
    """The plan again, from what the judge sent."""
    return Plan(
        source=message["source"],
        kernel=message["kernel"],
        wrapper=message["wrapper"],
        params=tuple(Param(*entry) for entry in message["params"]),
        grid=tuple(message["grid"]) if message["grid"] else None,
        block=tuple(message["block"]) if message["block"] else None,
        shared=message["shared"],
        buffers=tuple(Buffer(*entry) for entry in message["buffers"]),
        templates=tuple(message["templates"]),
        sizes=tuple(message["sizes"]),
        scalars={name: Fill(*entry) for name, entry in message["scalars"].items()},
    )


def buffer_layout(ctype: str) -> tuple[torch.dtype, int]:
    """Element dtype of a buffer's C type and how many of them one C element holds: ``float4`` -> (float32, 4)."""
    dtype = element_dtype(ctype)
    if dtype is not None:
        return dtype, 1
    for name, dtype in _VECTORS.items():
        if ctype[:-1] == name and ctype[-1:] in "1234":
            return dtype, int(ctype[-1])
    if ctype in _PAIRS:
        return _PAIRS[ctype], 2
    raise ProgramError("no_plan", f"buffers of type {ctype!r} cannot be filled")


_VECTORS = {
    "float": torch.float32,
    "double": torch.float64,
    "int": torch.int32,
    "uint": torch.uint32,
    "char": torch.int8,
    "uchar": torch.uint8,
    "short": torch.int16,
}
_PAIRS = {
    "half2": torch.float16,
    "__half2": torch.float16,
    "__nv_bfloat162": torch.bfloat16,
    "nv_bfloat162": torch.bfloat16,
    "cuFloatComplex": torch.float32,
    "cuComplex": torch.float32,
}


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8) if tensor.numel() else tensor.to(torch.uint8)

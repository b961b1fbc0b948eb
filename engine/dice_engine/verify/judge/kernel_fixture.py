"""An original kernel whose arguments a fixture of the user's makes: it runs in the original's own process."""

from __future__ import annotations

from typing import Any

import torch

from dice_engine.source.plan import Plan
from dice_engine.source.plans import buffer_ctype
from dice_engine.verify.judge.kernel import KernelCase, OriginalKernel
from dice_engine.verify.judge.kernel_cases import GIVEN
from dice_engine.verify.program_kernel import buffer_layout
from dice_engine.verify.worker import Failed, Worker

_SEEDS = 3


class FixtureKernel(OriginalKernel):
    """As ``OriginalKernel``, on what ``plan.inputs_source`` gives under different seeds and on nothing else."""

    def __init__(self, worker: Worker, text: str, plan: Plan, timeout: float, *rest: Any):
        program = {"role": "reference", "class_name": "", "tripwire": None, "headers": None, "clock": False}
        worker.ask("load_module", timeout, text=plan.inputs_source, **program)
        self._given: list[list[Any]] = [worker.ask("inputs", timeout, seed=seed) for seed in range(_SEEDS)]
        super().__init__(worker, text, plan, timeout, *rest)

    def _make(self, name: str, template: int, sizes: int, seed: int, fill: str) -> KernelCase | None:
        return super()._make(name, template, sizes, seed, fill) if fill == GIVEN else None

    def _message(self, template: int, size: int, seed: int, fill: str) -> dict[str, Any]:
        """The fixture's values by name: tensors are buffers, whole numbers sizes, other numbers scalars."""
        plan, binding = self.plan, self.plan.templates[template]
        wanted = [param for param in plan.params if param.pointer or not param.ctype.endswith(_STREAMS)]
        given = self._given[seed]
        if len(given) != len(wanted):
            names = ", ".join(param.name for param in wanted)
            raise Failed(
                "no_plan",
                f"the fixture gives {len(given)} arguments; {plan.wrapper or plan.kernel} takes {names}",
            )
        buffers: dict[str, torch.Tensor] = {}
        sizes: dict[str, int] = {}
        scalars: dict[str, float] = {}
        for param, value in zip(wanted, given, strict=True):
            if param.pointer != isinstance(value, torch.Tensor):
                kind = "a tensor" if param.pointer else "a number"
                raise Failed(
                    "no_plan", f"the fixture gives {param.name} as {type(value).__name__}, it must be {kind}"
                )
            if isinstance(value, torch.Tensor):
                buffer = next(buffer for buffer in plan.buffers if buffer.name == param.name)
                dtype, _ = buffer_layout(buffer_ctype(plan, buffer, binding))
                if value.dtype != dtype:
                    raise Failed(
                        "no_plan",
                        f"the fixture gives {param.name} as {value.dtype}, the kernel reads {dtype}",
                    )
                buffers[param.name] = value.contiguous().flatten()
            elif isinstance(value, int) and not isinstance(value, bool):
                sizes[param.name] = value
            else:
                scalars[param.name] = value
        return {"template": binding, "sizes": sizes, "scalars": scalars, "buffers": buffers, "seed": seed}


_STREAMS = ("Stream_t", "CUDAStream", "CUstream")

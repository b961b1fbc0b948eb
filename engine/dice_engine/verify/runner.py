"""A runner: the forked, walled process in which one program is loaded and run. It answers, it decides nothing."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from dice_engine.source.host_values import HostError, Unsupported
from dice_engine.verify.build.interface import BuildError, InfraError, LaunchError
from dice_engine.verify.build.process import Builds
from dice_engine.verify.build.symbols import UnsafeCode
from dice_engine.verify.clock import GpuClock
from dice_engine.verify.extension import NeedsHost, Toolchain
from dice_engine.verify.gpu import copy_rate
from dice_engine.verify.judge.dynamic import left_running
from dice_engine.verify.memory import Arena
from dice_engine.verify.program import ProgramError, RunOptions
from dice_engine.verify.program_kernel import KernelProgram, plan_from_message
from dice_engine.verify.program_module import ModuleProgram
from dice_engine.verify.protocol import Channel, Closed
from dice_engine.verify.trace import fill_poison, poison_share
from dice_engine.verify.values import bits


def serve(sock: socket.socket, nonce: bytes, folder: Path, cuda: bool) -> int:
    """Answer requests until the judge closes the connection. Returns the exit status."""
    channel = Channel(sock, nonce)
    Builds.listener = lambda running: channel.send({"building": running})
    runner = Runner(torch.device("cuda", 0) if cuda else torch.device("cpu"), folder)
    while True:
        try:
            request = channel.receive()
        except Closed:
            return 0
        name = str(request.get("op", "")).replace("_", " ")
        reply = runner.answer(request)
        try:
            channel.send(reply)
        except TypeError as error:
            channel.send(_error("no_plan", f"{name}: {error}"))


class Runner:
    """The program of this process and what can be asked of it. Every public method is a request."""

    def __init__(self, device: torch.device, folder: Path):
        self._device, self._folder = device, folder
        self._programs = 0
        self._toolchain = Toolchain(device, folder)
        self._module: ModuleProgram | None = None
        self._kernel: KernelProgram | None = None
        self._clock: Any = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """One reply: ``{"value": ...}`` or ``{"error": {kind, message, log}}``."""
        name = request.pop("op")
        action: Callable[..., Any] | None = getattr(self, name, None) if not name.startswith("_") else None
        if action is None:
            return _error("infra_error", f"unknown request {name!r}")
        try:
            return {"value": action(**request)}
        except ProgramError as error:
            return _error(error.kind, str(error), error.log)
        except NeedsHost as error:
            return _error("needs_compiler" if error.ready else "needs_host", str(error))
        except UnsafeCode as error:
            return _error("unsafe", str(error))
        except BuildError as error:
            return _error("build_error", str(error), error.log)
        except LaunchError as error:
            return _error("launch_error", str(error))
        except HostError as error:
            return _error("host_error", str(error))
        except Unsupported as error:
            return _error("build_error", f"the host code cannot be run: {error}")
        except InfraError as error:
            return _error("infra_error", str(error))
        except (MemoryError, torch.cuda.OutOfMemoryError) as error:
            return _error("infra_error", f"not enough memory: {error}")
        except OSError as error:
            return _error("infra_error", f"{type(error).__name__}: {error}")

    def prepare(self) -> None:
        """Open the GPU and load what the first run of any program would load: before there is a program."""
        if self._device.type != "cuda":
            return
        arena = Arena(self._device)
        tensor = arena.like(torch.ones(8, 8), "warming")
        for poison in (0, 1):
            fill_poison(tensor, poison)
            poison_share(tensor, poison)
        copied = tensor.clone()
        torch.equal(bits(tensor), bits(copied))
        torch.randn(8, device=self._device).fill_(0.0).cpu()
        arena.damage()
        self._toolchain.build_device("__global__ void warming(float* x) { x[0] = 1.0f; }").synchronize()
        self._toolchain.modules.clear()

    # -- modules

    def load_module(
        self, text: str, role: str, class_name: str, tripwire: str | None, headers: str | None, clock: bool
    ) -> dict[str, Any]:
        self._unload()
        self._toolchain.headers = Path(headers) if headers else None
        self._start_clock(clock)
        self._module = ModuleProgram(text, role, class_name, tripwire, self._toolchain)
        return self._build_info()

    def init_inputs(self, seed: int) -> list[Any]:
        return self._the_module().init_inputs(seed)

    def inputs(self, seed: int) -> list[Any]:
        return self._the_module().inputs(seed)

    def construct(self, init_inputs: list[Any], seed: int) -> dict[str, Any]:
        self._the_module().build(init_inputs, seed)
        return {"state": self._the_module().state(), "build": self._build_info()}

    def read_state(self, names: list[str]) -> dict[str, torch.Tensor]:
        return self._the_module().read_state(names)

    def even_state(self) -> dict[str, torch.Tensor]:
        return self._the_module().even_state()

    def write_state(self, values: dict[str, torch.Tensor]) -> None:
        self._the_module().write_state(values)

    def run_module(self, inputs: list[Any], options: dict[str, Any], seed: int) -> dict[str, Any]:
        result = self._the_module().run(inputs, RunOptions.from_message(options), seed)
        return {**_fields(result), "build": self._build_info()}

    def repeat_module(self, inputs: list[Any], seed: int, calls: int, seconds: float) -> dict[str, Any]:
        """Calls as a training loop would make them: one after another, unwatched."""
        launches, outputs = self._the_module().repeat(inputs, seed, calls, seconds)
        return {"launches": launches, "outputs": outputs}

    def compile_hosts(self, reason: str) -> dict[str, Any]:
        """Compile host code that a run could not interpret: a request of its own, because it takes a build's time."""
        self._the_module().compile_hosts(reason)
        return self._build_info()

    def conduct(self) -> dict[str, Any]:
        """What the candidate did to its surroundings."""
        module = self._the_module()
        return {"tampered": module.tampered(), "inherited": module.inherited(), "left": left_running()}

    # -- kernels

    def load_kernel(self, text: str, plan: dict[str, Any], clock: bool) -> dict[str, Any]:
        self._unload()
        self._start_clock(clock)
        self._kernel = KernelProgram(text, plan_from_message(plan), self._toolchain)
        module = self._kernel.module
        return {"backend": module.backend, "seconds": module.build_seconds, "log": module.log[-8000:]}

    def run_kernel(self, case: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        if self._kernel is None:
            raise ProgramError("infra_error", "no kernel is loaded")
        return _fields(self._kernel.run(case, RunOptions.from_message(options)))

    def usage(self) -> list[dict[str, Any]]:
        """What the kernels launched so far take of a multiprocessor."""
        return self._toolchain.usage()

    # -- the clock

    def prepare_module_timing(self, input_sets: list[list[Any]], compiled: bool) -> None:
        self._the_module().prepare_timing(input_sets, compiled)

    def prepare_kernel_timing(self, case: dict[str, Any]) -> None:
        if self._kernel is None:
            raise ProgramError("infra_error", "no kernel is loaded")
        self._kernel.prepare_timing(case)

    def time(self, which: int, calls: int, outputs: bool, warm: bool) -> dict[str, Any]:
        """Times of ``calls`` calls on input set ``which``, milliseconds."""
        program: Any = self._module or self._kernel
        program.choose(which)
        if warm:
            self._clock.warm_up(program.call, program.restore)
            program.choose(which)
        timing = self._clock.measure(program.call, program.restore, calls)
        return {
            "ms": timing.ms,
            "escaped": timing.escaped,
            "consistent": timing.consistent,
            "launches": self._toolchain.end(),
            "outputs": program.outputs() if outputs else None,
        }

    def bandwidth(self) -> float:
        """Bytes a second that a copy on this GPU reads and writes."""
        return copy_rate()

    def _unload(self) -> None:
        """Forget the last program; the process and its CUDA context serve the next one."""
        self._programs += 1
        self._module = self._kernel = None
        folder = self._folder / f"program{self._programs}"
        folder.mkdir()
        self._toolchain = Toolchain(self._device, folder)

    def _start_clock(self, wanted: bool) -> None:
        # Before any code under test runs: the clock keeps torch's own functions.
        if wanted and self._clock is None:
            self._clock = GpuClock()

    def _the_module(self) -> ModuleProgram:
        if self._module is None:
            raise ProgramError("infra_error", "no module is loaded")
        return self._module

    def _build_info(self) -> dict[str, Any]:
        tools = self._toolchain
        return {"backend": tools.backend, "seconds": tools.build_seconds, "log": tools.log[-8000:]}


def _fields(result: Any) -> dict[str, Any]:
    return {name: getattr(result, name) for name in result.__dataclass_fields__}


def _error(kind: str, message: str, log: str = "") -> dict[str, Any]:
    return {"error": {"kind": kind, "message": message[:4000], "log": log[-16000:]}}

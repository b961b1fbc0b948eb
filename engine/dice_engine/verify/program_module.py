"""Module programs: Python text with an ``nn.Module``, run the way a user's training script would run it."""

from __future__ import annotations

import copy
import linecache
import math
import sys
import time
import types
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch.utils import cpp_extension

from dice_engine.source.host_values import HostError, Unsupported
from dice_engine.verify.build.interface import BuildError, InfraError, LaunchError
from dice_engine.verify.build.symbols import UnsafeCode
from dice_engine.verify.extension import Extension, NeedsHost, Toolchain
from dice_engine.verify.judge.dynamic import Identities, ThreadWatch, disarm
from dice_engine.verify.memory import Arena
from dice_engine.verify.placement import Placement
from dice_engine.verify.program import ProgramError, RunOptions, RunResult, explain
from dice_engine.verify.protocol import dtype_name
from dice_engine.verify.trace import CudaAsCpu, HostReads, Watch, poison_share, pretend_cuda
from dice_engine.verify.values import bits, digest, on_device, seed_all, shared_memory, tensors_of


def _plain_function(name: str, build: Callable[..., Extension]) -> Callable[..., types.ModuleType]:
    """``build`` for code under test: neither it nor what it returns leads to the toolchain by an attribute."""

    def call(*args: Any, **kwargs: Any) -> types.ModuleType:
        return build(*args, **kwargs).facade()

    call.__name__ = name
    return call


class ModuleProgram:
    """The text of a file, executed once, and one instance of the class that is judged.

    ``tripwire`` names the reference's class inside the candidate's own text, if it is there: calling it raises.
    """

    def __init__(self, text: str, role: str, class_name: str, tripwire: str | None, toolchain: Toolchain):
        self.toolchain = toolchain
        self.device = toolchain.device
        self.class_name = class_name
        self.filename = f"<{role}>"
        self.model: torch.nn.Module | None = None
        self.double_model: torch.nn.Module | None = None
        self._last_inputs: list[Any] | None = None
        self._result: Any = None
        self._reads = HostReads()
        self._threads = ThreadWatch()
        self._returned: list[tuple[torch.Tensor, torch.Tensor]] = []
        if self.device.type == "cpu":
            pretend_cuda()
        for name, build in (("load_inline", toolchain.load_inline), ("load", toolchain.load)):
            setattr(cpp_extension, name, _plain_function(name, build))
        self.identities = Identities.take()
        self.namespace = self._execute(text, role)
        self.disarmed = None
        if tripwire and tripwire != class_name:
            self.disarmed = disarm(self.namespace, tripwire)

    def _execute(self, text: str, role: str) -> dict[str, Any]:
        module = types.ModuleType(f"{role}_module")
        module.__file__ = f"{role}_module.py"
        sys.modules[module.__name__] = module
        linecache.cache[self.filename] = (len(text), None, text.splitlines(keepends=True), self.filename)
        try:
            code = compile(text, self.filename, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None)
            where = f" (line {line})" if line else ""
            raise ProgramError(
                "build_error", f"not valid Python: {getattr(error, 'msg', error)}{where}"
            ) from error
        with self._world():
            self._guarded(lambda: exec(code, module.__dict__), "loading")
        return module.__dict__

    def init_inputs(self, seed: int) -> list[Any]:
        """``get_init_inputs()`` of this text, [] where it has none."""
        return self._call_generator("get_init_inputs", seed, required=False)

    def inputs(self, seed: int) -> list[Any]:
        """``get_inputs()`` of this text under ``seed``, on the CPU."""
        return [
            on_device(value, torch.device("cpu"))
            for value in self._call_generator("get_inputs", seed, required=True)
        ]

    def _call_generator(self, name: str, seed: int, required: bool) -> list[Any]:
        function = self.namespace.get(name)
        if not callable(function):
            if required:
                raise ProgramError("no_plan", f"there is no {name}() that says what the module is run on")
            return []
        seed_all(seed)
        with self._world():
            values = self._guarded(function, f"{name}()")
        if isinstance(values, torch.Tensor):
            return [values]
        if isinstance(values, dict):
            return list(values.values())
        return list(values)

    def build(self, init_inputs: list[Any], seed: int) -> None:
        """Construct the module on the run device, in eval mode."""
        factory = self.namespace.get(self.class_name)
        if not isinstance(factory, type) or not issubclass(factory, torch.nn.Module):
            raise ProgramError("build_error", f"there is no class {self.class_name} derived from nn.Module")
        seed_all(seed)

        def construct() -> torch.nn.Module:
            arguments = [on_device(value, self.device) for value in copy.deepcopy(init_inputs)]
            return factory(*arguments).eval().to(self.device)

        with self._world():
            self.model = self._guarded(construct, f"{self.class_name}()")

    def state(self) -> list[tuple[str, str, list[int], str]]:
        """(name, dtype, shape, digest of the bits) of every parameter and buffer."""
        return [
            (name, dtype_name(tensor.dtype), list(tensor.shape), digest(tensor))
            for name, tensor in self._model().state_dict().items()
            if isinstance(tensor, torch.Tensor)
        ]

    def read_state(self, names: list[str]) -> dict[str, torch.Tensor]:
        state = self._model().state_dict()
        return {name: state[name].detach().cpu() for name in names}

    def even_state(self) -> dict[str, torch.Tensor]:
        """What training changes and construction leaves even: parameters and running statistics of one value."""
        model = self._model()
        running = ((name, value) for name, value in model.named_buffers() if "running_" in name)
        learned = {**dict(model.named_parameters()), **dict(running)}
        return {
            name: value.detach().cpu()
            for name, value in learned.items()
            if value.is_floating_point() and value.numel() and bool((value == value.flatten()[0]).all())
        }

    def write_state(self, values: dict[str, torch.Tensor]) -> None:
        self.double_model = None
        state = self._model().state_dict()
        with torch.no_grad():
            for name, value in values.items():
                state[name].copy_(value)

    def run(self, inputs: list[Any], options: RunOptions, seed: int) -> RunResult:
        """One forward pass on fresh copies of ``inputs``."""
        try:
            result = self._run(inputs, options, seed)
        except (Unsupported, ProgramError) as error:
            if self.toolchain.not_understood is None:
                raise error
            result = None
        finally:
            self.toolchain.end()
        if self.toolchain.not_understood is None and result is not None:
            return result
        for extension in self.toolchain.extensions:
            extension.refuse_libraries()
        raise NeedsHost(self.toolchain.not_understood or "", self.toolchain.headers is not None)

    def compile_hosts(self, reason: str) -> None:
        """Build the host side of every extension, for code that the interpreter does not understand (``reason``)."""
        for extension in self.toolchain.extensions:
            if extension.compiled is None:
                extension.compile_host(reason)

    def prepare_timing(self, input_sets: list[list[Any]], compiled: bool) -> None:
        """Keep the input sets on the device; ``compiled``: time ``torch.compile`` of the module."""
        self._sets = [[on_device(value, self.device) for value in values] for values in input_sets]
        self._placement = Placement(self.device)
        self._timed: Any = self._model()
        if compiled:
            import torch._inductor.config as inductor

            inductor.compile_threads = 1
            self._timed = torch.compile(self._timed)
        for extension in self.toolchain.extensions:
            extension.replay()

    def choose(self, which: int) -> None:
        """The input set of the timed calls that follow, in memory elsewhere; launches are counted from here."""
        self._which = which
        self._result, self._given = None, []
        self._placement.move()
        self.toolchain.begin("run")
        self.toolchain.replaying = True

    def restore(self) -> None:
        """Fresh copies of the inputs at new addresses, no trace of the last result, the seed of the checked runs."""
        for tensor in tensors_of(self._result):
            if tensor.dtype.is_floating_point:
                tensor.fill_(float("nan"))
        self._result = None
        self._given = [
            value.clone() if isinstance(value, torch.Tensor) else value for value in self._sets[self._which]
        ]
        seed_all(self._which)

    def call(self) -> None:
        """One forward pass under the clock."""
        with torch.no_grad():
            self._result = self._timed(*self._given)

    def outputs(self) -> Any:
        """What the last call returned."""
        return self._plain(self._result, "output", [])

    def _run(self, inputs: list[Any], options: RunOptions, seed: int) -> RunResult:
        self.toolchain.begin(options.launches)
        model = self._double() if options.double else self._model()
        arena = Arena(self.device, seed) if options.trace and not options.double else None
        self.toolchain.set_order(options.order, arena)
        given = self._place(inputs, arena, options)
        before = [value.clone() if isinstance(value, torch.Tensor) else value for value in given]
        wanted = [tuple(shape) for shape in self._shapes] if options.keep_results else []
        self._reads.count = self._threads.count = 0
        watch = Watch(arena, options.poison, wanted, self._reads) if options.trace else None
        self.toolchain.launches.sizes = {math.prod(shape) for shape in wanted}
        seed_all(seed)
        started = time.perf_counter()
        with self._world(), torch.no_grad(), ExitStack() as stack:
            if watch is not None:
                stack.enter_context(watch)
            outputs = self._guarded(lambda: model(*given), "forward")
        self._synchronize()
        seconds = time.perf_counter() - started
        launched = self.toolchain.end()
        host_reads = self._reads.count
        overwritten = self._follow_up(outputs, given, options)
        results = list(watch.results) if watch is not None else []
        if options.keep_results:
            results += self._held(arena)
        pieces = watch.pieces.kept if watch is not None else []
        mutated = [
            f"input {index}"
            for index, (old, new) in enumerate(zip(before, given, strict=True))
            if isinstance(old, torch.Tensor) and not torch.equal(bits(old), bits(new))
        ]
        odd: list[str] = []
        plain = self._plain(outputs, "output", odd)
        self._shapes = [list(t.shape) for t in tensors_of(plain)]
        return RunResult(
            outputs=plain,
            launches=launched,
            race=self.toolchain.race(),
            stray=self.toolchain.stray(),
            misaligned=self.toolchain.misaligned(),
            unasked=self.toolchain.launches.unasked,
            damage=arena.damage() if arena is not None else None,
            mutated=mutated,
            ops={**watch.ops, **self._libraries()} if watch is not None else {},
            results=[result.cpu() for result in results],
            pieces=[piece.cpu() for piece in pieces],
            shared_memory=shared_memory(outputs, given),
            strides=[[] if t.is_contiguous() else list(t.stride()) for t in tensors_of(plain)],
            host_reads=host_reads,
            threads=self._threads.count,
            overwritten=overwritten,
            odd_outputs=odd,
            poison_share=max((poison_share(t, options.poison) for t in tensors_of(plain)), default=0.0),
            seconds=seconds,
        )

    def _libraries(self) -> dict[str, int]:
        """Functions of NVIDIA's libraries that compiled host code calls: torch's trace does not see them."""
        compiled = [extension for extension in self.toolchain.extensions if extension.compiled is not None]
        return {name: 1 for extension in compiled for name in extension.libraries}

    def _held(self, arena: Arena | None) -> list[torch.Tensor]:
        """What lies in memory, inputs aside, after a run whose launches did nothing: of an output's size."""
        launches = self.toolchain.launches
        held = launches.given
        launches.given = []
        if arena is not None:
            held += [
                data.clone()
                for name, data in arena.contents()
                if data.numel() in launches.sizes and not name.startswith("input ")
            ]
        return held

    def _follow_up(self, outputs: Any, given: list[Any], options: RunOptions) -> bool:
        """Whether what the last run returned has changed since; keeps what this one returned."""
        changed = any(not torch.equal(bits(tensor), bits(copy)) for tensor, copy in self._returned)
        ours = {value.untyped_storage().data_ptr() for value in given if isinstance(value, torch.Tensor)}
        self._returned = [
            (tensor, tensor.clone())
            for tensor in tensors_of(outputs)
            if type(tensor) is torch.Tensor
            and tensor.layout == torch.strided
            and tensor.device.type == self.device.type
            and tensor.untyped_storage().data_ptr() not in ours
        ]
        return changed and options.launches == "run"

    _shapes: list[list[int]] = []  # noqa: RUF012  (replaced, never changed in place)

    def repeat(self, inputs: list[Any], seed: int, calls: int, seconds: float) -> tuple[int, Any]:
        """Up to ``calls`` plain calls on fresh copies in ``seconds``: the fewest launches of one, the last outputs."""
        fewest, outputs, until = 1 << 62, None, time.monotonic() + seconds
        self.toolchain.set_order("forward")
        for _ in range(calls):
            given = [
                value.clone() if isinstance(value, torch.Tensor) else value
                for value in self._place(inputs, None, RunOptions())
            ]
            self.toolchain.begin("run")
            seed_all(seed)
            with self._world(), torch.no_grad():
                outputs = self._guarded(lambda given=given: self._model()(*given), "forward")
            self._synchronize()
            fewest = min(fewest, self.toolchain.end())
            if time.monotonic() > until:
                break
        return fewest, self._plain(outputs, "output", [])

    def tampered(self) -> list[str]:
        """Names of torch and library functions that are not what they were before the text ran."""
        return self.identities.changed()

    def inherited(self) -> str | None:
        """Why the module is not independent of the reference's class, None when it is."""
        if self.disarmed is None:
            return None
        return self.disarmed.relation(self.namespace.get(self.class_name), self.model)

    def _place(self, inputs: list[Any], arena: Arena | None, options: RunOptions) -> list[Any]:
        dtype = torch.float64 if options.double else None
        if options.reuse_inputs and self._last_inputs is not None:
            pairs = list(zip(self._last_inputs, inputs, strict=True))
            self._last_inputs = [
                old.copy_(new) if isinstance(old, torch.Tensor) else new for old, new in pairs
            ]
            return self._last_inputs
        placed = []
        for index, value in enumerate(inputs):
            moved = on_device(value, self.device, dtype)
            if isinstance(moved, torch.Tensor):
                moved = arena.like(moved, f"input {index}") if arena is not None else moved.clone()
            placed.append(moved)
        self._last_inputs = None if options.double else placed
        return placed

    def _plain(self, value: Any, path: str, odd: list[str]) -> Any:
        """Outputs as data; anything that is no ordinary tensor on the run device is noted in ``odd``."""
        if isinstance(value, torch.Tensor):
            if type(value) not in (torch.Tensor, torch.nn.Parameter):
                odd.append(f"{path} is a {type(value).__name__}, not a torch.Tensor")
                value = value.as_subclass(torch.Tensor)
            if value.layout != torch.strided or value.device.type == "meta":
                odd.append(f"{path} has layout {value.layout} on {value.device.type}: no plain storage")
                return None
            if value.device.type != self.device.type:
                odd.append(f"{path} is on {value.device}, not on {self.device}")
            overlapping = any(s == 0 and n > 1 for s, n in zip(value.stride(), value.shape, strict=True))
            if overlapping:
                odd.append(
                    f"{path} repeats its memory: strides {list(value.stride())} for shape {list(value.shape)}"
                )
                value = value.contiguous()
            return value.detach().cpu()
        if isinstance(value, list | tuple):
            return [self._plain(item, f"{path}[{index}]", odd) for index, item in enumerate(value)]
        if isinstance(value, dict):
            return {str(key): self._plain(item, f"{path}[{key!r}]", odd) for key, item in value.items()}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        odd.append(f"{path} is a {type(value).__name__}")
        return None

    def _double(self) -> torch.nn.Module:
        if self.double_model is None:
            self.double_model = copy.deepcopy(self._model()).double()
        return self.double_model

    def _model(self) -> torch.nn.Module:
        if self.model is None:
            raise ProgramError("crash", "the module was not constructed")
        return self.model

    def _world(self) -> ExitStack:
        stack = ExitStack()
        if self.device.type == "cpu":
            stack.enter_context(CudaAsCpu(self._reads))
        return stack

    def _synchronize(self) -> None:
        for extension in self.toolchain.extensions:
            extension.synchronize()
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def _guarded(self, action: Any, doing: str) -> Any:
        try:
            return action()
        except (UnsafeCode, LaunchError):
            raise
        except BuildError as error:
            raise ProgramError("build_error", str(error), error.log) from error
        except (InfraError, Unsupported, ProgramError, NeedsHost):
            raise
        except HostError as error:
            raise ProgramError("host_error", f"{doing}: {error}") from error
        except torch.cuda.OutOfMemoryError as error:
            raise InfraError(f"not enough GPU memory while {doing}") from error
        except (Exception, SystemExit) as error:
            raise ProgramError("crash", f"{doing}: {explain(error, self.filename)}") from error

"""``load_inline`` without its build: the device part compiled alone, the host functions interpreted.

While a program's text runs, ``torch.utils.cpp_extension.load_inline`` and ``load`` are ours. The object they return
has the asked-for functions; each call runs the host function of the source through the interpreter. Host code that
the interpreter does not understand is compiled instead, the first time that shows. What the quick builds do not
understand at all is given to nvcc as a whole.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from dice_engine.source.host import HostProgram
from dice_engine.source.host_values import Device, Dtype, Unsupported
from dice_engine.verify.build import device_source
from dice_engine.verify.build.cpu import CpuModule, Order, build_cpu
from dice_engine.verify.build.host import HostExtension, build_host
from dice_engine.verify.build.interface import BuildError, DeviceModule, NeedsToolkit
from dice_engine.verify.build.libraries import called_libraries, missing_header
from dice_engine.verify.build.nvcc import NvccExtension, build_nvcc
from dice_engine.verify.build.nvrtc import TORCH_FLAGS, NvrtcModule, build_nvrtc
from dice_engine.verify.build.symbols import UnsafeCode
from dice_engine.verify.memory import Arena
from dice_engine.verify.replay import Replays
from dice_engine.verify.torch_runtime import LaunchMode, LaunchPath, TorchRuntime

_BINDING = re.compile(r"\bm\s*\.\s*def\s*\(\s*\"(\w+)\"\s*,\s*&?\s*([\w:]+)")


class NeedsHost(Exception):
    """The host code must be compiled. The message says why; ``ready``: the headers for that are made."""

    def __init__(self, reason: str, ready: bool = False):
        super().__init__(reason)
        self.ready = ready


class Toolchain:
    """How this runner builds: its device, its folder, and the one launch path that everything goes through."""

    def __init__(self, device: torch.device, folder: Path):
        self.device = device
        self.folder = folder
        self.headers: Path | None = None
        """Where torch's precompiled headers lie; host code can be compiled only where the judge has made them."""
        self.launches = LaunchPath()
        self.not_understood: str | None = None
        """Why the last run met host code that must be compiled, None when it met none."""
        self.replaying = False
        """Whether interpreted calls run from notes (under the clock)."""
        self.extensions: list[Extension] = []
        self.modules: list[DeviceModule] = []
        self._count = 0

    def build_device(
        self,
        source: str,
        instantiations: Sequence[tuple[str, tuple[str, ...]]] = (),
        flags: Sequence[str] = (),
    ) -> DeviceModule:
        """Compile the device part of ``source``. Raises BuildError or InfraError."""
        parts = device_source.split(source)
        if self.device.type == "cuda":
            module: DeviceModule = build_nvrtc(parts, instantiations, extra_flags=flags)
            self.modules.append(module)
            return module
        module = build_cpu(parts, self.new_folder(), instantiations, defines=defined(flags))
        self.modules.append(module)
        return module

    def set_order(self, order: Order | Literal["watched"], arena: Arena | None = None) -> None:
        """Order of threads and blocks in the launches that follow (the GPU decides for itself).

        ``watched``: forward, and lost updates (``race``) and loads from guards of ``arena`` (``stray``) are noticed.
        """
        for module in self.modules:
            if isinstance(module, CpuModule):
                module.set_order("forward" if order == "watched" else order)
                module.watch(order == "watched", arena.zones if arena is not None else None)

    def race(self) -> str | None:
        """The first lost update since ``set_order("watched")``, in words."""
        races = (module.race for module in self.modules if isinstance(module, CpuModule))
        return next((race for race in races if race), None)

    def stray(self) -> str | None:
        """The first load from a guard zone since ``set_order("watched")``, in words."""
        strays = (module.stray for module in self.modules if isinstance(module, CpuModule))
        return next((stray for stray in strays if stray), None)

    def misaligned(self) -> str | None:
        """The first address that a GPU refuses since ``set_order("watched")``, in words."""
        found = (module.misaligned for module in self.modules if isinstance(module, CpuModule))
        return next((words for words in found if words), None)

    def new_folder(self) -> Path:
        self._count += 1
        folder = self.folder / f"build{self._count}"
        folder.mkdir()
        return folder

    def begin(self, mode: LaunchMode) -> None:
        """Start counting launches; ``mode`` says what becomes of them until ``end``."""
        self.launches.mode, self.launches.count, self.launches.unasked = mode, 0, None
        self.replaying, self.not_understood = False, None
        for extension in self.extensions:
            if extension.compiled is not None:
                extension.compiled.mode = mode
                extension.counted = extension.compiled.launch_count

    def end(self) -> int:
        """Launches since ``begin``; they run again."""
        count = self.launches.count
        for extension in self.extensions:
            if extension.compiled is not None:
                extension.compiled.mode = "run"
                count += extension.compiled.launch_count - extension.counted
        self.launches.mode = "run"
        return count

    def load_inline(
        self,
        name: str,
        cpp_sources: str | Sequence[str] = (),
        cuda_sources: str | Sequence[str] | None = None,
        functions: str | Sequence[str] | Mapping[str, str] | None = None,
        extra_cuda_cflags: Sequence[str] | None = None,
        **others: Any,
    ) -> Extension:
        """The signature of ``torch.utils.cpp_extension.load_inline``; build folders and flags of the host are ours."""
        refuse_flags(extra_cuda_cflags, others.get("extra_cflags"), others.get("extra_ldflags"))
        cuda = "\n".join([cuda_sources] if isinstance(cuda_sources, str) else cuda_sources or ())
        cpp = "\n".join([cpp_sources] if isinstance(cpp_sources, str) else cpp_sources)
        asked = [functions] if isinstance(functions, str) else list(functions or ())
        return self._add(Extension(self, name, cuda, cpp, asked, list(extra_cuda_cflags or ())))

    def load(
        self,
        name: str,
        sources: str | Sequence[str],
        extra_cuda_cflags: Sequence[str] | None = None,
        **others: Any,
    ) -> Extension:
        """The signature of ``torch.utils.cpp_extension.load``: sources are files, bound by PYBIND11_MODULE."""
        refuse_flags(extra_cuda_cflags, others.get("extra_cflags"), others.get("extra_ldflags"))
        paths = [Path(path) for path in ([sources] if isinstance(sources, str) else sources)]
        cuda = "\n".join(path.read_text() for path in paths if path.suffix in (".cu", ".cuh"))
        cpp = "\n".join(path.read_text() for path in paths if path.suffix not in (".cu", ".cuh"))
        return self._add(Extension(self, name, cuda, cpp, [], list(extra_cuda_cflags or ())))

    def _add(self, extension: Extension) -> Extension:
        self.extensions.append(extension)
        return extension

    def usage(self) -> list[dict[str, Any]]:
        """What each launched kernel takes of a multiprocessor, as fields of ``verdict.KernelUse``."""
        return [use for module in self.modules if isinstance(module, NvrtcModule) for use in module.usage()]

    @property
    def backend(self) -> str:
        return "+".join(dict.fromkeys(part for e in self.extensions for part in e.backend.split("+")))

    @property
    def build_seconds(self) -> float:
        return sum(extension.build_seconds for extension in self.extensions)

    @property
    def log(self) -> str:
        return "\n".join(extension.log for extension in self.extensions if extension.log)


class Extension:
    """What is behind the module that ``load_inline`` returns: one attribute a bound function."""

    def __init__(
        self,
        toolchain: Toolchain,
        name: str,
        cuda: str,
        cpp: str,
        functions: list[str],
        cuda_flags: list[str],
    ):
        self.__name__ = name
        self._toolchain = toolchain
        self._cuda, self._cpp, self._cuda_flags = cuda, cpp, cuda_flags
        source = f"{defined(cuda_flags)}{cuda}\n{cpp}"
        self._bound: dict[str, str] = dict(_BINDING.findall(source)) | {
            function: function for function in functions
        }
        if not self._bound:
            raise BuildError(
                f"extension {name!r} binds no function: give functions=[...] or a PYBIND11_MODULE"
            )
        self.compiled: HostExtension | NvccExtension | None = None
        self.counted = 0
        self.replays: Replays | None = None
        self.libraries = called_libraries(source)
        """Functions of NVIDIA's libraries that the host code calls: part of its work is theirs."""
        self._program = HostProgram(source)
        self.device: DeviceModule | None = None
        try:
            self.device = toolchain.build_device(cuda, flags=nvrtc_flags(cuda_flags))
        except NeedsToolkit as error:
            self._compile_whole(error)
        else:
            self._runtime = TorchRuntime(self.device, toolchain.launches, toolchain.device, source)
            missing = [name for name in self._bound.values() if name not in self._program.functions]
            if missing:
                self.compile_host(f"no body found for {missing[0]!r}")
        for python_name in self._bound:
            setattr(self, python_name, self._caller(python_name))

    @property
    def backend(self) -> str:
        if self.device is None or isinstance(self.compiled, NvccExtension):
            return "nvcc"
        return f"{self.device.backend}+host" if self.compiled is not None else self.device.backend

    @property
    def build_seconds(self) -> float:
        return sum(part.build_seconds for part in (self.device, self.compiled) if part is not None)

    @property
    def log(self) -> str:
        return "\n".join(part.log for part in (self.device, self.compiled) if part is not None and part.log)

    def synchronize(self) -> None:
        """Wait for its launches; LaunchError when one failed."""
        for part in (self.device, self.compiled):
            if part is not None:
                part.synchronize()

    def compile_host(self, reason: str) -> None:
        """Build the host side with g++, for code that the interpreter does not understand (``reason``)."""
        tools = self._toolchain
        self.refuse_libraries()
        if tools.headers is None:
            raise NeedsHost(reason)
        assert self.device is not None
        functions = list(self._bound.values())
        try:
            self.compiled = build_host(
                defined(self._cuda_flags) + self._cuda,
                functions,
                self.device,
                tools.new_folder(),
                tools.headers,
                cpp_sources=self._cpp,
            )
        except NeedsToolkit as error:
            self._compile_whole(error)

    def refuse_libraries(self) -> None:
        """BuildError where host code that must be compiled calls what this device has not."""
        if self.libraries and self._toolchain.device.type == "cpu":
            names = ", ".join(self.libraries)
            raise BuildError(
                f"the host code calls {names}: not supported on the CPU backend; verify on a machine with a GPU"
            )

    def _compile_whole(self, reason: NeedsToolkit) -> None:
        """Give the whole source to nvcc, for what the quick builds do not understand (``reason``). A minute."""
        tools = self._toolchain
        if tools.device.type == "cpu" or missing_header(reason.log) is not None:
            raise reason
        functions = list(self._bound)
        self.compiled = build_nvcc(
            self._cuda, functions, tools.new_folder(), self._cpp, extra_flags=nvcc_flags(self._cuda_flags)
        )

    def facade(self) -> types.ModuleType:
        """What the code under test gets: a module with the bound functions and nothing of ours."""
        module = types.ModuleType(self.__name__)
        module.__file__ = f"{self.__name__}.so"
        for name in self._bound:
            setattr(module, name, getattr(self, name))
        return module

    def replay(self) -> None:
        """Be ready to run interpreted calls from notes (see ``replay``): for the clock."""
        if self.compiled is None and self.replays is None:
            self.replays = Replays(self._program.call, self._runtime)

    def _caller(self, python_name: str) -> Callable[..., Any]:
        cpp_name = self._bound[python_name]

        def call(*args: Any, **kwargs: Any) -> Any:
            if kwargs:
                args = self._positional(python_name, args, kwargs)
            if self.compiled is not None:
                bound = python_name if isinstance(self.compiled, NvccExtension) else cpp_name
                return getattr(self.compiled, bound)(*args)
            try:
                if self.replays is not None and self._toolchain.replaying:
                    return _to_python(self.replays(cpp_name, list(args)))
                return _to_python(self._program.call(cpp_name, list(args), self._runtime))
            except Unsupported as reason:
                # The caller may swallow this; the program asks here whether its run counts.
                self._toolchain.not_understood = str(reason)
                raise

        call.__name__ = python_name
        return call

    def _positional(self, python_name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        function = self._program.functions.get(self._bound[python_name])
        names = [param.name for param in function.params] if function is not None else []
        unknown = [key for key in kwargs if key not in names[len(args) :]]
        if unknown:
            raise TypeError(f"{python_name}() got an unexpected keyword argument {unknown[0]!r}")
        return (*args, *[kwargs[name] for name in names[len(args) :] if name in kwargs])


_RUNS_OR_READS = re.compile(
    r"-(?:include|imacros|fplugin\S*|wrapper|specs\S*|B\S*|x|dlopen|ccbin\S*|Xlinker)"
    r"|-?-(?:pre-include|options-file|compiler-bindir)\S*|@\S+|-Wl,\S*(?:init|fini|wrap|defsym|plugin|script|-T)\S*"
)


def refuse_flags(*lists: Sequence[str] | None) -> None:
    """UnsafeCode for flags that have a compiler read other files, run other programs or rename functions; they would
    do so wherever the user builds."""
    for flag in (flag for flags in lists for flag in flags or ()):
        if _RUNS_OR_READS.fullmatch(str(flag).strip()):
            raise UnsafeCode(f"it builds with the flag {flag}")


def nvrtc_flags(flags: Sequence[str]) -> list[str]:
    """The device compiler's flags among a user's ``extra_cuda_cflags``, with what torch's own builds define."""
    kept = [
        flag for flag in flags if re.fullmatch(r"-D\w+(=[\w.]+)?|--?use_fast_math|--?maxrregcount=\d+", flag)
    ]
    fast = ["--use_fast_math" if flag.endswith("use_fast_math") else flag for flag in kept]
    return [*TORCH_FLAGS, *fast]


def defined(flags: Sequence[str]) -> str:
    """The macros among a user's flags as ``#define`` lines, for whoever takes no flags."""
    found = (re.fullmatch(r"-D(\w+)(?:=([\w.]+))?", flag) for flag in flags)
    return "".join(f"#define {match[1]} {match[2] or 1}\n" for match in found if match)


def nvcc_flags(flags: Sequence[str]) -> list[str]:
    """A user's ``extra_cuda_cflags`` that change what is computed or accepted; architectures and paths are ours."""
    kept = r"-D\w+(=[\w.]+)?|--?use_fast_math|--?maxrregcount=\d+|-O[0-3]|--expt-\S+|--extended-lambda"
    return [flag for flag in flags if re.fullmatch(kept, flag)]


def _to_python(value: Any) -> Any:
    """A host function's result as pybind would give it."""
    if isinstance(value, Dtype):
        return getattr(torch, value.name)
    if isinstance(value, Device):
        return torch.device(value.type, value.index)
    if isinstance(value, list | tuple):
        return type(value)(_to_python(item) for item in value)
    return value

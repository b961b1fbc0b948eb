"""Device code to cubin by NVRTC, in milliseconds: no toolkit and no host compiler needed.

``build_cubin`` compiles and needs no GPU; ``build_nvrtc`` also loads the result for launches through the driver API.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dice_engine.verify.build import cuda_driver
from dice_engine.verify.build.cuda_driver import Function, KernelResources, LoadedCubin, PreparedLaunch
from dice_engine.verify.build.device_source import DeviceSource
from dice_engine.verify.build.interface import BuildError, Dim3, InfraError, LaunchError, NeedsToolkit
from dice_engine.verify.build.launch_args import pack
from dice_engine.verify.build.nvrtc_library import cccl_cstdint, include_paths, nvrtc
from dice_engine.verify.build.process import Builds

Instance = tuple[str, tuple[str, ...]]
"""A kernel and its template arguments: ``("row_peak", ("float", "4"))``."""

TORCH_FLAGS = (
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
)
"""What torch's extension builder defines: give these for sources that users build by ``load_inline``."""

_FILE = "kernel.cu"
_HOST_ONLY = re.compile(
    r"cannot open source file|^\s.*\b(?:at|c10|torch|thrust|cute|cutlass)::", re.MULTILINE
)
_MORE_STD = re.compile(r'namespace "std(::\w+)?" has no')
_GIVES_CSTDINT = re.compile(r"iostream|fstream|sstream|string|memory|stdexcept|random|chrono|thread|mutex")
_GIVES_ALL = re.compile(r"(?:torch|ATen|c10|caffe2|pybind11|thrust)/")
_USES_CCCL = re.compile(r"#\s*include\s*[<\"](?:cooperative_groups|cub/|cuda/)")


@dataclass(frozen=True)
class Cubin:
    """Compiled device code. ``names``: the mangled name of each instance; ``resources`` by the same key."""

    data: bytes
    arch: str
    names: dict[Instance, str]
    resources: dict[Instance, KernelResources]
    log: str
    seconds: float


def expression(source: DeviceSource, instance: Instance) -> str:
    """The C++ name expression of an instance: ``ns::row_peak<float, 4>``."""
    kernel, arguments = instance
    declared = source.kernels.get(kernel)
    name = source.qualified(kernel)
    if arguments or (declared is not None and declared.template_params):
        return f"{name}<{', '.join(arguments)}>"
    return name


def build_cubin(
    source: DeviceSource,
    arch: str,
    instantiations: Iterable[Instance] = (),
    extra_flags: Sequence[str] = (),
) -> Cubin:
    """Compile to a cubin for ``arch`` (``sm_90``); needs no GPU.

    All kernels without template parameters are compiled, and the given instances of the others. Raises BuildError,
    its subclass NeedsToolkit where nvcc may succeed, or InfraError.
    """
    asked = tuple(dict.fromkeys((kernel, tuple(arguments)) for kernel, arguments in instantiations))
    plain = [(name, ()) for name, decl in source.kernels.items() if not decl.template_params]
    offered = [instance for instance in plain if instance not in asked]
    start = time.perf_counter()
    while True:
        names = {instance: expression(source, instance) for instance in (*asked, *offered)}
        result = _compile(source, arch, list(names.values()), extra_flags)
        if result.cubin is None and _MORE_STD.search(result.log) and cccl_cstdint() is not None:
            result = _compile(source, arch, list(names.values()), ["-DDICE_FULL_STD", *extra_flags])
        unknown = _unknown_names(result.log, list(names)) if result.cubin is None else []
        if not unknown or any(instance in asked for instance in unknown):
            break
        # A kernel of a branch that the preprocessor leaves out: nobody asked for it.
        offered = [instance for instance in offered if instance not in unknown]
    seconds = time.perf_counter() - start
    log = clean_log(result.log)
    if result.cubin is None:
        kind = NeedsToolkit if _HOST_ONLY.search(result.log) else BuildError
        raise kind(_first_error(log), log)
    lowered = {instance: result.lowered[text] for instance, text in names.items()}
    measured = cuda_driver.parse_ptxas(result.log)
    resources = {instance: measured[name] for instance, name in lowered.items() if name in measured}
    return Cubin(result.cubin, arch, lowered, resources, log, seconds)


@dataclass
class _Compiled:
    cubin: bytes | None
    log: str
    lowered: dict[str, str] = field(default_factory=dict)


_GROUPS = ("dice_prelude.h", "cstdint", "cfloat", "cooperative_groups.h", "dice_std.h")
"""What ``warm`` precompiles: the head of every source that uses cooperative groups, a second of headers."""
_precompiled: dict[tuple[str, ...], Path] = {}


def warm(arch: str, folder: Path, flag_sets: Iterable[Sequence[str]] = ((), TORCH_FLAGS)) -> None:
    """Load NVRTC and precompile its slow headers, for this process and all that are forked from it later.

    No GPU is touched, so a process that others are forked from may call it. ``folder`` takes 0.1 GB for each set of
    flags and must stay as long as the processes. Raises InfraError where NVRTC is missing.
    """
    for flags in flag_sets:
        options = _options(arch, _GROUPS, flags)
        path = folder / f"groups-{len(_precompiled)}.pch"
        source = DeviceSource("__global__ void dice_warm() {}")
        if _run(source, [*options, f"--create-pch={path}"], []).cubin is not None and path.is_file():
            _precompiled[tuple(options)] = path


def _standard_names(source: DeviceSource) -> tuple[str, ...]:
    """Headers to include first: what nvcc always has, and what the source's dropped headers would have brought."""
    if re.search(r"#\s*include\s*[<\"]cooperative_groups", source.text):
        return _GROUPS
    names = ("dice_std.h",) if "std::" in source.text else ()
    everything = _USES_CCCL.search(source.text) or any(map(_GIVES_ALL.match, source.dropped))
    if everything:
        names = ("cstdint", "cfloat", *names)
    elif any(map(_GIVES_CSTDINT.fullmatch, source.dropped)):
        names = ("cstdint", *names)
    return ("dice_prelude.h", *names)


def _options(arch: str, headers: Sequence[str], extra_flags: Sequence[str]) -> list[str]:
    return [
        *(f"--gpu-architecture={arch}", "--std=c++17", "--device-as-default-execution-space"),
        # 47: CCCL defines the limits that our prelude has defined already. 629: a precompiled header that does not fit.
        *("--ptxas-options=-v", "--diag-suppress=47,629"),
        *(f"--include-path={path}" for path in include_paths()),
        *extra_flags,
        # Included by option, not in the text: a #line directive would keep NVRTC from precompiling headers.
        *(f"--pre-include={header}" for header in headers),
    ]


def _compile(source: DeviceSource, arch: str, names: list[str], extra_flags: Sequence[str]) -> _Compiled:
    options = _options(arch, _standard_names(source), extra_flags)
    ready = _precompiled.get(tuple(options))
    if ready is not None and ready.is_file():
        options.append(f"--use-pch={ready}")
    return _run(source, options, names)


def _run(source: DeviceSource, options: list[str], names: list[str]) -> _Compiled:
    api = nvrtc()
    cstdint = cccl_cstdint()
    headers = [] if cstdint is None else [cstdint.encode()]
    created = api.nvrtcCreateProgram(
        source.text.encode(), _FILE.encode(), len(headers), headers, [b"cuda/std/cstdint"][: len(headers)]
    )
    program = _done(created, "create a program")
    try:
        for name in names:
            _done(api.nvrtcAddNameExpression(program, name.encode()), f"name {name}")
        with Builds.one():
            (status,) = api.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])
        log = _text(api.nvrtcGetProgramLogSize, api.nvrtcGetProgramLog, program).decode(errors="replace")
        if int(status) == int(api.nvrtcResult.NVRTC_ERROR_COMPILATION):
            return _Compiled(None, log)
        if int(status) == int(api.nvrtcResult.NVRTC_ERROR_INVALID_OPTION):
            raise InfraError(f"NVRTC refuses its options: {log.strip() or status.name}")
        _done((status,), "compile")
        lowered = {
            n: _done(api.nvrtcGetLoweredName(program, n.encode()), f"find {n}").decode() for n in names
        }
        return _Compiled(_text(api.nvrtcGetCUBINSize, api.nvrtcGetCUBIN, program, cut=False), log, lowered)
    finally:
        api.nvrtcDestroyProgram(program)


def _done(result: tuple[Any, ...], doing: str) -> Any:
    status, *values = result
    if int(status) != 0:
        raise InfraError(f"NVRTC failed to {doing}: {status.name}")
    return values[0] if values else None


def _text(size_of: Any, get: Any, program: Any, cut: bool = True) -> bytes:
    buffer = b" " * _done(size_of(program), "give the size of its output")
    _done(get(program, buffer), "give its output")
    return buffer.rstrip(b"\0 \n") if cut else buffer


def _unknown_names(log: str, instances: list[Instance]) -> list[Instance]:
    """Instances whose name expression is all that is wrong with the source; empty when there are other errors."""
    lines = re.findall(r"^(\S+?)\((\d+)\): (?:catastrophic )?error", log, re.MULTILINE)
    if not lines or any(file != "__nv_name_map" for file, _ in lines):
        return []
    numbers = {int(number) for _, number in lines}
    return [instance for number, instance in enumerate(instances, 1) if number in numbers]


def clean_log(log: str) -> str:
    """The compiler's words for the user: own lines and paths made short, ptxas statistics and hints removed."""
    for path in include_paths():
        log = log.replace(f"{path}/", "")
    kept = [
        line
        for line in log.splitlines()
        if not line.startswith(("ptxas info", "ptxas         .", "Remark: The warnings can be suppressed"))
        and "precompiled header file" not in line
    ]
    text = re.sub(r"__nv_name_map\(\d+\)", _FILE, "\n".join(kept))
    text = re.sub(r"^ *#pragma nv_mangled_name.*\n *\^\n?", "", text, flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def _first_error(log: str) -> str:
    match = re.search(r"^.*\berror\b.*$", log, re.MULTILINE)
    return match.group().strip() if match else "the device code does not compile"


class NvrtcModule:
    """Kernels on the GPU, ready to launch: the DeviceModule of this backend.

    An instance that was not asked for at build time is compiled at its first use, as a module of its own: its
    ``__device__`` variables are then not those of the others.
    """

    backend = "nvrtc"

    def __init__(self, source: DeviceSource, cubin: Cubin, extra_flags: Sequence[str] = ()) -> None:
        self.source = source
        self.build_seconds = cubin.seconds
        self.log = cubin.log
        self._flags = tuple(extra_flags)
        self._context = cuda_driver.context()
        self._cubins: list[Cubin] = []
        self._loaded: list[LoadedCubin] = []
        self._functions: dict[Instance, Function] = {}
        self._shapes: dict[Instance, tuple[int, int]] = {}
        """Threads of a block (0: unknown) and dynamic shared bytes of the last launch of each launched instance."""
        self._add(cubin)

    def _add(self, cubin: Cubin) -> None:
        loaded = LoadedCubin(cubin.data, self._context)
        self._cubins.append(cubin)
        self._loaded.append(loaded)
        for instance, mangled in cubin.names.items():
            self._functions.setdefault(instance, loaded.function(mangled, instance[0]))

    def function(self, kernel: str, template_args: tuple[str, ...] = ()) -> Function:
        """The loaded kernel; compiled now when it is new. Raises BuildError when it does not compile."""
        if kernel not in self.source.kernels:
            raise LaunchError("cudaErrorInvalidDeviceFunction", f"no kernel named {kernel} in the source")
        instance = (kernel, tuple(template_args))
        if instance not in self._functions:
            cubin = build_cubin(self.source, self._cubins[0].arch, [instance], self._flags)
            self.build_seconds += cubin.seconds
            self._add(cubin)
        return self._functions[instance]

    def prepare(
        self,
        kernel: str,
        template_args: tuple[str, ...],
        grid: Dim3,
        block: Dim3,
        shared: int,
        args: Sequence[int | float],
    ) -> PreparedLaunch:
        """The launch with its arguments packed: call the result to enqueue it, as often as wanted."""
        function = self.function(kernel, template_args)
        self.note_launch((kernel, tuple(template_args)), math.prod(block), shared)
        values = pack(self.source.kernels[kernel], template_args, args, self.source.aliases)
        return function.prepare(grid, block, shared, values)

    def launch(
        self,
        kernel: str,
        template_args: tuple[str, ...],
        grid: Dim3,
        block: Dim3,
        shared: int,
        args: Sequence[int | float],
    ) -> None:
        """Enqueue ``kernel`` on torch's current stream; errors as DeviceModule.launch says."""
        self.prepare(kernel, template_args, grid, block, shared, args)()

    def synchronize(self) -> None:
        """Wait for the GPU; LaunchError, whose ``sticky`` says when the process is lost, for a kernel that failed."""
        self._context.synchronize()

    def symbol(self, name: str) -> tuple[int, int]:
        """Device address and bytes of the ``__device__`` or ``__constant__`` variable with this mangled name."""
        return self._loaded[0].symbol(name)

    def report(self) -> dict[Instance, KernelResources]:
        """Registers, spills and shared memory of every compiled kernel."""
        return {instance: found for cubin in self._cubins for instance, found in cubin.resources.items()}

    def note_launch(self, instance: Instance, threads: int, shared: int) -> None:
        """Remember the shape of a launch for ``usage``."""
        self._shapes[instance] = (threads, shared)

    def usage(self) -> list[dict[str, Any]]:
        """What every launched instance takes, as fields of ``verdict.KernelUse``; [] once the context is lost."""
        compiled = self.report()
        found = []
        try:
            for instance, (threads, shared) in self._shapes.items():
                function, (name, arguments) = self._functions[instance], instance
                took = function.resources
                found.append(
                    {
                        "name": f"{name}<{', '.join(arguments)}>" if arguments else name,
                        "registers": took.registers,
                        "spills": compiled[instance].spill_stores if instance in compiled else 0,
                        "shared_bytes": took.shared + shared,
                        "threads": threads or None,
                        "occupancy": round(function.occupancy(threads, shared), 4) if threads else None,
                    }
                )
        except LaunchError:
            return []
        return found

    def close(self) -> None:
        for loaded in self._loaded:
            loaded.close()


def build_nvrtc(
    source: DeviceSource,
    instantiations: Iterable[Instance] = (),
    arch: str | None = None,
    extra_flags: Sequence[str] = (),
) -> NvrtcModule:
    """Compile for this machine's GPU and load: a DeviceModule with NVRTC's extras.

    Raises BuildError (NeedsToolkit where nvcc may understand the source) or InfraError (no driver, no NVRTC).
    """
    target = arch or cuda_driver.context().arch
    return NvrtcModule(source, build_cubin(source, target, instantiations, extra_flags), extra_flags)

"""The CPU backend: kernels as ordinary C++ through g++ and a shim, for machines without a GPU and for finding races.

Kernels that never wait run as plain loops over threads; kernels with barriers or warp operations run one fiber for each
thread of a block. Blocks run one after another. The order of blocks and threads can be changed: a result that
depends on it is a race.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import math
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal

from dice_engine.verify.build.cpu_header import SHIM, shim_options
from dice_engine.verify.build.cpu_limits import MAX_STATIC_SHARED, check_configuration, most_threads
from dice_engine.verify.build.cpu_text import cpu_text, waiting_names
from dice_engine.verify.build.cpu_variables import Variables, copy_device
from dice_engine.verify.build.device_source import DeviceSource
from dice_engine.verify.build.interface import BuildError, Dim3, InfraError, LaunchError
from dice_engine.verify.build.process import run_compiler
from dice_engine.verify.build.symbols import listing, refuse_system_calls, static_bytes

Instantiation = tuple[str, tuple[str, ...]]
Order = Literal["forward", "reverse", "shuffled"]
Zone = tuple[int, int, str]
"""First address, the one after the last, and where that is in words."""

_FLAGS = (
    "-std=c++17",
    "-O2",
    "-w",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-finite-loops",  # a loop that never ends must not be optimised away
    "-fno-strict-aliasing",  # float4 loads from float pointers are everyday CUDA
    "-fwrapv",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-plt",
    "-fdiagnostics-color=never",
    "-fmax-errors=8",
)
_WATCH_FLAGS = ("-Og", "-fsanitize=thread,alignment,bounds", "-DDICE_WATCH")
"""Calls at every load and store, and at addresses and indices that do not fit their type, answered by the shim
(``watch.h``); the sanitizer's library is not linked. Such code compiles half as long with fewer optimisations."""
_UNDEFINED_FLAG = "-ftrivial-auto-var-init=pattern"
"""What a kernel never set is neither zero nor right by luck (g++ 12, clang 8 and later)."""
_ORDERED_OTHERWISE = re.compile(
    r"\b(?:atomicCAS\w*|atomicExch\w*|__threadfence\w*|this_grid|grid_group|atomic_ref|cluster\w*)\b"
)
"""Locks, flags and fences order threads in ways that are not followed: such sources are not watched."""
_ONE_ROW, _ROWS = re.compile(r"outside '[^\[]*\[\d+\]'"), re.compile(r"\]\s*\[")
"""An index beyond a row may lie in the next one: ``tile[0][i]`` for a whole tile is everyday CUDA."""
_LINK_FLAGS = ("-shared", "-Wl,-z,defs", "-Wl,-Bsymbolic")
_COMPILE_LIMIT_S = 120
_ORDERS: dict[Order, int] = {"forward": 0, "reverse": 1, "shuffled": 2}
_FAILURES = {
    1: "cudaErrorLaunchFailure",
    2: "cudaErrorAssert",
    3: "cudaErrorLaunchFailure",
    5: "cudaErrorMemoryAllocation",
    6: "cudaErrorIllegalAddress",
}


class _Arg(ctypes.Structure):
    _fields_ = (("whole", ctypes.c_longlong), ("real", ctypes.c_double), ("bytes", ctypes.c_void_p))


class _Launch(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("args", ctypes.POINTER(_Arg)),
    )


class CpuModule:
    """Kernels built for the CPU; a DeviceModule. Shared objects load at the first launch, in the launching process."""

    backend = "cpu"

    def __init__(
        self,
        source: DeviceSource,
        workdir: Path,
        compiler: str,
        cache_dir: Path | None = None,
        defines: str = "",
    ) -> None:
        self.build_seconds = 0.0
        self.log = ""
        self._source = source
        self._text = cpu_text(source)
        self._defines = defines
        self._waiting = waiting_names(source)
        self._workdir = workdir
        self._compiler = compiler
        self._cache_dir = cache_dir
        self._launchers: dict[Instantiation, tuple[Path, str]] = {}
        self._libraries: dict[Path, ctypes.CDLL] = {}
        self._variables: dict[Path, Variables] = {}
        self._home: Path | None = None
        """The library whose device variables count; others are given their contents, and give them back."""
        self._order: tuple[int, int] = (0, 0)
        self._watched = False
        self._zones: Callable[[], Iterable[Zone]] | None = None
        self._forbidden: list[Zone] = []
        self._watched_launchers: dict[Instantiation, tuple[Path, str]] = {}
        self.race: str | None = None
        """The first lost update that a watched launch showed, in words."""

        self.stray: str | None = None
        """The first load from a zone that a watched launch must not touch, or index beyond an array, in words."""

        self.misaligned: str | None = None
        """The first load or store that a GPU refuses for its address, in words."""

    def watch(self, on: bool, zones: Callable[[], Iterable[Zone]] | None = None) -> None:
        """Whether later launches run in a slower build that notices lost updates (see ``race``), where possible, and
        loads from ``zones``, asked for at each launch (see ``stray``)."""
        self._watched = on and not _ORDERED_OTHERWISE.search(self._source.text)
        self._zones = zones
        self.race = self.stray = self.misaligned = None

    def build(self, instantiations: Sequence[Instantiation], watched: bool = False) -> None:
        """Compile launchers for ``instantiations``; raises BuildError with lines of the user's file."""
        started = time.perf_counter()
        names = {instantiation: f"dice_launch_{i}" for i, instantiation in enumerate(instantiations)}
        launchers = "\n".join(self._launcher(kernel, args, name) for (kernel, args), name in names.items())
        head = f'#include "dice/cuda.h"\n{self._defines}#line 1 "kernel.cu"\n'
        unit = f'{head}{self._text}\n#line 1 "launchers"\n{launchers}\n'
        kind = "watched" if watched else "cpu"
        stem = self._workdir / f"{kind}-{hashlib.sha256(unit.encode()).hexdigest()[:24]}"
        library = stem.with_suffix(".so")
        if not library.exists():
            self._compile(unit, stem, library, watched)
        launchers_of = self._watched_launchers if watched else self._launchers
        launchers_of |= {instantiation: (library, name) for instantiation, name in names.items()}
        self.build_seconds += time.perf_counter() - started

    def set_order(self, kind: Order, seed: int = 0) -> None:
        """The order in which later launches visit blocks and threads; ``seed`` picks one of the shuffled orders."""
        self._order = (_ORDERS[kind], seed)

    def launch(
        self,
        kernel: str,
        template_args: tuple[str, ...],
        grid: Dim3,
        block: Dim3,
        shared: int,
        args: Sequence[int | float | bytes],
    ) -> None:
        """Run a kernel to its end; see DeviceModule.launch. A failure of the running kernel is raised here too.

        ``bytes`` among ``args`` are a value of a type of the source's own.
        """
        decl = self._source.kernels.get(kernel)
        if decl is None:
            raise LaunchError("cudaErrorInvalidDeviceFunction", f"no kernel named {kernel} in the source")
        if len(args) != len(decl.params):
            raise LaunchError(
                "cudaErrorInvalidValue", f"kernel {kernel} has {len(decl.params)} parameters, got {len(args)}"
            )
        bound = dict(zip((param.name for param in decl.template_params), template_args, strict=False))
        check_configuration(grid, block, shared, most_threads(self._source.text, kernel, bound))
        library, name = self._launcher_of(kernel, template_args)
        loaded = self._load(library)
        loaded.dice_set_order(*self._order)
        values = (_Arg * max(len(args), 1))(
            *(_argument(value) for value in args)
        )  # refers to the bytes of ``args``
        call = _Launch((ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*block), shared, values)
        if self._watched:
            self._begin_watch(loaded)
        home, here = self._variables[self._home or library], self._variables[library]
        if home is not here:
            copy_device(home, here)
        code = getattr(loaded, name)(ctypes.byref(call))
        if home is not here:
            copy_device(here, home)
        if self._watched:
            self._end_watch(loaded, kernel)
        if code:
            text = loaded.dice_error_text().decode(errors="replace")
            if code not in _FAILURES:
                raise InfraError(f"CPU backend, kernel {kernel}: {text}; please report this kernel")
            raise LaunchError(_FAILURES[code], f"kernel {kernel}: {text}")

    def _begin_watch(self, loaded: ctypes.CDLL) -> None:
        self._forbidden = list(self._zones()) if self._zones is not None else []
        pairs = [address for low, high, _ in self._forbidden for address in (low, high)]
        loaded.dice_watch_zones((ctypes.c_ulonglong * len(pairs))(*pairs), len(self._forbidden))
        loaded.dice_watch_begin()

    def _end_watch(self, loaded: ctypes.CDLL, kernel: str) -> None:
        seen = loaded.dice_watch_end()
        if seen:
            self.race = self.race or f"in {kernel} {seen.decode(errors='replace')}"
        who = (ctypes.c_uint * 6)()
        address = loaded.dice_watch_stray(who)
        if address and self.stray is None:
            where = next((words for low, high, words in self._forbidden if low <= address < high), "")
            self.stray = f"in {kernel} thread {tuple(who[:3])} of block {tuple(who[3:])} reads {where}"
        fault = loaded.dice_watch_fault().decode(errors="replace")
        if fault.startswith("index"):
            if not (_ONE_ROW.search(fault) and _ROWS.search(self._text)):
                self.stray = self.stray or f"in {kernel} {fault}"
        elif fault:
            self.misaligned = self.misaligned or f"in {kernel} {fault}"

    def synchronize(self) -> None:
        """Nothing to wait for: launches have ended when they return."""

    def symbol(self, name: str) -> tuple[int, int]:
        """Address and size of a ``__device__`` or ``__constant__`` variable. BuildError for an unknown one."""
        if self._home is None:
            self._load(next(library for library, _ in self._launchers.values()))
        found = self._variables[self._home].device.get(name.rsplit("::", 1)[-1]) if self._home else None
        if found is None:
            raise BuildError(f"no device variable named {name} in the source")
        return found

    def _launcher_of(self, kernel: str, template_args: tuple[str, ...]) -> tuple[Path, str]:
        wanted = (kernel, template_args)
        if self._watched and wanted not in self._watched_launchers:
            try:
                self.build([wanted], watched=True)
            except BuildError:  # a compiler whose sanitizer wants more than the shim gives
                self._watched = False
        if not self._watched and wanted not in self._launchers:
            self.build([wanted])
        return (self._watched_launchers if self._watched else self._launchers)[wanted]

    def _launcher(self, kernel: str, template_args: tuple[str, ...], name: str) -> str:
        if kernel not in self._source.kernels:
            raise BuildError(f"no kernel named {kernel} in the source")
        arguments = f"<{', '.join(template_args)}>" if template_args else ""
        words = {kernel, *re.findall(r"\w+", arguments)}  # a functor given as an argument may wait too
        fibers = "true" if words & self._waiting else "false"
        return f"DICE_LAUNCHER({name}, {fibers}, {self._source.qualified(kernel)}{arguments})"

    def _compile(self, unit: str, stem: Path, library: Path, watched: bool = False) -> None:
        code = stem.with_suffix(".cpp")
        partial = stem.with_suffix(f".{uuid.uuid4().hex}.tmp")
        try:
            self._workdir.mkdir(parents=True, exist_ok=True)
            code.write_text(unit)
        except OSError as error:
            raise InfraError(f"cannot build in {self._workdir}: {error.strerror}") from error
        flags = (*_FLAGS, _UNDEFINED_FLAG) if _accepts(self._compiler, _UNDEFINED_FLAG) else _FLAGS
        shim = shim_options(self._compiler, flags, self._cache_dir)
        half = stem.with_suffix(f".{uuid.uuid4().hex}.o")
        watch = _WATCH_FLAGS if watched else ()
        # Linked without these: the functions that a watched build calls are the shim's.
        steps = [
            [self._compiler, *flags, *watch, *shim, "-c", code.resolve(), "-o", half.resolve()],
            [self._compiler, "-fPIC", *_LINK_FLAGS, half.resolve(), "-o", partial.resolve()],
        ]
        try:
            for step in steps:
                status, output = run_compiler(step, self._workdir, _COMPILE_LIMIT_S, "g++")
                if status:
                    log = clean_log(output, self._workdir)
                    lines = [line for line in log.splitlines() if "error" in line or "undefined" in line]
                    raise BuildError(lines[0] if lines else "g++ failed", log)
                if step is steps[0]:
                    self._check(half)
            partial.replace(library)
        finally:
            half.unlink(missing_ok=True)
            partial.unlink(missing_ok=True)

    def _check(self, compiled: Path) -> None:
        """BuildError for code that reaches for the system, and for what ptxas refuses: a function whose ``__shared__``
        variables do not fit a block."""
        listed = listing(compiled)
        refuse_system_calls(listed)
        if "__shared__" not in self._text:
            return
        for function, size in static_bytes(listed).items():
            if size > MAX_STATIC_SHARED:
                words = f"{function} uses too much shared data ({size:#x} bytes, {MAX_STATIC_SHARED:#x} max)"
                raise BuildError(words, f"error: {words}")

    def _load(self, library: Path) -> ctypes.CDLL:
        if library not in self._libraries:
            try:
                loaded = ctypes.CDLL(str(library.resolve()))
            except OSError as error:
                raise InfraError(f"cannot load the built kernel: {error}") from error
            loaded.dice_set_order.argtypes = (ctypes.c_int, ctypes.c_ulonglong)
            loaded.dice_error_text.restype = ctypes.c_char_p
            if library.name.startswith("watched"):
                loaded.dice_watch_end.restype = ctypes.c_char_p
                loaded.dice_watch_stray.restype = ctypes.c_ulonglong
                loaded.dice_watch_fault.restype = ctypes.c_char_p
            self._libraries[library] = loaded
            self._home = self._home or library
            found = Variables(loaded, listing(library), self._text)
            pairs = [number for pair in found.shared for number in pair]
            loaded.dice_shared_ranges((ctypes.c_ulonglong * max(len(pairs), 1))(*pairs), len(found.shared))
            self._variables[library] = found
        return self._libraries[library]


def build_cpu(
    source: DeviceSource,
    workdir: Path,
    instantiations: Iterable[Instantiation] = (),
    cache_dir: Path | None = None,
    defines: str = "",
) -> CpuModule:
    """Build kernels of ``source`` in ``workdir`` (made if missing; its files must outlive the module).

    Without ``instantiations``: every kernel that is no template, and the explicit instantiations of those that are.
    ``cache_dir`` keeps the precompiled shim between builds; ``defines`` are ``#define`` lines before the source.
    Raises BuildError when the source does not compile, InfraError when there is no g++.
    """
    compiler = shutil.which("g++") or shutil.which("c++") or shutil.which("clang++")
    if compiler is None:
        raise InfraError("no C++ compiler found for the CPU backend: install g++ (Debian: apt install g++)")
    module = CpuModule(source, workdir, compiler, cache_dir, defines)
    wanted = list(dict.fromkeys(instantiations))
    if not wanted:
        for name, decl in source.kernels.items():
            wanted += [(name, args) for args in decl.instantiations] if decl.template_params else [(name, ())]
    module.build(wanted)
    return module


@functools.cache
def _accepts(compiler: str, flag: str) -> bool:
    status, _ = run_compiler(
        [compiler, flag, "-E", "-x", "c++", os.devnull], Path.cwd(), _COMPILE_LIMIT_S, "g++"
    )
    return status == 0


def _argument(value: int | float | bytes) -> tuple[int, float, ctypes.c_void_p | None]:
    """An argument as an integer and as a real, of which the launcher takes what the parameter's type asks for; or where
    its bytes lie, and how many."""
    if isinstance(value, bytes):
        return len(value), 0.0, ctypes.cast(ctypes.c_char_p(value), ctypes.c_void_p)
    if isinstance(value, float):
        return (int(value) if math.isfinite(value) and abs(value) < 2**63 else 0), value, None
    whole = int(value) & (2**64 - 1)
    return whole - 2**64 if whole >> 63 else whole, float(value), None


def clean_log(log: str, workdir: Path) -> str:
    """The compiler's words without our paths and without the shim's own lines around an error."""
    log = log.replace(f"{SHIM}/", "cuda/").replace(f"{workdir.resolve()}/", "").replace(f"{workdir}/", "")
    log = re.sub(r"cpu-[0-9a-f]{24}\S*?\.cpp(:\d+)*:? ?", "", log)
    log = re.sub(r"(?:\S*/ld: )?(?:\S*/)?cc\w+\.o:(?: in function `[^']*':\n|\S*: )", "", log)
    log = re.sub(r"^\(\.text\S*\): ", "error: ", log, flags=re.MULTILINE)
    noise = ("In file included", "                 from", "collect2:")
    kept = dict.fromkeys(line for line in log.splitlines() if not line.startswith(noise))
    return "\n".join(kept) + "\n" if kept else ""

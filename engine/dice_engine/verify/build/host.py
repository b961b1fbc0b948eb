"""Host code by g++ against a precompiled header, its kernels launched through a table of function pointers.

Two seconds instead of torch's minute: device code is another module's business (NVRTC or the CPU backend), the
torch headers are parsed once and kept, and bindings are our own.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dice_engine.verify.build import cuda_driver
from dice_engine.verify.build.host_text import host_unit
from dice_engine.verify.build.interface import BuildError, DeviceModule, LaunchError, NeedsToolkit
from dice_engine.verify.build.nvrtc import NvrtcModule
from dice_engine.verify.build.process import run_compiler
from dice_engine.verify.build.symbols import listing, refuse_system_calls
from dice_engine.verify.build.toolchain import SHIM, Toolchain, clean_log, first_error, import_extension

LaunchMode = Literal["run", "fail", "skip"]

_MODES: dict[LaunchMode, int] = {"run": 0, "fail": 1, "skip": 2}
_COMPILE_LIMIT_S = 120
_DEVICE_WORDS = re.compile(
    r"dice_cannot_bind|[‘'\"](?:threadIdx|blockIdx|blockDim|gridDim|warpSize|__\w+|atomic\w+|py|nn|wmma|cg|cub|cute"
    r"|thrust|cublas\w*|cudnn\w*|cufft\w*|curand\w*|optim|jit|autograd)[’'\"]"
)
"""Errors in names that our slim header or a host compiler lacks: nvcc with torch's whole header may know them."""


class _Arg(ctypes.Structure):
    _fields_ = (("address", ctypes.c_void_p), ("size", ctypes.c_int), ("kind", ctypes.c_char))


class _Shape(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_size_t),
        ("stream", ctypes.c_void_p),
    )


_Resolve = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)
_Launch = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(_Shape), ctypes.POINTER(_Arg), ctypes.c_int
)
_Symbol = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t)
)


class _Table(ctypes.Structure):
    """Mirrors dice::Table of host_shim/dice_host.h."""

    _fields_ = (
        ("resolve", _Resolve),
        ("driver_launch", ctypes.c_void_p),
        ("launch", _Launch),
        ("symbol", _Symbol),
        ("unpack", ctypes.c_void_p),
        ("wrap", ctypes.c_void_p),
        ("count", ctypes.c_longlong),
        ("mode", ctypes.c_int),
        ("pending", ctypes.c_int),
    )


class HostExtension:
    """Compiled host functions as attributes. Launches go to ``module``; ``mode`` makes them fail or leaves them out."""

    def __init__(
        self,
        library: Path,
        name: str,
        functions: Sequence[str],
        module: DeviceModule,
        templates: dict[str, tuple[str, ...]],
        glue: ctypes.CDLL,
    ) -> None:
        self._templates = templates
        self.module = module
        self.functions = tuple(functions)
        self.build_seconds = 0.0
        self.log = ""
        self._error: BaseException | None = None
        self._table = _Table.in_dll(ctypes.CDLL(str(library)), "dice_table")
        # ctypes callbacks live as long as someone holds them: the table's C side does not.
        self._callbacks = (_Resolve(self._resolve), _Launch(self._launch), _Symbol(self._symbol))
        self._table.resolve, self._table.launch, self._table.symbol = self._callbacks
        self._table.unpack = ctypes.cast(glue.dice_unpack, ctypes.c_void_p)
        self._table.wrap = ctypes.cast(glue.dice_wrap, ctypes.c_void_p)
        if isinstance(module, NvrtcModule):
            self._table.driver_launch = _driver_launch()
        compiled = import_extension(library, name)
        for function in functions:
            setattr(self, function, self._caller(getattr(compiled, function)))

    @property
    def launch_count(self) -> int:
        """Kernel launches since the build, counted where they pass."""
        return int(self._table.count)

    @property
    def mode(self) -> LaunchMode:
        return next(mode for mode, number in _MODES.items() if number == self._table.mode)

    @mode.setter
    def mode(self, mode: LaunchMode) -> None:
        self._table.mode = _MODES[mode]

    def synchronize(self) -> None:
        """Wait for the launches; raises LaunchError when one failed."""
        self.module.synchronize()

    if TYPE_CHECKING:  # the bound functions

        def __getattr__(self, name: str) -> Callable[..., Any]: ...

    def _caller(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            self._error, self._table.pending = None, 0
            try:
                result = function(*args)
            except RuntimeError:
                if self._error is not None:
                    raise self._error from None
                raise
            if self._error is not None:
                raise self._error
            pending, self._table.pending = self._table.pending, 0
            if pending:
                raise LaunchError(
                    cuda_driver.error_name(pending), f"{function.__name__} did not check its launch"
                )
            return result

        call.__name__ = function.__name__
        return call

    def _template_args(self, kernel: str, signature: bytes) -> tuple[str, ...]:
        return template_arguments(signature.decode(), self._templates.get(kernel, ()))

    def _resolve(self, name: bytes, signature: bytes, shared: int) -> int:
        try:
            assert isinstance(self.module, NvrtcModule)
            kernel = name.decode()
            instance = (kernel, self._template_args(kernel, signature))
            function = self.module.function(*instance)
            function.allow_shared(shared)
            self.module.note_launch(instance, 0, shared)
            return int(function.handle)
        except (
            BaseException
        ) as error:  # an exception cannot cross the C++ frames: it is raised again behind them
            self._error = error
            return 0

    def _launch(self, name: bytes, signature: bytes, shape: Any, args: Any, count: int) -> int:
        try:
            kernel, at = name.decode(), shape.contents
            values: list[Any] = [_plain(args[i]) for i in range(count)]
            grid, block = tuple(at.grid), tuple(at.block)
            self.module.launch(
                kernel, self._template_args(kernel, signature), grid, block, int(at.shared), values
            )
            return 0
        except BaseException as error:
            self._error = error
            return 719

    def _symbol(self, name: bytes, address: Any, size: Any) -> int:
        try:
            find = getattr(self.module, "symbol", None)
            if find is None:
                raise NeedsToolkit(
                    f"the {self.module.backend} backend cannot copy to the device variable {name.decode()}"
                )
            found, extent = find(name.decode())
            address[0] = found
            if size:
                size[0] = extent
            return 0
        except BaseException as error:
            self._error = error
            return 13


def template_arguments(signature: str, names: Sequence[str]) -> tuple[str, ...]:
    """The arguments of ``names`` in g++'s ``void k(T*) [with T = float; int N = 4; size_t = long unsigned int]``."""
    match = re.search(r" \[with (.*)\]$", signature)
    found: dict[str, str] = {}
    for part in re.split(r"; (?=[\w: ]+ = )", match.group(1)) if match else ():
        name, _, value = part.partition(" = ")
        found[name.split()[-1]] = value.replace("{anonymous}::", "")
    missing = [name for name in names if name not in found]
    if missing:
        raise NeedsToolkit(
            f"the template argument {missing[0]!r} of a launch cannot be read from {signature!r}"
        )
    return tuple(found[name] for name in names)


def _plain(arg: Any) -> int | float | bytes:
    """The value at an argument's address, for backends that take plain values."""
    kind, size = arg.kind.decode(), arg.size
    data = ctypes.string_at(arg.address, size)
    if kind in ("p", "u", "b"):
        return int.from_bytes(data, "little")
    if kind == "i":
        return int.from_bytes(data, "little", signed=True)
    if kind == "f" and size in (4, 8):
        return (ctypes.c_float if size == 4 else ctypes.c_double).from_buffer_copy(data).value
    return data


@functools.cache
def _driver_launch() -> int:
    """Address of the driver's cuLaunchKernel."""
    return ctypes.cast(ctypes.CDLL("libcuda.so.1").cuLaunchKernel, ctypes.c_void_p).value or 0


def build_host(
    source: str,
    functions: Sequence[str],
    module: DeviceModule,
    workdir: Path,
    cache_dir: Path,
    cpp_sources: str = "",
) -> HostExtension:
    """Compile the host side of ``source`` and bind ``functions``; kernels run through ``module``.

    ``workdir`` is this build's own folder, ``cache_dir`` holds precompiled headers (0.5 GB a torch version) and may be
    read-only once they exist. Raises BuildError, NeedsToolkit where nvcc may do better, or InfraError.
    """
    started = time.perf_counter()
    toolchain = Toolchain.find(cpu=not isinstance(module, NvrtcModule))
    kit = toolchain.prepare(cache_dir)
    unit = host_unit(source, toolchain.cpu)
    name = (
        f"dice_ext_{hashlib.sha256(f'{source}{cpp_sources}'.encode()).hexdigest()[:16]}_{os.urandom(4).hex()}"
    )
    cpp = host_unit(cpp_sources, toolchain.cpu).text
    text = _translation_unit(unit.text, cpp, functions, name)
    (workdir / "host.cpp").write_text(text)
    library = workdir / f"{name}.so"
    compile_unit = [
        *(toolchain.compiler, *toolchain.flags, "-fmax-errors=8", "-I", kit, *toolchain.includes),
        *("-include", "dice_pch.h", "-c", "host.cpp", "-o", "host.o"),
    ]
    link = [
        *(toolchain.compiler, "-shared", "-Wl,-Bsymbolic", "host.o", "-o", library, *toolchain.libraries),
    ]
    status, log = run_compiler(compile_unit, workdir, _COMPILE_LIMIT_S, "the host compiler")
    if status == 0:
        refuse_system_calls(listing(workdir / "host.o"))
        status, said = run_compiler(link, workdir, _COMPILE_LIMIT_S, "the linker")
        log += said
    log = clean_log(log, [workdir, kit, SHIM])
    if status != 0:
        kind = NeedsToolkit if _DEVICE_WORDS.search(log) else BuildError
        raise kind(first_error(log), log)
    extension = HostExtension(
        library, name, functions, module, unit.kernels, _load_glue(str(kit / "dice_glue.so"))
    )
    extension.build_seconds, extension.log = time.perf_counter() - started, log
    return extension


def _translation_unit(host: str, cpp: str, functions: Sequence[str], name: str) -> str:
    for function in functions:
        if not re.fullmatch(r"[A-Za-z_]\w*", function):
            raise BuildError(f"{function!r} is no function name")
    wrappers = "\n".join(f"DICE_FUNCTION({function})" for function in functions)
    methods = " ".join(f"DICE_METHOD({function})" for function in functions)
    return f"""#line 1 "main.cpp"
{cpp}
#line 1 "kernel.cu"
{host}
#line 1 "bindings"
dice::Table dice_table;
{wrappers}
static PyMethodDef dice_methods[] = {{{methods} {{nullptr, nullptr, 0, nullptr}}}};
static PyModuleDef dice_module = {{PyModuleDef_HEAD_INIT, "{name}", nullptr, -1, dice_methods,
                                   nullptr, nullptr, nullptr, nullptr}};
PyMODINIT_FUNC __attribute__((visibility("default"))) PyInit_{name}() {{ return PyModule_Create(&dice_module); }}
"""


@functools.cache
def _load_glue(path: str) -> ctypes.CDLL:
    import torch  # noqa: F401  the glue is linked to its libraries

    return ctypes.CDLL(path)

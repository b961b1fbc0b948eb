"""The whole source by nvcc, as ``load_inline`` builds it: for sources that the quick paths do not understand.

A minute instead of seconds. Differs from torch's own builder in having a folder and a name of its own for each build,
no lock file, a deadline, and launches that are counted.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dice_engine.verify.build import cuda_driver
from dice_engine.verify.build.cuda_driver import KernelResources, parse_ptxas
from dice_engine.verify.build.interface import BuildError, InfraError, LaunchError
from dice_engine.verify.build.nvrtc import TORCH_FLAGS
from dice_engine.verify.build.nvrtc_library import cuda_homes
from dice_engine.verify.build.process import run_compiler
from dice_engine.verify.build.symbols import listing, refuse_system_calls
from dice_engine.verify.build.toolchain import (
    SHIM,
    Toolchain,
    clean_log,
    cudart,
    first_error,
    import_extension,
)

_WRAPPED = (
    "__cudaLaunchKernel",
    "__cudaLaunchKernel_ptsz",
    "cudaLaunchKernel",
    "cudaLaunchCooperativeKernel",
    "cudaLaunchKernelExC",
)
_STATISTICS = re.compile(r"^(?:ptxas (?:info|\s+\.)|\s+\d+ bytes stack frame).*\n?", re.MULTILINE)
_MODES = ("run", "fail", "skip")


class _Launches(ctypes.Structure):
    """Mirrors DiceLaunches of host_shim/dice_nvcc.h."""

    _fields_ = (("count", ctypes.c_longlong), ("mode", ctypes.c_int), ("pending", ctypes.c_int))


class NvccExtension:
    """The functions of a whole-source build as attributes; the same handles as ``host.HostExtension``."""

    backend = "nvcc"

    def __init__(self, library: Path, name: str, functions: Sequence[str]) -> None:
        self.build_seconds = 0.0
        self.log = ""
        self.resources: dict[str, KernelResources] = {}
        """By mangled kernel name."""
        compiled = import_extension(library, name)
        linked = ctypes.CDLL(str(library))
        self._launches = _Launches.in_dll(linked, "dice_launches")
        self._take_failure: Callable[[], int] = linked.dice_take_failure
        self.functions = tuple(functions) or tuple(n for n in dir(compiled) if not n.startswith("_"))
        for function in self.functions:
            if not hasattr(compiled, function):
                raise BuildError(f"the source binds no function {function!r}")
            setattr(self, function, self._caller(function, getattr(compiled, function)))

    @property
    def launch_count(self) -> int:
        """Kernel launches since the build."""
        return int(self._launches.count)

    @property
    def mode(self) -> Literal["run", "fail", "skip"]:
        return _MODES[self._launches.mode]

    @mode.setter
    def mode(self, mode: Literal["run", "fail", "skip"]) -> None:
        self._launches.mode = _MODES.index(mode)

    def synchronize(self) -> None:
        """Wait for the launches; raises LaunchError when one failed."""
        cuda_driver.context().synchronize()

    if TYPE_CHECKING:  # the bound functions

        def __getattr__(self, name: str) -> Callable[..., Any]: ...

    def _caller(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self._launches.pending = 0
            result = function(*args, **kwargs)
            if failure := self._take_failure():
                raise LaunchError(cuda_driver.error_name(failure), f"{name} did not check its launch")
            return result

        call.__name__ = name
        return call


def find_nvcc() -> Path:
    """The path of nvcc. Raises InfraError where there is none."""
    found = shutil.which("nvcc")
    candidates = [Path(found)] if found else [home / "bin/nvcc" for home in cuda_homes()]
    for path in candidates:
        if path.is_file():
            return path
    raise InfraError("nvcc is not installed and this source needs it: install the CUDA toolkit")


def build_nvcc(
    source: str,
    functions: Sequence[str],
    workdir: Path,
    cpp_sources: str = "",
    arch: str | None = None,
    extra_flags: Sequence[str] = (),
    timeout: float = 300.0,
) -> NvccExtension:
    """Compile ``source`` whole and bind ``functions`` (none: those of its own PYBIND11_MODULE).

    ``workdir`` is this build's own folder; ``arch`` (``sm_90``) is that of this machine's GPU when left out. Raises
    BuildError or InfraError.
    """
    started = time.perf_counter()
    target = arch or cuda_driver.context().arch
    name = f"dice_nvcc_{hashlib.sha256(f'{source}{cpp_sources}'.encode()).hexdigest()[:16]}_{os.urandom(4).hex()}"
    library, log = _compile(source, functions, workdir, cpp_sources, target, extra_flags, timeout, name)
    extension = NvccExtension(library, name, functions)
    extension.resources = parse_ptxas(log)
    extension.log = _STATISTICS.sub("", clean_log(log, [workdir, SHIM]))
    extension.build_seconds = time.perf_counter() - started
    return extension


def _compile(
    source: str,
    functions: Sequence[str],
    workdir: Path,
    cpp_sources: str,
    arch: str,
    extra_flags: Sequence[str],
    timeout: float,
    name: str,
) -> tuple[Path, str]:
    """The shared object and what the compilers said."""
    toolchain = Toolchain.whole_source()
    binds_itself = "PYBIND11_MODULE" in source or "PYBIND11_MODULE" in cpp_sources
    bindings = "" if binds_itself else _bindings(functions, plain=bool(cpp_sources.strip()))
    defines = [f"-DTORCH_EXTENSION_NAME={name}", "-DTORCH_API_INCLUDE_EXTENSION_H"]
    device_part = f'#line 1 "kernel.cu"\n{source}\n'
    if not cpp_sources.strip():
        device_part += f'#line 1 "bindings"\n{bindings}'
    (workdir / "kernel.cu").write_text(f"#include <dice_nvcc.h>\n#include <torch/types.h>\n{device_part}")
    capability = arch.removeprefix("sm_")
    nvcc = [
        *(find_nvcc(), "-c", "kernel.cu", "-o", "kernel.o", "-Xptxas", "-v", "--expt-relaxed-constexpr"),
        *(toolchain.standard, f"-gencode=arch=compute_{capability},code=sm_{capability}"),
        *(*TORCH_FLAGS, *defines, "--compiler-options", "-fPIC", "-ccbin", toolchain.compiler),
        *(*toolchain.includes, *extra_flags),
    ]
    jobs = [(nvcc, "nvcc")]
    objects = ["kernel.o"]
    if cpp_sources.strip():
        text = (
            f'#include <torch/extension.h>\n#line 1 "main.cpp"\n{cpp_sources}\n#line 1 "bindings"\n{bindings}'
        )
        (workdir / "main.cpp").write_text(text)
        host = [
            toolchain.compiler,
            *toolchain.flags,
            *defines,
            *toolchain.includes,
            "-c",
            "main.cpp",
            "-o",
            "main.o",
        ]
        jobs.append((host, "the host compiler"))
        objects.append("main.o")
    with ThreadPoolExecutor(len(jobs)) as pool:
        running = [pool.submit(run_compiler, command, workdir, timeout, what) for command, what in jobs]
        results = [job.result() for job in running]
    for status, log in results:
        _raise_if_failed(status, log, workdir)
    for compiled in objects:
        refuse_system_calls(listing(workdir / compiled), pybind=True)
    library = workdir / f"{name}.so"
    wraps = [f"-Wl,--wrap={symbol}" for symbol in _WRAPPED]
    link = [
        toolchain.compiler,
        "-shared",
        *objects,
        "-o",
        library,
        *wraps,
        "-Wl,--no-as-needed",  # cuBLAS and cuDNN are found through torch's own libraries
        *toolchain.libraries,
        "-ltorch_python",
    ]
    status, log = run_compiler([*link, *cudart()], workdir, timeout, "the linker")
    _raise_if_failed(status, log, workdir)
    return library, "\n".join(log for _, log in results)


def _raise_if_failed(status: int, log: str, workdir: Path) -> None:
    if status != 0:
        cleaned = clean_log(log, [workdir, SHIM])
        raise BuildError(first_error(cleaned), cleaned)


def _bindings(functions: Sequence[str], plain: bool) -> str:
    """``plain``: as load_inline binds, else with pointers as integers."""
    if not functions:
        raise BuildError("the source binds no function: give functions or a PYBIND11_MODULE")
    calls = " ".join(
        f'm.def("{name}", {f"&{name}" if plain else f"dice_bindable(&{name})"});' for name in functions
    )
    header = "" if plain else "#include <torch/extension.h>\n"
    return f"{header}PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ {calls} }}\n"

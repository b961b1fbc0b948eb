"""g++ with torch's headers, and those headers precompiled: what every host build starts from."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import importlib.machinery
import importlib.util
import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dice_engine.verify.build.interface import BuildError, InfraError
from dice_engine.verify.build.nvrtc_library import cuda_homes, cuda_includes
from dice_engine.verify.build.process import run_compiler

SHIM = Path(__file__).parent / "host_shim"
_HEADER_LIMIT_S = 300
_KEEP_UNUSED_S = 7 * 24 * 3600


def clean_log(log: str, folders: Sequence[Path]) -> str:
    """The compiler's words without our folders' names and without its include chains."""
    for folder in folders:
        log = log.replace(f"{folder}/", "")
    lines = [line for line in log.splitlines() if not re.match(r"(In file included from|\s+from) ", line)]
    return "\n".join(lines).strip()


def first_error(log: str) -> str:
    match = re.search(r"^.*\b(?:error|undefined reference)\b.*$", log, re.MULTILINE)
    return match.group().strip() if match else "the code does not compile"


def import_extension(library: Path, name: str) -> Any:
    """The Python module in ``library``. Raises BuildError when it does not load: a symbol is missing."""
    loader = importlib.machinery.ExtensionFileLoader(name, str(library))
    spec = importlib.util.spec_from_file_location(name, library, loader=loader)
    if spec is None:
        raise InfraError(f"cannot load {library}")
    try:
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        missing = re.search(r"undefined symbol: (\S+)", str(error))
        raise BuildError(f"undefined symbol {missing.group(1)}" if missing else str(error)) from None
    return module


class Toolchain:
    """g++ with torch's headers, and the headers precompiled. One for each kind of device."""

    def __init__(self, cpu: bool) -> None:
        import torch

        root = Path(torch.__file__).parent
        self.cpu = cpu
        self.root = root
        self.compiler = os.environ.get("CXX") or shutil.which("g++") or ""
        if not self.compiler:
            raise InfraError("no C++ compiler: install g++ (or set CXX)")
        newer = "-std=c++20" in (root / "utils/cpp_extension.py").read_text()
        self.standard = "-std=c++20" if newer else "-std=c++17"
        self.flags = [
            self.standard,
            *("-O1", "-fPIC", "-w", "-fvisibility=hidden", "-fdiagnostics-color=never"),
            "-fno-gnu-unique",  # one copy of a kernel's stub for each extension, not one a process
            f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
            *(["-DDICE_CPU"] if cpu else []),
        ]
        folders = [SHIM / "cpu"] if cpu else []
        folders += [SHIM, root / "include", root / "include/torch/csrc/api/include"]
        folders.append(Path(sysconfig.get_paths()["include"]))
        if not (folders[-1] / "Python.h").is_file():
            raise InfraError(f"Python's headers are missing in {folders[-1]}: install python3-dev")
        if not cpu:
            cuda = cuda_includes()
            if not cuda:
                raise InfraError(
                    "CUDA's headers are missing: install the CUDA toolkit or nvidia-cuda-runtime"
                )
            folders += cuda
        self.includes = [part for folder in folders for part in ("-isystem", folder)]
        self.libraries: list[str | Path] = ["-L", root / "lib", "-lc10", "-ltorch_cpu", "-ltorch"]
        if not cpu:
            built = [name for name in ("c10_cuda", "torch_cuda") if (root / f"lib/lib{name}.so").is_file()]
            self.libraries += [*(f"-l{name}" for name in built), *cudart()]
        version = subprocess.run(
            [self.compiler, "--version"], capture_output=True, text=True, check=False
        ).stdout.partition("\n")[0]
        shim = sorted(path for path in SHIM.rglob("*") if path.is_file())
        stamps = [f"{path.name}:{path.stat().st_mtime_ns}" for path in (root / "version.py", *shim)]
        facts = [
            version,
            torch.__version__,
            str(root),
            *map(str, self.flags),
            *map(str, self.includes),
            *stamps,
        ]
        self.key = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]

    @staticmethod
    @functools.cache
    def find(cpu: bool) -> Toolchain:
        """This machine's toolchain. Raises InfraError, saying what to install."""
        return Toolchain(cpu)

    @staticmethod
    def whole_source() -> Toolchain:
        """The toolchain for builds against CUDA itself, also where torch has none (nothing runs there)."""
        return Toolchain.find(cpu=False)

    def prepare(self, cache_dir: Path) -> Path:
        """The folder with the precompiled header and the glue; made now (about 40 s) when it is not there.

        Made in a temporary folder and renamed when complete, so a killed build leaves nothing that is ever used.
        """
        folder = cache_dir / f"host-{self.key}"
        if not folder.is_dir():
            with _lock(cache_dir):
                if not folder.is_dir():
                    self._make(cache_dir, folder)
        else:
            _touch(folder)
        return folder

    def _make(self, cache_dir: Path, folder: Path) -> None:
        _prune(cache_dir)
        making = Path(tempfile.mkdtemp(prefix="making-", dir=cache_dir))
        try:
            shutil.copy(SHIM / "dice_pch.h", making)
            # Registering operators is the one part of torch/types.h that no extension here uses: half a second less
            # for each build.
            types = (self.root / "include/torch/csrc/api/include/torch/types.h").read_text()
            (making / "dice_torch.h").write_text(types.replace("#include <torch/library.h>\n", ""))
            glue = [
                self.compiler,
                *self.flags,
                "-shared",
                *self.includes,
                SHIM / "glue.cpp",
                "-o",
                "dice_glue.so",
            ]
            header = [self.compiler, *self.flags, *self.includes, "-x", "c++-header", "dice_pch.h"]
            for command in (
                [*header, "-o", "dice_pch.h.gch"],
                [*glue, *self.libraries, "-ltorch_python"],
            ):
                status, log = run_compiler(command, making, _HEADER_LIMIT_S, "precompiling torch's headers")
                if status != 0:
                    raise InfraError(
                        f"torch's headers do not compile here: {first_error(clean_log(log, []))}"
                    )
            making.rename(folder)
        finally:
            shutil.rmtree(making, ignore_errors=True)


def cudart() -> list[str | Path]:
    """Link arguments for the CUDA runtime: the one that torch has loaded, else a toolkit's."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/maps").read_text().splitlines():
            if re.search(r"/libcudart\.so[.\d]*$", line):
                return [Path(line.split(maxsplit=5)[-1])]
    toolkits: list[str | Path] = [
        home / sub / "libcudart.so" for home in cuda_homes() for sub in ("lib64", "lib")
    ]
    return [path for path in toolkits if Path(path).is_file()][:1]


@contextlib.contextmanager
def _lock(cache_dir: Path) -> Iterator[None]:
    """One process at a time makes headers; the kernel frees the lock when its holder dies."""
    try:
        cache_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = os.open(cache_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InfraError(f"cannot write precompiled headers to {cache_dir}: {error.strerror}") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _touch(folder: Path) -> None:
    with contextlib.suppress(OSError):
        os.utime(folder)


def _prune(cache_dir: Path) -> None:
    """Remove what killed builds left and headers unused for a week. Called under the lock."""
    for folder in cache_dir.iterdir():
        if not folder.is_dir() or not folder.name.startswith(("making-", "host-")):
            continue
        age = time.time() - folder.stat().st_mtime
        if folder.name.startswith("making-") or age > _KEEP_UNUSED_S:
            shutil.rmtree(folder, ignore_errors=True)

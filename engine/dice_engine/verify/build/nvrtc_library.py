"""Where NVRTC and CUDA's headers are: a toolkit, NVIDIA's wheels, or both."""

from __future__ import annotations

import ctypes
import functools
import importlib
import importlib.util
import os
import re
import shutil
from pathlib import Path
from typing import Any

from dice_engine.verify.build.interface import InfraError

SHIM = Path(__file__).parent / "nvrtc_shim"


@functools.cache
def nvrtc() -> Any:
    """The module ``cuda.bindings.nvrtc`` with its library loaded. Raises InfraError where NVRTC is missing."""
    try:
        module = importlib.import_module("cuda.bindings.nvrtc")
    except ImportError:
        raise InfraError("the package cuda-bindings is missing: pip install 'dice-ls[engine]'") from None
    _load_builtins()
    try:
        status, _, _ = module.nvrtcVersion()
    except Exception:  # cuda.pathfinder's own exception types differ between versions
        raise InfraError(
            "NVRTC is not installed: pip install nvidia-cuda-nvrtc, or a torch with CUDA"
        ) from None
    if int(status) != 0:
        raise InfraError(f"NVRTC does not start: {status.name}")
    return module


def _load_builtins() -> None:
    """NVRTC opens its builtins library by name only, so it must be in the process already when it is off the path."""
    places = [p / "lib" for p in _nvidia_packages()]
    places += [home / sub for home in cuda_homes() for sub in ("lib64", "lib", "targets/x86_64-linux/lib")]
    for place in places:
        # One folder only: builtins of another NVRTC version would be refused.
        found = [f for f in sorted(place.glob("libnvrtc-builtins.so*")) if "alt" not in f.name]
        for library in found:
            try:
                ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
            except OSError:
                continue
        if found:
            return


def _nvidia_packages() -> list[Path]:
    """Folders of NVIDIA's wheels: ``site-packages/nvidia/cu13``, ``.../cuda_nvrtc``."""
    spec = importlib.util.find_spec("nvidia")
    roots = list(spec.submodule_search_locations or ()) if spec else []
    return [child for root in roots for child in sorted(Path(root).iterdir()) if child.is_dir()]


def cuda_homes() -> list[Path]:
    named = [os.environ[key] for key in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(key)]
    nvcc = shutil.which("nvcc")
    if nvcc:
        named.append(str(Path(nvcc).resolve().parent.parent))
    named.append("/usr/local/cuda")
    return [home for home in dict.fromkeys(map(Path, named)) if (home / "include/cuda.h").is_file()]


@functools.cache
def include_paths() -> tuple[Path, ...]:
    """Where NVRTC finds headers: ours first (NVRTC has most of the toolkit's built in), then the first CUDA's."""
    candidates = [p / "include" for p in _nvidia_packages()] + [home / "include" for home in cuda_homes()]
    toolkit = [p for p in candidates if (p / "cuda_fp16.h").is_file()][:1]
    cccl = [p / "cccl" for p in candidates if (p / "cccl/cuda/std").is_dir()]
    cccl += [p for p in candidates if (p / "cuda/std").is_dir()]
    return (SHIM, *toolkit, *cccl[:1])


def cuda_includes() -> list[Path]:
    """Folders for host compilers: the one with cuda_runtime.h first, then those of NVIDIA's wheels (cuBLAS...)."""
    folders = [package / "include" for package in _nvidia_packages()] + [
        home / "include" for home in cuda_homes()
    ]
    runtime = [path for path in folders if (path / "cuda_runtime.h").is_file()]
    return (
        list(dict.fromkeys([*runtime[:1], *(path for path in folders if path.is_dir())])) if runtime else []
    )


@functools.cache
def cccl_cstdint() -> str | None:
    """CCCL's <cuda/std/cstdint> with the 64-bit types as nvcc on Linux has them (long), or None without CCCL."""
    for path in include_paths():
        header = path / "cuda/std/cstdint"
        if header.is_file():
            text = header.read_text()
            text = re.sub(r"(u?int64_t\s*=\s*(?:un)?signed long) long;", r"\1;", text)
            return re.sub(r"(typedef (?:un)?signed long) long(\s+u?int64_t;)", r"\1\2", text)
    return None

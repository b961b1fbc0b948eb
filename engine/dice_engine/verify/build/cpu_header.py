"""The CPU shim as a precompiled header: it halves the compile time of a small kernel (0.20 s of CPU to 0.10 s)."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dice_engine.verify.build.interface import BuildError, InfraError
from dice_engine.verify.build.process import run_compiler

SHIM = Path(__file__).parent / "cpu_shim"
_LIMIT_S = 60


def shim_options(compiler: str, flags: Sequence[str], cache_dir: Path | None) -> list[str]:
    """Options that include the shim before the source: precompiled in ``cache_dir`` (about 20 MB) where that works.

    The header is made once for each compiler, set of flags and version of the shim; a folder that cannot be
    written or a compiler without precompiled headers only costs the time.
    """
    plain = [f"-I{SHIM}", "-include", str(SHIM / "dice" / "cuda.h")]
    if cache_dir is None:
        return plain
    folder = cache_dir / f"cpu-{_key(compiler, tuple(flags))}"
    header = folder / "dice_cpu.h"
    if not header.with_suffix(".h.gch").exists():
        with contextlib.suppress(OSError, BuildError, InfraError):
            _make(compiler, flags, folder)
    return [f"-I{SHIM}", "-include", str(header)] if header.with_suffix(".h.gch").exists() else plain


def _make(compiler: str, flags: Sequence[str], folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    making = Path(tempfile.mkdtemp(prefix="making-", dir=folder.parent))
    try:
        header = making / "dice_cpu.h"
        header.write_text(f'#include "{SHIM / "dice" / "cuda.h"}"\n')
        command = [
            compiler,
            *flags,
            f"-I{SHIM}",
            "-x",
            "c++-header",
            header,
            "-o",
            header.with_suffix(".h.gch"),
        ]
        status, _ = run_compiler(command, making, _LIMIT_S, "the precompiled header")
        if status == 0:
            making.rename(folder)  # whole or not at all; another process may have been faster
    finally:
        shutil.rmtree(making, ignore_errors=True)


@functools.cache
def _key(compiler: str, flags: tuple[str, ...]) -> str:
    binary = Path(compiler).resolve()
    facts = [compiler, str(binary), *flags]
    for path in (binary, *sorted(SHIM.rglob("*.h"))):
        state = path.stat()
        facts.append(f"{path}:{state.st_size}:{state.st_mtime_ns}")
    return hashlib.sha256(os.fsencode("\n".join(facts))).hexdigest()[:16]

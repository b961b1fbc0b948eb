"""What a rewritten file must be."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path


def compiles(source: str, folder: Path) -> None:
    """Its kernels are good C++ for g++ with the shim of the CPU backend."""
    from dice_engine.verify import build

    shim = Path(build.__file__).parent / "cpu_shim"
    path = folder / "applied.cu"
    path.write_text(source[: source.index("void run_axpb")], encoding="utf-8")
    command = ["g++", "-std=c++17", "-fsyntax-only", "-x", "c++", "-I", str(shim), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def value_of(source: str, name: str) -> str:
    """The value of the string that is assigned to ``name``."""
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == name:
            return ast.literal_eval(statement.value)
    raise AssertionError(f"{name} is gone")

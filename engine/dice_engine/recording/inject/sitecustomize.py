"""Put on the path of the recorded program: starts the recorder when the program imports torch, and does nothing else.

It runs in whatever Python the program uses, so it and ``recorder.py`` import nothing of this project.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

_HERE = Path(__file__).resolve().parent


def _load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _WhenTorchComes:
    """Finds torch as anybody would, and starts the recorder after it was imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch":
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_start(module: ModuleType) -> None:
            execute(module)
            _load("_dice_recorder", _HERE.parent / "recorder.py").start()

        spec.loader.exec_module = execute_and_start  # type: ignore[method-assign]
        return spec


sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != _HERE]
sys.meta_path.insert(0, _WhenTorchComes())  # type: ignore[arg-type]
# The program's own sitecustomize, which this one stands before.
_own = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
if _own is not None and _own.origin:
    _load("_own_sitecustomize", Path(_own.origin))

"""Lets ``from_pretrained`` of transformers read SDAR and DICE checkpoints once ``dice_engine`` is imported.

transformers takes seconds to import and most programs here never do, so its modules are watched for instead: when one
of its registries is imported, ours is entered there.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

_REGISTRIES = {
    "transformers.models.auto.configuration_auto": "register_config",
    "transformers.models.auto.modeling_auto": "register_model",
    "transformers.models.auto.tokenization_auto": "register_tokenizer",
}


class _Watch(importlib.abc.MetaPathFinder):
    """Finds nothing itself: it wraps the loader of a registry that is about to be imported."""

    def __init__(self) -> None:
        self._waiting = {name for name in _REGISTRIES if name not in sys.modules}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._waiting:
            return None
        self._waiting.discard(fullname)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, _REGISTRIES[fullname])
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, inner: importlib.abc.Loader, entry: str) -> None:
        self._inner, self._entry = inner, entry

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._inner.exec_module(module)
        _enter(self._entry)


def _enter(entry: str) -> None:
    # By name: the language server imports this package and must not reach torch, not even on paper.
    getattr(importlib.import_module("dice_engine.model.pretrained"), entry)()


def watch() -> None:
    """Enter our classes where transformers is imported already, and watch for the rest."""
    sys.meta_path.insert(0, _Watch())
    for name, entry in _REGISTRIES.items():
        if name in sys.modules:
            _enter(entry)

"""One file for each LSP feature or group of commands; each has ``register(server)``."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

_NAMES = (
    "lifecycle",
    "configuration",
    "documents",
    "watched_files",
    "code_actions",
    "code_lens",
    "evidence",
    "inlay_hints",
    "inline_completion",
    "commands",
    "check",
    "engine_commands",
    "trust",
)


def all_features() -> list[ModuleType]:
    return [import_module(f"dice_ls.features.{name}") for name in _NAMES]

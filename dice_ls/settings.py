"""What a user can set. One typed schema; every value arrives in ``initializationOptions`` (user scope).

A workspace cannot set anything here: the checkpoint's path and everything that decides what is executed must not
come with the code that is being looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

Device = Literal["auto", "cuda", "cpu"]


def _about(description: str) -> dict[str, str]:
    return {"description": description}


@dataclass(frozen=True)
class Settings:
    """Settings of one server; unknown keys are reported, wrong values leave that key's default in force."""

    trusted: bool | None = field(
        default=None,
        metadata=_about("Whether the code of the open workspaces may be compiled and run. Unset: ask once."),
    )
    checkpoint: str | None = field(
        default=None, metadata=_about("Folder of the model to use. Unset: the one that comes with DICE.")
    )
    device: Device = field(
        default="auto", metadata=_about("Where candidates are decoded, checked and timed: auto, cuda or cpu.")
    )
    candidates: int = field(default=8, metadata=_about("How many candidates one request decodes (1 to 64)."))
    diagnosticsDelayMs: int = field(
        default=250,
        metadata=_about("Pause after typing before @dice annotations are checked, in milliseconds."),
    )
    codeLens: bool = field(default=True, metadata=_about("Show a code lens over every kernel and module."))

    @staticmethod
    def from_client(options: Any) -> tuple[Settings, list[str]]:
        """The settings in a client's ``initializationOptions`` (plain or under ``dice``) and what was wrong."""
        if options is None:
            return Settings(), []
        if not isinstance(options, dict):
            return Settings(), ["initializationOptions must be an object; the defaults are used"]
        if isinstance(options.get("dice"), dict):
            options = options["dice"]
        known = {item.name for item in fields(Settings)}
        settings, problems = Settings(), []
        for key, value in options.items():
            if key not in known:
                problems.append(f"unknown setting {key!r}; known: {', '.join(sorted(known))}")
                continue
            if wanted := _wrong(key, value):
                problems.append(f"setting {key!r} must be {wanted}, not {value!r}; its default is used")
                continue
            settings = replace(settings, **{key: value})
        return settings, problems


def _wrong(key: str, value: Any) -> str | None:
    """What ``value`` should have been, or None when it fits the schema."""
    if key == "device":
        return None if value in get_args(Device) else "one of " + ", ".join(get_args(Device))
    if key == "candidates":
        return None if type(value) is int and 1 <= value <= 64 else "a number from 1 to 64"
    if key == "diagnosticsDelayMs":
        return None if type(value) is int and 0 <= value <= 60_000 else "a number from 0 to 60000"
    allowed = get_type_hints(Settings)[key]
    if value is None and type(None) in get_args(allowed):
        return None
    if key == "checkpoint":
        return None if isinstance(value, str) and Path(value).is_absolute() else "the full path of a folder"
    return None if isinstance(value, bool) else "true or false"

"""What a user can set: one typed schema, from which editors' settings pages and docs/settings.md are generated.

``python -m dice_ls.settings --json`` prints the schema and the commands; ``--markdown`` prints docs/settings.md.

Two scopes. ``user``: paths of executables and checkpoints and everything that decides whether code runs. These come
from ``initializationOptions`` (or the command of a person), never from what travels with the code: not from
``dice.toml``, and not from a configuration that a workspace may have overridden. ``workspace``: everything else; it
may change while the server runs.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

Device = Literal["auto", "cuda", "cpu"]
GhostText = Literal["automatic", "onRequest", "off"]
Scope = Literal["user", "workspace"]
Side = Literal["server", "client"]


def _about(
    description: str,
    *,
    scope: Scope = "workspace",
    side: Side = "server",
    limits: tuple[int, int] | None = None,
    is_path: bool = False,
) -> dict[str, Any]:
    return {"description": description, "scope": scope, "side": side, "limits": limits, "is_path": is_path}


@dataclass(frozen=True)
class Settings:
    """The settings in force. Unknown keys are reported; a wrong value leaves the value of that key alone as it was."""

    python: str | None = field(
        default=None,
        metadata=_about(
            "Full path of the Python that has dice-ls. Unset: the dice-ls on the PATH.",
            scope="user",
            side="client",
            is_path=True,
        ),
    )
    trusted: bool | None = field(
        default=None,
        metadata=_about(
            "Whether the code of the open workspaces may be compiled and run. Unset: asked once a workspace.",
            scope="user",
        ),
    )
    checkpoint: str | None = field(
        default=None,
        metadata=_about(
            "Full path of the folder of the model to use. Unset: the one that comes with DICE.",
            scope="user",
            is_path=True,
        ),
    )
    device: Device = field(
        default="auto", metadata=_about("Where candidates are decoded, checked and timed.")
    )
    candidates: int = field(
        default=8, metadata=_about("How many candidates one request decodes.", limits=(1, 64))
    )
    searchOnSave: bool = field(
        default=False,
        metadata=_about(
            "Search for faster versions of the kernels that were edited, whenever a file is saved."
        ),
    )
    diagnosticsOnSave: bool = field(
        default=True,
        metadata=_about(
            "Compile the CUDA of a file when it is saved and show the compiler's errors (trusted workspaces).",
        ),
    )
    diagnosticsDelayMs: int = field(
        default=250,
        metadata=_about(
            "Pause after typing before @dice annotations are checked, in milliseconds.",
            limits=(0, 60_000),
        ),
    )
    codeLens: bool = field(default=True, metadata=_about("Show a code lens over every kernel and module."))
    inlayHints: bool = field(
        default=False, metadata=_about("Show the measured time and bandwidth of a kernel at its launches.")
    )
    ghostText: GhostText = field(
        default="automatic",
        metadata=_about("Ghost text inside kernels: while typing, only when it is asked for, or never."),
    )
    ghostTextDelayMs: int = field(
        default=150,
        metadata=_about(
            "Pause after typing before ghost text is decoded, in milliseconds.", limits=(0, 10_000)
        ),
    )
    ghostTextTokens: int = field(
        default=40, metadata=_about("Longest ghost text, in tokens of the model.", limits=(4, 256))
    )
    workOnBattery: bool = field(
        default=False,
        metadata=_about("Search on save and decode ghost text while typing on battery power too."),
    )

    @staticmethod
    def from_client(options: Any) -> tuple[Settings, list[str]]:
        """The settings in a client's ``initializationOptions`` (plain or under ``dice``) and what was wrong."""
        if options is None:
            return Settings(), []
        if not isinstance(options, dict):
            return Settings(), ["initializationOptions must be an object; the defaults are used"]
        return Settings()._changed(_section(options), scopes=("user", "workspace"))

    def reloaded(self, section: Any, start: Settings) -> tuple[Settings, list[str]]:
        """After a change of configuration. What ``section`` does not name is as at the start; user scope stays."""
        if not isinstance(section, dict):
            return self, ["the configuration `dice` must be an object; nothing is changed"]
        section = _section(section)
        kept = [
            key
            for key in _FIELDS
            if _FIELDS[key].metadata["scope"] == "user" or _wrong(key, section.get(key))
        ]
        settings = replace(start, **{key: getattr(self, key) for key in kept})
        return settings._changed({k: v for k, v in section.items() if v is not None}, scopes=("workspace",))

    def _changed(self, values: dict[str, Any], scopes: tuple[Scope, ...]) -> tuple[Settings, list[str]]:
        """These settings with ``values``, and one line for each value that cannot be taken."""
        settings, problems = self, []
        for key, value in values.items():
            if key == _OF_THE_CLIENT:
                continue
            if key not in _FIELDS:
                problems.append(f"unknown setting {key!r}; known: {', '.join(sorted(_FIELDS))}")
            elif wanted := _wrong(key, value):
                problems.append(
                    f"setting {key!r} must be {wanted}, not {value!r}; it stays {getattr(self, key)!r}"
                )
            elif _FIELDS[key].metadata["scope"] in scopes:
                settings = replace(settings, **{key: _FIELDS[key].default if value is None else value})
            elif value != getattr(self, key):
                problems.append(f"setting {key!r} {_USER_ONLY}")
        return settings, problems


_FIELDS = {item.name: item for item in fields(Settings)}
_TYPES = get_type_hints(Settings)
_OF_THE_CLIENT = "trace"
"""``dice.trace.server`` belongs to editors' client libraries, which send the whole section."""
_USER_ONLY = (
    "is read at the start only, from user scope (initializationOptions): it decides what runs on this machine"
)


def _section(options: dict[str, Any]) -> dict[str, Any]:
    inner = options.get("dice")
    return inner if isinstance(inner, dict) else options


def _wrong(key: str, value: Any) -> str | None:
    """What ``value`` should have been, or None when it fits. ``null`` always means the default."""
    if value is None:
        return None
    kind, limits = _TYPES[key], _FIELDS[key].metadata["limits"]
    if get_origin(kind) is Literal:
        return None if value in get_args(kind) else "one of " + ", ".join(get_args(kind))
    if limits is not None:
        fits = type(value) is int and limits[0] <= value <= limits[1]
        return None if fits else f"a number from {limits[0]} to {limits[1]}"
    if _FIELDS[key].metadata["is_path"]:
        return None if isinstance(value, str) and Path(value).is_absolute() else "a full path"
    return None if isinstance(value, bool) else "true or false"


def schema() -> list[dict[str, Any]]:
    """Every setting as JSON Schema words plus ``key``, ``scope`` and ``side`` (who reads it: server or client)."""
    described = []
    for item in fields(Settings):
        kind, about = _TYPES[item.name], item.metadata
        one: dict[str, Any] = {"key": f"dice.{item.name}", "type": _json_type(kind), "default": item.default}
        one |= {"scope": about["scope"], "side": about["side"], "description": about["description"]}
        if get_origin(kind) is Literal:
            one["enum"] = list(get_args(kind))
        if about["limits"] is not None:
            one["minimum"], one["maximum"] = about["limits"]
        described.append(one)
    return described


def _json_type(kind: Any) -> str | list[str]:
    names = {bool: "boolean", int: "integer", str: "string", type(None): "null"}
    if get_origin(kind) is Literal:
        return "string"
    if get_args(kind):
        return [names[part] for part in get_args(kind)]
    return names[kind]


def markdown() -> str:
    """The page docs/settings.md."""
    rows = ["| setting | scope | default | meaning |", "|---|---|---|---|"]
    for one in schema():
        values = one.get("enum") or ([one["minimum"], one["maximum"]] if "minimum" in one else [])
        allowed = " to ".join(map(str, values)) if "minimum" in one else ", ".join(f"`{v}`" for v in values)
        meaning = one["description"] + (f" ({allowed})" if allowed else "")
        rows.append(f"| `{one['key']}` | {one['scope']} | `{json.dumps(one['default'])}` | {meaning} |")
    return _PAGE.format(table="\n".join(rows))


_PAGE = """# Settings

This page is printed by `python -m dice_ls.settings --markdown`; `--json` prints the same schema, with the commands, for
editors that generate their settings page from it.

{table}

- `user` settings are read from `initializationOptions` when the server starts, plain or under the key `dice`. They
  decide what runs on this machine, so they are never taken from a workspace: not from `dice.toml`, and not from
  `workspace/didChangeConfiguration`, which may carry what a workspace has overridden.
- `workspace` settings come from `initializationOptions` and from `workspace/didChangeConfiguration` or
  `workspace/configuration` (section `dice`), and take effect at once.
- `client` settings (`python`) are read by the editor's extension, not by the server.
- An unknown key is reported in a warning and ignored. A value of the wrong type is reported and only that key keeps
  the value it had. `null` is the same as leaving the key out. What a changed configuration leaves out is as it was
  at the start.
"""


def main(arguments: list[str]) -> int:
    """``--json``: settings and commands; ``--markdown``: the documentation page."""
    if arguments == ["--json"]:
        from dice_ls.contract import COMMANDS

        print(json.dumps({"settings": schema(), "commands": [one.to_json() for one in COMMANDS]}, indent=2))
        return 0
    if arguments == ["--markdown"]:
        print(markdown(), end="")
        return 0
    print("usage: python -m dice_ls.settings --json | --markdown", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

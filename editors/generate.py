"""Writes what editors know of the server's settings and commands, from the server's own schema.

``python editors/generate.py`` writes the files; ``--check`` only says which of them are out of date (exit 1).
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dice_ls.contract import COMMANDS
from dice_ls.settings import schema

HERE = Path(__file__).parent


def main(arguments: list[str]) -> int:
    stale = []
    for path, render in FILES.items():
        before = path.read_text(encoding="utf-8")
        after = render(before)
        if before == after:
            continue
        stale.append(path.relative_to(HERE))
        if "--check" not in arguments:
            path.write_text(after, encoding="utf-8")
    for path in stale:
        print(
            f"editors/{path}: {'out of date, run editors/generate.py' if '--check' in arguments else 'written'}"
        )
    return 1 if stale and "--check" in arguments else 0


def between(before: str, start: str, end: str, text: str) -> str:
    """``before`` with what stands between the lines ``start`` and ``end`` replaced."""
    pattern = re.compile(rf"({re.escape(start)}\n).*?(?=^{re.escape(end)})", re.DOTALL | re.MULTILINE)
    assert pattern.search(before), f"no place for generated text after {start!r}"
    return pattern.sub(lambda found: found[1] + text, before)


def vim_help(before: str) -> str:
    lines = []
    for one in schema():
        if one["side"] == "client":
            continue
        name = one["key"].removeprefix("dice.")
        allowed = ", ".join(one.get("enum", []))
        limits = f"{one['minimum']} to {one['maximum']}" if "minimum" in one else ""
        about = one["description"] + (f" ({allowed or limits})" if allowed or limits else "")
        default = {None: "nil"}.get(one["default"], json.dumps(one["default"]).replace('"', "'"))
        lines.append(f"{name}  (default {default})")
        lines += textwrap.wrap(about, 74, initial_indent="    ", subsequent_indent="    ")
    return between(
        before,
        "They go into `settings` of |dice.setup()|.",
        "=====",
        "\n" + "\n".join(lines) + "\n\n",
    )


KEYS = {
    "dice.findFaster": "ctrl+alt+d f",
    "dice.preview": "ctrl+alt+d p",
    "dice.showEvidence": "ctrl+alt+d e",
    "dice.cancel": "ctrl+alt+d c",
}
IN_CODE = "editorTextFocus && editorLangId =~ /^(cuda-cpp|cpp|python)$/"
OF_VSCODE = {
    "dice.preview": ("Preview the verified rewrites", "$(diff)"),
    "dice.previewApply": ("Apply this rewrite", "$(check)"),
    "dice.previewLeave": ("Leave this preview", "$(close)"),
    "dice.menu": ("Show the menu", None),
    "dice.installServer": ("Install or update the server", None),
    "dice.restartServer": ("Restart the server", None),
    "dice.showLog": ("Show the log", None),
}
"""Commands of the VS Code extension itself: title, icon."""


def vscode_manifest(before: str) -> str:
    manifest: dict[str, Any] = json.loads(before)
    contributes = manifest["contributes"]
    contributes["configuration"] = {
        "title": "DICE",
        "properties": {one["key"]: _property(one) for one in schema()},
    }
    contributes["commands"] = [
        {"command": one.command, "title": one.title, "category": "DICE"} for one in COMMANDS
    ] + [
        {"command": name, "title": title, "category": "DICE", **({"icon": icon} if icon else {})}
        for name, (title, icon) in OF_VSCODE.items()
    ]
    contributes["keybindings"] = [
        {"command": name, "key": key, "mac": key.replace("ctrl+alt", "cmd+alt"), "when": IN_CODE}
        for name, key in KEYS.items()
    ]
    hidden = [one.command for one in COMMANDS if not one.palette] + ["dice.previewApply", "dice.previewLeave"]
    contributes["menus"]["commandPalette"] = [{"command": name, "when": "false"} for name in hidden]
    manifest["capabilities"]["untrustedWorkspaces"]["restrictedConfigurations"] = [
        one["key"] for one in schema() if one["scope"] == "user"
    ]
    return json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"


def vscode_readme(before: str) -> str:
    """The table of keys."""
    titles = {one.command: one.title for one in COMMANDS} | {
        name: title for name, (title, _) in OF_VSCODE.items()
    }
    rows = "".join(f"| `{key}` | {titles[name]} |\n" for name, key in KEYS.items())
    return between(before, "|---|---|", "Settings and commands in", rows + "\n")


def _property(one: dict[str, Any]) -> dict[str, Any]:
    known = {name: one[name] for name in ("type", "default", "enum", "minimum", "maximum") if name in one}
    # A setting of scope "machine" cannot be overridden by a workspace.
    scope = "machine" if one["scope"] == "user" else "resource"
    return {**known, "scope": scope, "description": one["description"]}


def vscode_commands(_before: str) -> str:
    settings = schema()
    known = {
        "commands": [one.to_json() for one in COMMANDS],
        "userSettings": [one["key"] for one in settings if one["scope"] == "user"],
        "workspaceSettings": [one["key"] for one in settings if one["scope"] == "workspace"],
    }
    return json.dumps(known, indent=2) + "\n"


def emacs_settings(before: str) -> str:
    """A ``defcustom`` a setting, and the table from which initializationOptions are made."""
    forms, table = [], []
    for one in schema():
        if one["side"] == "client":
            continue
        key = one["key"].removeprefix("dice.")
        symbol = "dice-" + re.sub(r"(?<=[a-z])([A-Z])", r"-\1", key).lower()
        default, kind = _lisp(one["default"]), _lisp_type(one)
        sentences = one["description"].replace('"', '\\"').replace(". Unset", ".\nUnset").split("\n")
        about = "\n".join(textwrap.fill(sentence, 76) for sentence in sentences)
        forms.append(f'(defcustom {symbol} {default}\n  "{about}"\n  :type {kind})\n')
        table.append(f"({symbol} :{key} {default})")
    listed = "(defconst dice--settings\n  '(" + "\n    ".join(table) + ")\n"
    listed += '  "Settings: variable, key of the server, the server\'s default.")\n'
    start = ";; Settings of the server, written by editors/generate.py."
    return between(
        before, start, ";; End of the generated settings.", "\n" + "\n".join([*forms, listed]) + "\n"
    )


def _lisp(value: Any) -> str:
    if value is None or value is False:
        return "nil"
    return "t" if value is True else json.dumps(value)


def _lisp_type(one: dict[str, Any]) -> str:
    if "enum" in one:
        return "'(choice " + " ".join(f'(const "{value}")' for value in one["enum"]) + ")"
    if one["type"] == "boolean":
        return "'boolean"
    if one["type"] == "integer":
        return "'integer"
    if "boolean" in one["type"]:
        return '\'(choice (const :tag "unset" nil) (const :tag "yes" t) (const :tag "no" no))'
    return '\'(choice (const :tag "unset" nil) directory)'


FILES: dict[Path, Callable[[str], str]] = {
    HERE / "neovim" / "doc" / "dice.txt": vim_help,
    HERE / "emacs" / "dice.el": emacs_settings,
    HERE / "vscode" / "package.json": vscode_manifest,
    HERE / "vscode" / "src" / "generated.json": vscode_commands,
    HERE / "vscode" / "README.md": vscode_readme,
}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

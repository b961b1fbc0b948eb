"""Files for editors that are not run here are well formed; what is generated from the server's schema is up to date."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tomli

EDITORS = Path(__file__).parents[2] / "editors"


def without_comments(text: str) -> Any:
    return json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))


@pytest.mark.parametrize("name", ["helix/languages.toml", "zed/extension.toml", "zed/Cargo.toml"])
def test_toml(name: str) -> None:
    assert tomli.loads((EDITORS / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "name", ["zed/settings.json", "kate/lspclient.json", "sublime/LSP-dice.sublime-settings"]
)
def test_json(name: str) -> None:
    assert "dice-ls" in json.dumps(without_comments((EDITORS / name).read_text(encoding="utf-8")))


def test_they_only_set_what_the_server_knows() -> None:
    from dice_ls.settings import Settings

    helix = tomli.loads((EDITORS / "helix/languages.toml").read_text(encoding="utf-8"))
    sublime = without_comments((EDITORS / "sublime/LSP-dice.sublime-settings").read_text(encoding="utf-8"))
    zed = json.loads((EDITORS / "zed/settings.json").read_text(encoding="utf-8"))
    kate = json.loads((EDITORS / "kate/lspclient.json").read_text(encoding="utf-8"))
    for options in (
        helix["language-server"]["dice"]["config"],
        sublime["clients"]["dice"]["initializationOptions"],
        zed["lsp"]["dice"]["initialization_options"],
        kate["servers"]["cuda"]["initializationOptions"],
    ):
        assert Settings.from_client(options)[1] == []


def test_generated_files_are_up_to_date() -> None:
    command = [sys.executable, str(EDITORS / "generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


DRIFTS = [
    ("vscode/package.json", '"default": 8,', '"default": 9,'),
    ("vscode/package.json", '"key": "ctrl+alt+d f"', '"key": "ctrl+alt+d x"'),
    ("vscode/package.json", '"Cancel the search"', '"Cancel a search"'),
    ("vscode/src/generated.json", '"dice.cancel"', '"dice.cancelled"'),
    ("vscode/README.md", "| `ctrl+alt+d e` |", "| `ctrl+alt+d x` |"),
    ("neovim/doc/dice.txt", "candidates  (default 8)", "candidates  (default 9)"),
    ("emacs/dice.el", "(defcustom dice-candidates 8", "(defcustom dice-candidates 9"),
]


@pytest.mark.parametrize(("name", "said", "drifted"), DRIFTS)
def test_what_drifts_is_noticed(name: str, said: str, drifted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EDITORS))
    from generate import FILES  # pyright: ignore[reportMissingImports]

    text = (EDITORS / name).read_text(encoding="utf-8")
    assert said in text
    assert FILES[EDITORS / name](text.replace(said, drifted)) == text


def test_a_workspace_cannot_set_what_decides_what_runs() -> None:
    manifest = json.loads((EDITORS / "vscode/package.json").read_text(encoding="utf-8"))
    properties = manifest["contributes"]["configuration"]["properties"]
    for key in ("dice.python", "dice.checkpoint", "dice.trusted"):
        assert properties[key]["scope"] == "machine"
        assert key in manifest["capabilities"]["untrustedWorkspaces"]["restrictedConfigurations"]

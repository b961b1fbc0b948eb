"""The wheel that users install: it holds every file of the packages, and works from where pip puts it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("dice_ls", "engine/dice_engine", "training/dice_training")
CASE = ROOT / "tests/cases/scaled_sum.cu"
OLD, NEW = "dst[k] = factor * left[k] + right[k];", "dst[k] = fmaf(factor, left[k], right[k]);"


def run(*arguments: str | Path, **environment: str) -> str:
    """What Python says, without a fault, to the arguments."""
    process = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT if "hatchling" in arguments else "/",
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run("-m", "hatchling", "build", "-t", "wheel", "-d", folder)
    (wheel,) = folder.iterdir()
    return wheel


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    run("-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", folder, wheel)
    return folder


def test_every_file_is_in_the_wheel(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    for package in PACKAGES:
        root = ROOT / package
        files = {path.relative_to(root.parent).as_posix() for path in root.rglob("*") if path.is_file()}
        assert {name for name in files if "__pycache__" not in name} <= inside


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_the_installed_wheel_judges_a_kernel(installed: Path, tmp_path: Path) -> None:
    candidate = tmp_path / "candidate.cu"
    candidate.write_text(CASE.read_text().replace(OLD, NEW))
    options = ("--device", "cpu", "--no-cache", "--json")
    said = run("-m", "dice_engine.verify", CASE, candidate, *options, PYTHONPATH=str(installed))
    assert json.loads(said)["verdict"] == "correct_unmeasured"


def test_the_installed_wheel_has_the_model(installed: Path) -> None:
    program = "import dice_engine; dice_engine.load(); print(dice_engine.__file__)"
    assert run("-c", program, PYTHONPATH=str(installed)).startswith(str(installed))

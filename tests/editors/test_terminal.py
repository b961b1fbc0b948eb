"""``dice suggest`` and ``dice verify`` in a terminal: candidates live, then a table and the diff; plain elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys

from conftest import SHOTS, Place
from nvim_rpc import until
from samples import SILU
from screen import Screen

SUGGEST = [sys.executable, "-m", "dice_ls.cli", "suggest", "saxpy.cu", "-n", "4"]


def test_candidates_are_live_and_the_end_is_a_table_and_a_diff(place: Place) -> None:
    place.hold()
    shell = ["sh", "-c", '"$@"; echo "exit $?"; sleep 60', "sh", *SUGGEST]
    screen = Screen(place.runtime, shell, place.environment, place.workspace)
    try:
        until(lambda: "mismatch" in screen.text() and "waiting" in screen.text(), "the candidates so far")
        assert "dst differs at 3 of 1000 places" in screen.text()
        place.release()
        until(lambda: "exit 0" in screen.text(), "the end")
        end = screen.text()
        assert "waiting" not in end and "2.31x" in end
        assert "+  if (k < count) dst[k] = fmaf(alpha, lhs[k], rhs[k]);" in end
    finally:
        screen.close()


def test_nothing_moves_where_there_is_no_terminal(place: Place) -> None:
    environment = {**os.environ, **place.environment}
    done = subprocess.run(
        SUGGEST, env=environment, cwd=place.workspace, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + done.stderr and "being checked" not in done.stdout
    assert "1 of 4 candidates verified; best 2.31x on NVIDIA H200" in done.stdout


def test_the_real_engine_and_model(place_without_engine: Place) -> None:
    """Nothing is scripted; the pictures of the README are made here."""
    place = place_without_engine
    fast = SILU.replace("1.0 + exp(-v)", "1.0f + expf(-v)")
    (place.workspace / "silu_fast.cu").write_text(fast, encoding="utf-8")
    said = shown(place, "suggest silu.cu -n 4 --device cpu", "suggest.svg")
    assert "correct_unmeasured" in said or "no verified rewrite" in said
    said = shown(place, "verify silu.cu silu_fast.cu --device cpu", "verify.svg")
    assert "correct_unmeasured" in said


def shown(place: Place, arguments: str, picture: str) -> str:
    """What ``dice`` with ``arguments`` leaves on a terminal."""
    ended = place.folder / f"{picture}.ended"
    program = f'echo "$ dice {arguments}"; "{sys.executable}" -m dice_ls.cli {arguments}; touch "{ended}"; sleep 600'
    screen = Screen(place.runtime, ["sh", "-c", program], place.environment, place.workspace)
    try:
        until(ended.exists, f"the end of dice {arguments}", 240)
        screen.save(SHOTS / picture, "dice", whole=False)
        return screen.text()
    finally:
        screen.close()

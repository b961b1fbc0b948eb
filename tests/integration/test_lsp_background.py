"""Work that nobody waits for: it leaves a machine alone that runs on battery, and goes on when there is power."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Workplace
from lsp_client import Client
from test_lsp import CURSOR, FAST, SAXPY, VERDICTS
from test_lsp_diagnostics import save

from dice_ls.power import on_battery

PATCH = """import os, pathlib
from dice_ls import power
power.on_battery.__defaults__ = (pathlib.Path(os.environ["DICE_TEST_SUPPLIES"]),)
power.busy = lambda: False
"""


def battery(folder: Path, status: str) -> Path:
    supply = folder / "supplies" / "BAT0"
    supply.mkdir(parents=True, exist_ok=True)
    (supply / "type").write_text("Battery\n")
    (supply / "status").write_text(f"{status}\n")
    return folder / "supplies"


def waits(client: Client) -> list[str]:
    told = [params for name, params in client.notifications if name == "dice/status"]
    return [one["waiting_for"] for one in told]


def test_a_battery_is_seen(tmp_path: Path) -> None:
    assert on_battery(battery(tmp_path, "Discharging"))
    assert not on_battery(battery(tmp_path, "Charging"))
    assert not on_battery(tmp_path / "nothing")


@pytest.mark.asyncio
async def test_searches_on_save_wait_for_power_and_others_do_not(
    workplace: Workplace, tmp_path: Path
) -> None:
    (tmp_path / "patch").mkdir()
    (tmp_path / "patch" / "sitecustomize.py").write_text(PATCH)
    supplies = battery(tmp_path, "Discharging")
    workplace.environment |= {"PYTHONPATH": str(tmp_path / "patch"), "DICE_TEST_SUPPLIES": str(supplies)}
    await workplace.start_engine(cores=[FAST], verdicts=VERDICTS)
    client = await workplace.client(options={"trusted": True, "searchOnSave": True})
    uri = client.open(workplace.workspace / "a.cu", SAXPY, "cuda")
    await client.lenses(uri)
    save(client, uri)
    at = client.position(uri, CURSOR)
    client.change(uri, [{"range": {"start": at, "end": at}, "newText": "/**/ "}])
    save(client, uri)
    await client.wait(lambda: "the power plug" in waits(client))
    assert not workplace.requests()
    battery(tmp_path, "Charging")
    await workplace.until_requested("generate")
    await client.wait(lambda: client.messages())
    battery(tmp_path, "Discharging")
    await client.command((await client.actions(uri, CURSOR))[-1]["command"])
    await client.wait(lambda: len([one for one in workplace.requests() if one["type"] == "generate"]) == 2)

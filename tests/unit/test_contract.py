"""The list of commands is one: in the contract, in the documentation and in the running server."""

from __future__ import annotations

import re
from pathlib import Path

from dice_ls.contract import COMMANDS
from dice_ls.server import create_server

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"


def test_the_documentation_lists_the_commands() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("## Commands")[2].partition("\n- ")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert [name for cell in cells for name in re.findall(r"`(dice\.\w+)`", cell)] == [
        one.command for one in COMMANDS
    ]


def test_the_server_knows_exactly_these_commands() -> None:
    assert set(create_server().protocol.fm.commands) == {one.command for one in COMMANDS}

"""LSP types that are built late are the ones that lsprotocol defines."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

_DESCRIBED = """
import json, sys
if sys.argv[1] == "late":
    from dice_ls import lazy_types
    lazy_types.load()
import attrs
from lsprotocol import converters, types
converter = converters.get_converter()
found = {
    name: [(one.name, str(one.type), repr(one.default), one.validator is None) for one in attrs.fields(kind)]
    for name, kind in types.ALL_TYPES_MAP.items()
    if isinstance(kind, type) and attrs.has(kind)
}
sent = {"title": "t", "kind": "quickfix", "disabled": {"reason": "r"}, "data": [1]}
action = converter.structure(sent, types.CodeAction)
place = types.Range(types.Position(1, 2), types.Position(3, 4))
try:
    types.Position(-1, "x")
    refused = ""
except Exception as error:
    refused = f"{type(error).__name__}: {error}"
print(json.dumps({
    "fields": found,
    "action": converter.unstructure(action),
    "words": [repr(place), place == types.Range(types.Position(1, 2), types.Position(3, 4))],
    "refused": refused,
}))
"""


def _described(when: str) -> dict[str, Any]:
    run = subprocess.run([sys.executable, "-c", _DESCRIBED, when], capture_output=True, check=True)
    return json.loads(run.stdout)


def test_late_types_are_the_same() -> None:
    late, early = _described("late"), _described("early")
    assert len(early["fields"]) > 500 and early["refused"]
    assert late == early


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_server_starts_in_less_time_than_its_library_alone() -> None:
    """CPU time, and the best of three: what else the machine does must not matter."""
    server = "from dice_ls.server import create_server; create_server()"
    library = "from pygls.lsp.server import LanguageServer; LanguageServer('a', '1')"
    assert min(_cpu(server) for _ in range(3)) < 0.8 * min(_cpu(library) for _ in range(3))


def _cpu(program: str) -> float:
    told = f"{program}\nimport time\nprint(time.process_time())"
    run = subprocess.run([sys.executable, "-c", told], capture_output=True, check=True)
    return float(run.stdout)

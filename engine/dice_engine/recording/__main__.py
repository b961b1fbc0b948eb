"""``dice record -- COMMAND``: run the user's own program and keep what it computed in ``.dice/recorded.json``."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from dice_engine.arguments import Arguments

_INJECT = Path(__file__).parent / "inject"


def main(argv: list[str]) -> int:
    """The program's own exit code; 1 when it used no torch, 2 for bad use."""
    parser = Arguments(
        prog="dice record",
        description="Run your program (after --) and record the shapes, types and time share of its torch "
        "operations and modules in .dice/recorded.json. Editors and dice holes then use the shapes as plans.",
    )
    parser.add_argument("command", nargs="+", metavar="-- COMMAND", help="the program, as you would start it")
    command = parser.parse_args(argv).command
    root = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="dice-record-") as folder:
        path = os.pathsep.join([str(_INJECT), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {
            **os.environ,
            "PYTHONPATH": path,
            "DICE_RECORD_FOLDER": folder,
            "DICE_RECORD_ROOT": str(root),
        }
        started = time.monotonic()
        try:
            code = subprocess.run(command, env=environment, check=False).returncode
        except OSError as error:
            print(f"dice record: cannot run {command[0]}: {error.strerror}", file=sys.stderr)
            return 2
        seconds = time.monotonic() - started
        reports = [
            json.loads(file.read_text(encoding="utf-8")) for file in sorted(Path(folder).glob("*.json"))
        ]
    if not reports:
        print(
            "dice record: the program called no torch function from files under this folder", file=sys.stderr
        )
        return code or 1
    recorded = merged(reports)
    recorded |= {"command": command, "seconds": round(seconds, 3)}
    target = root / ".dice" / "recorded.json"
    partial = target.with_suffix(".tmp")
    try:
        target.parent.mkdir(exist_ok=True)
        partial.write_text(json.dumps(recorded, indent=1), encoding="utf-8")
        partial.replace(target)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        print(f"dice record: cannot write {target}: {error.strerror}", file=sys.stderr)
        return 2
    hottest = recorded["ops"][0] if recorded["ops"] else None
    what = f"; hottest: {hottest['op']}, {hottest['share']:.0%}" if hottest else ""
    print(
        f"dice record: {len(recorded['modules'])} modules, {len(recorded['functions'])} functions, "
        f"{len(recorded['ops'])} operations in {target}{what}",
        file=sys.stderr,
    )
    return code if code >= 0 else 128 - code


def merged(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """The reports of all processes as one: equal entries added up, each with its share of the operations' time."""
    result: dict[str, Any] = {
        "version": 1,
        "when": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "device": next((r["device"] for r in reports if r["device"] != "cpu"), "cpu"),
    }
    total = sum(entry["seconds"] for report in reports for entry in report["ops"]) or 1.0
    for kind in ("ops", "modules", "functions"):
        found: dict[str, dict[str, Any]] = {}
        for entry in (entry for report in reports for entry in report[kind]):
            key = json.dumps(
                {name: value for name, value in entry.items() if name not in ("calls", "seconds")}
            )
            known = found.setdefault(key, {**entry, "calls": 0, "seconds": 0.0})
            known["calls"] += entry["calls"]
            known["seconds"] += entry["seconds"]
        ordered = sorted(found.values(), key=lambda entry: -entry["seconds"])
        result[kind] = [
            {
                **entry,
                "seconds": round(entry["seconds"], 6),
                "share": round(min(1.0, entry["seconds"] / total), 4),
            }
            for entry in ordered
        ]
    return result


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

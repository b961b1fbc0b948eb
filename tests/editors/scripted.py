"""The scripted engine of the LSP tests, for editors: candidates and verdicts for the kernels of ``samples.py``.

``python scripted.py FOLDER`` serves at the user's address. ``FOLDER/hold`` makes decoding wait; ``FOLDER/pid`` names
the process, so that an editor's test can kill it; ``FOLDER/requests.jsonl`` is what arrived.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from dataclasses import replace

from dice_engine import wire
from samples import GHOSTS, SCRIPT
from scripted_engine import ScriptedEngine


class EditorEngine(ScriptedEngine):
    """Verdicts for files of either line end; ghost text where the beginning of a core is given."""

    async def generate(self, request: wire.GenerateRequest, writer: asyncio.StreamWriter) -> None:
        if not request.begin:
            return await super().generate(request, writer)
        for index, core in enumerate(GHOSTS[: request.n]):
            event = wire.CandidateEvent(request.id, index, core, [1], [0], True, 0.1)
            writer.write(wire.encode(event))
        writer.write(wire.encode(wire.Done(request.id)))

    def verify(self, request: wire.VerifyRequest, writer: asyncio.StreamWriter) -> None:
        super().verify(replace(request, candidate=request.candidate.replace("\r\n", "\n")), writer)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    (folder / "pid").write_text(str(os.getpid()), encoding="utf-8")
    script = folder / "script.json"
    script.write_text(json.dumps(SCRIPT), encoding="utf-8")
    asyncio.run(EditorEngine(script).serve())

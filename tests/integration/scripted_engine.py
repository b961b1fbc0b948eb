"""An engine process for tests: the real socket and wire protocol, with answers from a script instead of a model.

``python scripted_engine.py SCRIPT.json`` serves at the usual address (``DICE_RUNTIME_DIR``). The script gives
``cores`` (the candidates), ``verdicts`` (by core) and how many blocks each core takes; every request that arrives is
appended to ``requests.jsonl`` beside the script. While a file ``hold`` exists there, decoding waits.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from dice_engine import NANO, wire
from dice_engine.model.tokenizer import DiceTokenizer
from dice_engine.runtime import prepare_dir, socket_path
from dice_engine.verify.verdict import BuildInfo, Verdict

DEVICE = "NVIDIA H200"


class ScriptedEngine:
    def __init__(self, script: Path) -> None:
        self.folder = script.parent
        self.tokenizer = DiceTokenizer.load(NANO)
        self.script: dict[str, Any] = json.loads(script.read_text(encoding="utf-8"))

    def log(self, **what: Any) -> None:
        with (self.folder / "requests.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(what) + "\n")

    async def serve(self) -> None:
        prepare_dir()
        path = socket_path()
        path.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(self.client, path)
        (self.folder / "ready").touch()
        async with server:
            await server.serve_forever()

    async def client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello = await wire.read(reader)
        assert isinstance(hello, wire.Hello)
        writer.write(wire.encode(wire.Welcome(wire.PROTOCOL, os.getpid(), "scripted")))
        running: dict[str, asyncio.Task[None]] = {}
        try:
            while (message := await wire.read(reader)) is not None:
                self.answer(message, writer, running)
        except OSError:
            pass
        finally:
            self.log(type="gone")
            for task in running.values():
                task.cancel()
            writer.close()

    def answer(
        self, message: wire.Message, writer: asyncio.StreamWriter, running: dict[str, asyncio.Task[None]]
    ) -> None:
        if isinstance(message, wire.GenerateRequest):
            self.log(
                type="generate",
                kind=message.kind,
                reference=message.reference,
                n=message.n,
                checkpoint=message.checkpoint,
                begin=message.begin,
                priority=message.priority,
                max_new_tokens=message.max_new_tokens,
            )
            running[message.id] = asyncio.ensure_future(self.generate(message, writer))
        elif isinstance(message, wire.VerifyRequest):
            self.log(
                type="verify",
                kernel=message.kernel,
                original=message.original,
                candidate=message.candidate,
            )
            self.verify(message, writer)
        elif isinstance(message, wire.CancelRequest):
            self.log(type="cancel")
            if task := running.pop(message.id, None):
                task.cancel()
                writer.write(wire.encode(wire.Done(message.id, cancelled=True)))
        elif isinstance(message, wire.StatusRequest):
            writer.write(wire.encode(wire.Status(message.id, os.getpid(), "scripted", DEVICE)))
        elif isinstance(message, wire.ShutdownRequest):
            self.log(type="shutdown")
            os._exit(0)

    async def generate(self, request: wire.GenerateRequest, writer: asyncio.StreamWriter) -> None:
        if error := self.script.get("error"):
            writer.write(wire.encode(wire.Error(request.id, error)))
            return
        cores = self.script["cores"][: request.n]
        for index, core in enumerate(cores):
            tokens = self.tokenizer.encode(core)
            for end in (0, *range(4, len(tokens), 4), len(tokens)):
                progress = wire.Progress(request.id, index, end, index, len(cores))
                writer.write(wire.encode(progress))
            steps = [place % 3 for place in range(len(tokens))]
            event = wire.CandidateEvent(request.id, index, core, tokens, steps, True, 0.1)
            writer.write(wire.encode(event))
            await writer.drain()
            while (self.folder / "hold").exists():
                await asyncio.sleep(0.01)
        writer.write(wire.encode(wire.Done(request.id)))

    def verify(self, request: wire.VerifyRequest, writer: asyncio.StreamWriter) -> None:
        """The scripted verdict of the core that the candidate holds; the longest one that is in it."""
        held = [core for core in self.script["verdicts"] if self.encoded(core) in request.candidate]
        if not held:
            writer.write(wire.encode(wire.Error(request.id, "no scripted verdict for this candidate")))
            return
        data = self.script["verdicts"][max(held, key=len)]
        verdict = Verdict(**{"device": DEVICE, "trials": 5, "build": BuildInfo("nvrtc"), **data})
        writer.write(wire.encode(wire.VerdictEvent(request.id, verdict)))

    def encoded(self, core: str) -> str:
        return core.replace("\n", self.script.get("newline", "\n"))


if __name__ == "__main__":
    asyncio.run(ScriptedEngine(Path(sys.argv[1])).serve())

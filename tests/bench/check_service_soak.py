"""Many requests of mixed sizes to one engine process: nothing may be lost, and its memory must stay flat.

    python tests/bench/check_service_soak.py [--requests 2000] [--checkpoint FOLDER] [--device cpu|cuda]

Four clients; a tenth of the requests is cancelled, and one in fifty is malformed: it ends its connection, and the
client connects again. Exit code 1 when a reply is lost, or memory grows by more than a tenth over the second half.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from dice_engine import wire
from dice_engine.client import EngineClient, EngineError

CLIENTS = 4
IN_FLIGHT = 4
BODY = "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) out[i] = 2.0f * x[i];\n"


@dataclass
class Soak:
    checkpoint: str | None
    device: wire.Device
    left: int
    ends: Counter[str] = field(default_factory=Counter)
    memory: list[tuple[int, int]] = field(default_factory=list)
    """(resident bytes, GPU bytes) of the engine, a hundred times over the run."""

    async def run(self) -> bool:
        total, watcher = self.left, await EngineClient.connect()
        clients = [asyncio.ensure_future(self._client(number)) for number in range(CLIENTS)]
        every = max(1, total // 100)
        while not all(client.done() for client in clients):
            if total - self.left >= every * len(self.memory):
                status = await watcher.status()
                self.memory.append((resident(status.pid), status.gpu_bytes))
            await asyncio.sleep(0.02)
        await asyncio.gather(*clients)
        status = await watcher.status()
        await watcher.shutdown()
        half = self.memory[len(self.memory) // 2 :]
        grown = [max(now, 1) / max(then, 1) for then, now in zip(half[0], half[-1], strict=True)]
        print(
            json.dumps(
                {
                    "requests": total,
                    "ends": dict(self.ends),
                    "still_active": status.active,
                    "resident_mb": [
                        round(rss / 1e6) for rss, _ in self.memory[:: max(1, len(self.memory) // 8)]
                    ],
                    "gpu_mb": [round(gpu / 1e6) for _, gpu in self.memory[:: max(1, len(self.memory) // 8)]],
                }
            )
        )
        answered = sum(count for end, count in self.ends.items() if end != "lost")
        return answered == total and not status.active and max(grown) < 1.1

    async def _client(self, number: int) -> None:
        chance = random.Random(number)
        while self.left > 0:
            client = await EngineClient.connect()
            alive = True
            while alive and self.left > 0:
                group = min(IN_FLIGHT, self.left)
                self.left -= group
                if chance.random() < 0.02 * IN_FLIGHT:
                    # One malformed message ends the connection; the others of the group go first.
                    await asyncio.gather(*(self._request(client, chance) for _ in range(group - 1)))
                    client._writer.write(b"\x00\x00\x00\x03bad")
                    with contextlib.suppress(EngineError):
                        await asyncio.wait_for(client.status(), 60)
                    self.ends["malformed"] += 1
                    alive = False
                else:
                    await asyncio.gather(*(self._request(client, chance) for _ in range(group)))
            await client.close()

    async def _request(self, client: EngineClient, chance: random.Random) -> None:
        id = client.new_id()
        request = wire.GenerateRequest(
            id,
            "kernel_body",
            "// a line\n" * chance.randrange(12) + "__global__ void k(const float* x, float* out, int n) {\n",
            "}\n",
            BODY,
            n=chance.choice((1, 2, 4, 8)),
            seed=chance.randrange(1000),
            max_new_tokens=chance.choice((4, 16, 40)),
            checkpoint=self.checkpoint,
            device=self.device,
            priority=chance.randrange(2),
        )
        try:
            end = await asyncio.wait_for(decode(client, request, cancel=chance.random() < 0.1), 300)
        except (EngineError, asyncio.TimeoutError) as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            end = "lost"
        self.ends[end] += 1


async def decode(client: EngineClient, request: wire.GenerateRequest, cancel: bool) -> str:
    """How the request ended; ``cancel`` it at its first event."""
    seen = 0
    async for event in client.generate(request):
        seen += isinstance(event, wire.CandidateEvent)
        if cancel:
            cancel = False
            await client.cancel(request.id)
        if isinstance(event, wire.Done):
            return "cancelled" if event.cancelled else "done" if seen == request.n else "lost"
    return "lost"


def resident(pid: int) -> int:
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--checkpoint")
    parser.add_argument("--device", choices=("cpu", "cuda", "auto"), default="auto")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DICE_RUNTIME_DIR"] = folder
        good = asyncio.run(Soak(options.checkpoint, options.device, options.requests).run())
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

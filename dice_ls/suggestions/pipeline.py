"""One request from hole to verdicts, for the editor and ``dice suggest``: candidates are judged as they arrive."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from importlib.util import find_spec

from dice_engine.client import EngineClient, EngineError
from dice_engine.source.python_string import LiteralError
from dice_engine.verify.verdict import Verdict
from dice_engine.wire import CandidateEvent, Progress

from dice_ls.suggestions.requests import NotCheckable, Request
from dice_ls.suggestions.store import Candidate, Record, Trace, squeezed
from dice_ls.suggestions.turns import Turns

_AT_ONCE = 2

__all__ = ["EngineClient", "EngineError", "NotCheckable", "Request", "connect", "suggest"]


async def connect() -> EngineClient:
    """A connection to the user's engine, started when none runs.

    Raises:
        EngineError: one line that says what is wrong and what to do.
    """
    try:
        return await EngineClient.connect(start=False)
    except EngineError:
        if find_spec("torch") is None:
            raise EngineError("the engine is not installed: pip install 'dice-ls[engine]'") from None
    return await EngineClient.connect()


async def suggest(client: EngineClient, request: Request, record: Record) -> AsyncGenerator[None]:
    """Fill ``record`` with candidates and verdicts; yields after each change. Cancelling it stops the engine's work.

    Raises:
        NotCheckable: nothing in the file can be run to compare candidates.
        EngineError: the engine refused, failed or died.
    """
    request.check()
    search = _Search(client, request, record)
    work = asyncio.ensure_future(search.run())
    work.add_done_callback(lambda _: search.news.set())
    try:
        while not work.done():
            await search.news.wait()
            search.news.clear()
            yield
        await work
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


class _Search:
    """Decoding and judging of one request, at the same time; at most two candidates are judged at once."""

    def __init__(self, client: EngineClient, request: Request, record: Record) -> None:
        self.news = asyncio.Event()
        self._client = client
        self._request = request
        self._record = record
        self._turns = Turns(_AT_ONCE)
        self._verdicts: dict[str, asyncio.Task[Verdict]] = {}
        """By the candidate's text without its spacing: the same code is judged once."""

    async def run(self) -> None:
        record, judging = self._record, []
        record.state, record.expected = "decoding", self._request.candidates
        self.news.set()
        try:
            # Long files take tens of milliseconds to cut and to write anew: not in the event loop.
            asking = await asyncio.to_thread(self._request.generate)
            async with aclosing(self._client.generate(asking)) as events:
                async for event in events:
                    if isinstance(event, Progress):
                        record.tokens[event.candidate] = event.tokens
                        if event.tokens:
                            record.ends.setdefault(event.candidate, []).append(event.tokens)
                        record.decoded = event.finished
                    elif isinstance(event, CandidateEvent):
                        trace = Trace(
                            tuple(event.tokens),
                            tuple(event.step_map),
                            tuple(record.ends.get(event.index, ())),
                        )
                        record.candidates[event.index] = Candidate(event.index, event.core, trace=trace)
                        judging.append(asyncio.ensure_future(self._judge(event)))
                    self.news.set()
            record.state = "checking"
            self.news.set()
            await asyncio.gather(*judging)
        finally:
            tasks = [*judging, *self._verdicts.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _judge(self, event: CandidateEvent) -> None:
        started = time.monotonic()
        text = squeezed(event.core)
        if text == squeezed(self._request.hole.core):
            verdict = Verdict("no_gain", rule="identical", reason="it is the original code")
        elif not event.complete:
            verdict = Verdict(
                "build_error", rule="cut", reason="cut at the length limit, not a whole program"
            )
        else:
            if text not in self._verdicts:
                self._verdicts[text] = asyncio.ensure_future(self._verify(event.core, event.index))
            verdict = await asyncio.shield(self._verdicts[text])
        seconds = time.monotonic() - started
        decoded = self._record.candidates[event.index]
        self._record.candidates[event.index] = replace(decoded, verdict=verdict, seconds=seconds)
        self.news.set()

    async def _verify(self, core: str, index: int) -> Verdict:
        """The engine's verdict. A failure of the machinery is no fault of the candidate; a dead engine ends it all."""
        # The engine numbers candidates by what its model likes most.
        async with self._turns.wait(index):
            try:
                return await self._client.verify(await asyncio.to_thread(self._request.verify, core))
            except LiteralError as error:
                return Verdict("build_error", rule="literal", reason=str(error))
            except EngineError as error:
                if not self._client.connected:
                    raise
                return Verdict("infra_error", reason=str(error))

"""The real engine process, over its real socket."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from dice_engine import wire
from dice_engine.client import EngineClient, EngineError
from dice_engine.devices import gpu_name
from dice_engine.verify_pool import VerifyPool
from safetensors.torch import load_file, save_file

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="speaks to the Unix socket directly")


def serve(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dice_engine.service", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A runtime folder of our own; whatever engine the tests started there is ended."""
    folder = tmp_path_factory.mktemp("rt")
    folder.rmdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DICE_RUNTIME_DIR", str(folder))
        patch.setenv("OMP_NUM_THREADS", "1")  # the model is tiny: threads only cost
        yield folder
        serve("--stop")


@pytest_asyncio.fixture
async def client(runtime: Path) -> AsyncIterator[EngineClient]:
    client = await EngineClient.connect()
    yield client
    await client.close()


@pytest.fixture
def request_(tiny_checkpoint: Path) -> wire.GenerateRequest:
    return wire.GenerateRequest(
        "",
        "kernel_body",
        "void k() {",
        "}",
        "x = 1;",
        n=3,
        max_new_tokens=24,
        checkpoint=str(tiny_checkpoint),
    )


def long(request: wire.GenerateRequest, **changes: Any) -> wire.GenerateRequest:
    return wire.GenerateRequest(
        **{**request.__dict__, "n": 8, "max_new_tokens": 400, "temperature": 5.0, **changes}
    )


async def collect(client: EngineClient, request: wire.GenerateRequest) -> list[wire.Event]:
    return [event async for event in client.generate(request)]


@pytest.mark.asyncio
async def test_generate_gives_what_the_engine_gives(
    client: EngineClient, request_: wire.GenerateRequest
) -> None:
    events = await collect(client, request_)
    assert isinstance(events[-1], wire.Done) and not events[-1].cancelled
    found = sorted((e for e in events if isinstance(e, wire.CandidateEvent)), key=lambda e: e.index)
    assert [e.index for e in found] == [0, 1, 2]
    assert any(isinstance(e, wire.Progress) and e.finished < 3 for e in events)
    from dice_engine.engine import Engine
    from dice_engine.prompts import CoreRequest

    engine = Engine.load(request_.checkpoint, "cpu")
    core_request = CoreRequest("kernel_body", request_.prefix, request_.suffix, request_.reference)
    direct = engine.candidates(core_request, 3, 0, max_new_tokens=24)
    assert [e.tokens for e in found] == [c.tokens for c in direct]
    assert [e.core for e in found] == [c.core for c in direct]
    status = await client.status()
    assert status.models == [request_.checkpoint] and status.clients >= 1 and status.pid == client.pid
    if gpu_name() is None:
        await collect(client, replace(request_, id="", device="auto"))
        assert (await client.status()).models == [request_.checkpoint], "auto and cpu are one model here"


@pytest.mark.asyncio
async def test_requests_of_one_client_run_side_by_side(
    client: EngineClient, request_: wire.GenerateRequest
) -> None:
    alone = await collect(client, request_)
    together = await asyncio.gather(*(collect(client, request_) for _ in range(3)))
    tokens = [
        {e.index: e.tokens for e in events if isinstance(e, wire.CandidateEvent)}
        for events in (alone, *together)
    ]
    assert all(t == tokens[0] for t in tokens)


@pytest.mark.asyncio
async def test_a_trace_is_streamed_on_request(client: EngineClient, request_: wire.GenerateRequest) -> None:
    plain = [e for e in await collect(client, request_) if isinstance(e, wire.Progress)]
    assert not any(e.new or e.steps for e in plain)
    events = await collect(client, replace(request_, trace=True))
    for candidate in (e for e in events if isinstance(e, wire.CandidateEvent)):
        mine = [e for e in events if isinstance(e, wire.Progress) and e.candidate == candidate.index]
        assert [t for e in mine for t in e.new] == candidate.tokens
        assert [s for e in mine for s in e.steps] == candidate.step_map


@pytest.mark.asyncio
async def test_a_checkpoint_that_changes_is_loaded_anew(
    client: EngineClient, request_: wire.GenerateRequest, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    """Sharded; in the middle of a change the old one serves on."""
    folder = tmp_path / "changing"
    shutil.copytree(tiny_checkpoint, folder)
    state = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    shards = {"a.safetensors": sorted(state)[::2], "b.safetensors": sorted(state)[1::2]}
    for file, names in shards.items():
        save_file({name: state[name] for name in names}, folder / file)
    index = {"weight_map": {name: file for file, names in shards.items() for name in names}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    async def tokens() -> list[list[int]]:
        events = await collect(client, replace(request_, checkpoint=str(folder)))
        return [e.tokens for e in sorted_candidates(events)]

    first = await tokens()
    assert first == [e.tokens for e in sorted_candidates(await collect(client, request_))]
    whole = (folder / "b.safetensors").read_bytes()
    (folder / "b.safetensors").write_bytes(whole[: len(whole) // 2])
    assert await tokens() == first
    save_file({name: -state[name] for name in shards["b.safetensors"]}, folder / "b.safetensors")
    assert await tokens() != first


def sorted_candidates(events: list[wire.Event]) -> list[wire.CandidateEvent]:
    return sorted((e for e in events if isinstance(e, wire.CandidateEvent)), key=lambda e: e.index)


@pytest.mark.asyncio
async def test_cancel_and_leaving_early(client: EngineClient, request_: wire.GenerateRequest) -> None:
    request = long(request_, id="mine")
    seen: list[wire.Event] = []
    async for event in client.generate(request):
        seen.append(event)
        if len(seen) == 1:
            await client.cancel("mine")
    assert seen[-1] == wire.Done("mine", cancelled=True)
    async for _ in client.generate(request):
        break
    for _ in range(200):
        if (await client.status()).active == 0:
            break
        await asyncio.sleep(0.02)
    else:
        pytest.fail("the request that was left goes on")


@pytest.mark.asyncio
async def test_higher_priority_goes_first(client: EngineClient, request_: wire.GenerateRequest) -> None:
    order: list[str] = []

    async def run(name: str, request: wire.GenerateRequest) -> None:
        async for _ in client.generate(request):
            pass
        order.append(name)

    slow = asyncio.ensure_future(run("slow", long(request_)))
    await asyncio.sleep(0.1)
    await run("urgent", wire.GenerateRequest(**{**request_.__dict__, "priority": 5}))
    await slow
    assert order == ["urgent", "slow"]


@pytest.mark.asyncio
async def test_a_client_that_disappears_cancels_its_work(
    runtime: Path, request_: wire.GenerateRequest
) -> None:
    gone, other = await EngineClient.connect(), await EngineClient.connect()
    stream = gone.generate(long(request_, max_new_tokens=450))
    await anext(stream)
    gone._writer.transport.abort()
    status = None
    for _ in range(200):
        status = await other.status()
        if status.active == 0 and status.clients == 1:
            break
        await asyncio.sleep(0.02)
    else:
        pytest.fail(f"its work goes on: {status}")
    with pytest.raises(EngineError):
        while True:
            await anext(stream)
    await other.close()


@pytest.mark.asyncio
async def test_errors_of_a_request_leave_the_connection(
    client: EngineClient, request_: wire.GenerateRequest
) -> None:
    with pytest.raises(EngineError, match="no such checkpoint folder"):
        await collect(client, long(request_, checkpoint="/nowhere"))
    with pytest.raises(EngineError, match="tokens long, the model's context"):
        await collect(client, long(request_, reference="x = 1; " * 500))
    with pytest.raises(EngineError, match="n must be at least 1"):
        await collect(client, long(request_, n=0))
    assert isinstance((await collect(client, request_))[-1], wire.Done)


HELLO = wire.encode(wire.Hello(wire.PROTOCOL))
BAD = {
    "not msgpack": HELLO + b"\0\0\0\4\xc1\xc1\xc1\xc1",
    "oversized": HELLO + b"\xff\xff\xff\xff" + b"x" * 1000,
    "another protocol": b"GET / HTTP/1.1\r\n\r\n",
    "no hello": wire.encode(wire.StatusRequest("1")),
    "wrong version": wire.encode(wire.Hello(99)),
    "wrong token": wire.encode(wire.Hello(wire.PROTOCOL, "guess")),
    "an event": HELLO + wire.encode(wire.Done("1")),
    "cut frame": HELLO + wire.encode(wire.StatusRequest("1"))[:-1],
    "unknown field": HELLO + wire.pack_frame({"type": "status", "id": "1", "x": 1}),
}


@pytest.mark.asyncio
@pytest.mark.parametrize("name", BAD)
async def test_bad_frames_end_their_connection_with_one_error(
    name: str, client: EngineClient, runtime: Path, request_: wire.GenerateRequest
) -> None:
    other = asyncio.ensure_future(collect(client, request_))
    reader, writer = await asyncio.open_unix_connection(runtime / "engine.sock")
    writer.write(BAD[name])
    with contextlib.suppress(OSError):
        writer.write_eof()
    answers = []
    while (message := await asyncio.wait_for(wire.read(reader), 10)) is not None:
        answers.append(message)
    writer.close()
    assert [type(a) for a in answers if not isinstance(a, wire.Welcome)] == [wire.Error]
    assert answers[-1].id == "" and "\n" not in answers[-1].message
    if name == "wrong version":
        assert "protocol 99" in answers[-1].message and "dice serve --stop" in answers[-1].message
    assert isinstance((await other)[-1], wire.Done)


def test_socket_is_this_users_only(runtime: Path) -> None:
    async def touch() -> None:
        await (await EngineClient.connect()).close()

    asyncio.run(touch())
    assert stat.S_IMODE(runtime.stat().st_mode) == 0o700
    assert stat.S_IMODE((runtime / "engine.sock").stat().st_mode) == 0o600


def test_status_and_stop_commands(runtime: Path) -> None:
    async def two_at_once() -> tuple[int, int]:
        first, second = await asyncio.gather(EngineClient.connect(), EngineClient.connect())
        await first.close()
        await second.close()
        return first.pid, second.pid

    serve("--stop")
    refused = serve("--status")
    assert refused.returncode == 1 and "no engine is running" in refused.stderr
    first, second = asyncio.run(two_at_once())
    assert first == second, "two editors that start at once share one engine"
    report = json.loads(serve("--status", "--json").stdout)
    assert report["running"] and report["pid"] == first
    again = serve()
    assert again.returncode == 0 and "runs already" in again.stderr
    assert "has ended" in serve("--stop").stdout
    assert not (runtime / "engine.sock").exists()


@pytest.mark.asyncio
async def test_a_dead_engine_is_said_and_started_again(runtime: Path, request_: wire.GenerateRequest) -> None:
    client = await EngineClient.connect()
    stream = client.generate(long(request_, max_new_tokens=450))
    await anext(stream)
    os.kill(client.pid, signal.SIGKILL)
    with pytest.raises(EngineError, match="the next request starts it again"):
        while True:
            await anext(stream)
    assert not client.connected
    again = await EngineClient.connect()
    assert again.pid != client.pid and isinstance((await collect(again, request_))[-1], wire.Done)
    await again.close()


def test_idle_engine_unloads_and_then_ends(tmp_path: Path, tiny_checkpoint: Path) -> None:
    environment = {**os.environ, "DICE_RUNTIME_DIR": str(tmp_path / "r")}
    command = [sys.executable, "-m", "dice_engine.service", "--idle-seconds", "1", "--exit-when-idle"]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        _, log = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0 and "the engine ends" in log
    assert not (tmp_path / "r" / "engine.sock").exists()


def test_unusable_runtime_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DICE_RUNTIME_DIR", str(tmp_path / "file" / "x"))
    with pytest.raises(EngineError, match="set DICE_RUNTIME_DIR"):
        asyncio.run(EngineClient.connect())
    monkeypatch.setenv("DICE_RUNTIME_DIR", str(tmp_path / ("long" * 30)))
    with pytest.raises(EngineError, match="too long for a socket"):
        asyncio.run(EngineClient.connect())


# Verification: the children that do it


def child(tmp_path: Path, body: str) -> tuple[str, ...]:
    """A verify child that runs ``body`` for each request instead of verifying."""
    script = tmp_path / "child.py"
    script.write_text(
        "import os, sys, time\n"
        "from dice_engine import wire\n"
        "from dice_engine.verify.verdict import Verdict\n"
        "def answer(id, verdict):\n"
        "    os.write(1, wire.encode(wire.VerdictEvent(id, verdict)))\n"
        "while header := sys.stdin.buffer.read(4):\n"
        "    request = wire.decode(sys.stdin.buffer.read(wire.body_length(header)))\n" + body
    )
    return (sys.executable, str(script))


REQUEST = wire.VerifyRequest("1", "original", "candidate")


@pytest.mark.asyncio
async def test_a_verify_child_is_kept_for_the_next_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = "    answer(request.id, Verdict('no_gain', reason=str(os.getpid())))\n"
    monkeypatch.setattr("dice_engine.verify_pool.COMMAND", child(tmp_path, body))
    pool = VerifyPool("cpu")
    first, second = await pool.verify(REQUEST), await pool.verify(REQUEST)
    assert first.verdict == "no_gain" and first.reason == second.reason
    await pool.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int(first.reason), 0)


@pytest.mark.asyncio
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="reads /proc")
async def test_one_child_is_warmed_and_ended() -> None:
    def children() -> set[str]:
        found = Path("/proc").glob(f"{os.getpid()}/task/*/children")
        return {pid for path in found for pid in path.read_text().split()}

    before = children()
    pool = VerifyPool("cpu")
    pool.warm()
    pool.warm()
    await asyncio.sleep(0.3)
    pool.warm()
    await asyncio.sleep(0.3)
    assert len(children() - before) == 1
    await pool.close()
    assert not children() - before


@pytest.mark.asyncio
async def test_a_verify_child_that_dies_is_our_fault_and_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = "    os.kill(os.getpid(), 9) if request.candidate == 'bad' else answer(request.id, Verdict('no_gain'))\n"
    monkeypatch.setattr("dice_engine.verify_pool.COMMAND", child(tmp_path, body))
    pool = VerifyPool("cpu")
    bad = await pool.verify(wire.VerifyRequest("2", "original", "bad"))
    assert bad.verdict == "infra_error" and "signal 9" in bad.reason
    assert (await pool.verify(REQUEST)).verdict == "no_gain"
    await pool.close()


@pytest.mark.asyncio
async def test_a_verify_child_that_hangs_or_is_cancelled_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = f"    open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)\n"
    monkeypatch.setattr("dice_engine.verify_pool.COMMAND", child(tmp_path, body))
    monkeypatch.setattr("dice_engine.verify_pool.ANSWER_TIMEOUT", 2.0)
    pool = VerifyPool("cpu")
    stuck = await pool.verify(REQUEST)
    assert stuck.verdict == "infra_error" and "no answer" in stuck.reason
    (tmp_path / "pid").unlink()
    task = asyncio.ensure_future(pool.verify(REQUEST))
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    start = time.monotonic()
    await pool.close()
    assert time.monotonic() - start < 5
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


ORIGINAL = """\
__global__ void twice(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { y[i] = x[i] + x[i]; }
}
void run(const float* x, float* y, int n) { twice<<<(n + 255) / 256, 256>>>(x, y, n); }
"""


@pytest.mark.asyncio
@pytest.mark.skipif(shutil.which("g++") is None, reason="the CPU backend needs g++")
async def test_verify_over_the_socket(client: EngineClient) -> None:
    pytest.importorskip("dice_engine.verify.session")
    request = wire.VerifyRequest(
        "", ORIGINAL, ORIGINAL.replace("x[i] + x[i]", "2.0f * x[i]"), "twice", device="cpu"
    )
    verdict = await client.verify(request)
    assert verdict.verdict == "correct_unmeasured", verdict
    wrong = wire.VerifyRequest(
        "", ORIGINAL, ORIGINAL.replace("x[i] + x[i]", "3.0f * x[i]"), "twice", device="cpu"
    )
    assert (await client.verify(wrong)).verdict == "mismatch"

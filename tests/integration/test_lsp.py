"""The language server as an editor sees it: the real process and protocol, a scripted engine behind the socket."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import Workplace
from lsp_client import CAPABILITIES, Client, LspError

pytestmark = pytest.mark.asyncio

SAXPY = """#include <cuda_runtime.h>

__global__ void axpb(float alpha, const float* lhs, const float* rhs, float* dst, int count) {
  int k = blockIdx.x * blockDim.x + threadIdx.x;
  if (k < count) {
    dst[k] = alpha * lhs[k] + rhs[k];
  }
}

void run_axpb(float alpha, const float* lhs, const float* rhs, float* dst, int count, cudaStream_t st) {
  const int threads = 256;
  const int blocks = (count + threads - 1) / threads;
  axpb<<<blocks, threads, 0, st>>>(alpha, lhs, rhs, dst, count);
}
"""
FAST = "\n  const int k = blockIdx.x * 256 + threadIdx.x;\n  if (k < count) dst[k] = fmaf(alpha, lhs[k], rhs[k]);\n"
WRONG = "\n  dst[0] = alpha;\n"
BROKEN = "\n  int k = ;\n"
VERIFIED = {
    "verdict": "verified",
    "speedup": 2.314,
    "speedup_low": 2.2,
    "speedup_high": 2.4,
    "reference_ms": 0.2,
    "candidate_ms": 0.0864,
}
VERDICTS = {
    FAST: VERIFIED,
    WRONG: {"verdict": "mismatch", "rule": "values", "reason": "dst differs at 3 of 1000 places"},
    BROKEN: {"verdict": "build_error", "reason": "line 5: expected an expression"},
}
CURSOR = SAXPY.index("dst[k] =")


async def searched(place: Workplace, client: Client, text: str = SAXPY, cursor: int = CURSOR) -> str:
    """Open a kernel, ask for a faster version at the cursor and wait for the end of the job; returns the URI."""
    uri = client.open(place.workspace / "a.cu", text, "cuda")
    await client.command((await client.actions(uri, cursor))[0]["command"])
    await client.wait(lambda: client.messages())
    return uri


def rewrites(actions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [action for action in actions if "edit" in action]


async def test_initialize_is_quick_and_shutdown_leaves_nothing(workplace: Workplace) -> None:
    started = time.monotonic()
    client = await workplace.client()
    assert time.monotonic() - started < 20, "0.5 s on a machine that is not busy: dice bench lsp"
    assert await client.stop() == 0
    assert not workplace.requests()


async def test_a_verified_rewrite_is_offered_and_applies_to_the_byte(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[WRONG, FAST, BROKEN], verdicts=VERDICTS)
    client = await workplace.client()
    uri = client.open(workplace.workspace / "a.cu", SAXPY, "cuda")
    assert await client.lenses(uri) == ["DICE: find faster"]
    actions = await client.actions(uri, CURSOR)
    assert [action["title"] for action in actions] == ["Find a faster version of `axpb`"]
    assert actions[0]["kind"] == "refactor.rewrite"
    await client.command(actions[0]["command"])
    await client.wait(lambda: client.messages())
    assert client.messages() == ["`axpb`: 1 of 3 candidates verified; best 2.31x on NVIDIA H200"]
    assert await client.lenses(uri) == ["DICE: 2.31x verified"]

    actions = await client.actions(uri, CURSOR)
    (action,) = rewrites(actions)
    assert action["title"] == "Rewrite `axpb`: 2.31x faster on NVIDIA H200, verified on 5 inputs"
    assert action["kind"] == "refactor.rewrite" and action["tags"] == [1] and action["isPreferred"]
    annotation = action["edit"]["changeAnnotations"]["dice"]
    assert "0.2 ms -> 0.0864 ms" in annotation["description"]
    client.apply(uri, action["edit"])
    start, end = SAXPY.index("{") + 1, SAXPY.index("}\n}") + 2
    assert client.texts[uri] == SAXPY[:start] + FAST + SAXPY[end:]
    assert await client.lenses(uri) == ["DICE: find faster (the code changed since the last search)"]
    assert not rewrites(await client.actions(uri, CURSOR))


async def test_progress_and_status_tell_what_happens(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[WRONG, FAST, BROKEN], verdicts=VERDICTS)
    assert workplace.engine is not None
    workplace.hold()
    client = await workplace.client()
    uri = client.open(workplace.workspace / "a.cu", SAXPY, "cuda")
    await client.command((await client.actions(uri, CURSOR))[0]["command"])
    await client.wait(lambda: [one for one in client.progress() if "checking 1/1" in one.get("message", "")])
    assert await client.lenses(uri) == ["DICE: checking 1/8"]
    workplace.release()
    await client.wait(lambda: [one for one in client.progress() if one["kind"] == "end"])
    values = client.progress()
    assert values[0]["kind"] == "begin" and values[0]["cancellable"]
    messages = [value.get("message", "") for value in values]
    assert messages[1:3] == ["starting the engine", "loading the model"]
    assert any(message.startswith("decoding ") and "token" in message for message in messages)
    assert "checking 3/3: 1 correct" in messages
    states = [params["state"] for name, params in client.notifications if name == "dice/status"]
    assert {"decoding", "idle"} <= set(states)
    status = await client.command({"command": "dice.status"})
    engine = {"running": True, "pid": workplace.engine.pid, "version": "scripted", "models": []}
    idle = {"state": "idle", "queue": 0, "running": "", "waiting_for": "", "message": ""}
    assert status == {**idle, "device": "NVIDIA H200", "engine": engine}
    told = [params for name, params in client.notifications if name == "dice/status"]
    assert {"the engine to start", "the model to load", ""} == {one["waiting_for"] for one in told}
    assert {one["running"] for one in told} == {"axpb", ""}
    await client.wait(lambda: any(method == "workspace/codeLens/refresh" for method, _ in client.requests))


async def test_nothing_verified_is_said_with_the_reasons(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[WRONG, BROKEN, WRONG], verdicts=VERDICTS)
    client = await workplace.client()
    uri = await searched(workplace, client)
    assert client.messages() == ["`axpb`: no verified rewrite: 2 mismatch, 1 build_error"]
    await client.wait(lambda: len(client.messages("window/logMessage")) == 2)
    assert client.messages("window/logMessage")[0] == (
        "`axpb`: 2 x mismatch (values): dst differs at 3 of 1000 places"
    )
    assert await client.lenses(uri) == ["DICE: no verified rewrite, try again"]
    assert not rewrites(await client.actions(uri, CURSOR))
    checks = [request for request in workplace.requests() if request["type"] == "verify"]
    assert len(checks) == 2, "the same candidate is judged once"


async def test_the_original_code_is_no_rewrite(workplace: Workplace) -> None:
    core = SAXPY[SAXPY.index("{") + 1 : SAXPY.index("}\n}") + 2]
    await workplace.start_engine(cores=[core + "  "], verdicts={})
    client = await workplace.client()
    uri = await searched(workplace, client)
    assert client.messages() == ["`axpb`: no verified rewrite: 1 no_gain"]
    assert not rewrites(await client.actions(uri, CURSOR))


async def test_equal_candidates_are_one_offer_and_the_menu_stays_short(workplace: Workplace) -> None:
    cores = [FAST, FAST.replace("\n", "\n\n")]
    cores += [FAST.replace("256", str(number)) for number in (32, 64, 128, 512)]
    verdicts = {core: {"verdict": "correct_unmeasured", "device": "cpu"} for core in cores}
    await workplace.start_engine(cores=cores, verdicts=verdicts)
    client = await workplace.client()
    uri = await searched(workplace, client)
    assert client.messages() == ["`axpb`: 6 of 6 candidates correct on the CPU backend, not timed"]
    offers = rewrites(await client.actions(uri, CURSOR))
    title = "Rewrite `axpb`: correct on the CPU backend, not timed (checked on 5 inputs)"
    assert [one["title"] for one in offers] == [title, f"{title}, candidate 2", f"{title}, candidate 3"]
    assert len({json.dumps(one["edit"]) for one in offers}) == 3


async def test_without_a_gpu_no_speed_is_claimed(workplace: Workplace) -> None:
    verdict = {"verdict": "correct_unmeasured", "device": "CPU backend"}
    await workplace.start_engine(cores=[FAST], verdicts={FAST: verdict})
    client = await workplace.client()
    uri = await searched(workplace, client)
    assert client.messages() == ["`axpb`: 1 of 1 candidate correct on the CPU backend, not timed"]
    assert await client.lenses(uri) == ["DICE: correct on the CPU backend, not timed"]
    (action,) = rewrites(await client.actions(uri, CURSOR))
    assert "correct on the CPU backend, not timed" in action["title"]


async def test_the_lens_applies_the_best(workplace: Workplace) -> None:
    slower = FAST.replace("256", "blockDim.x")
    verdicts = {**VERDICTS, slower: {"verdict": "verified", "speedup": 1.5}}
    await workplace.start_engine(cores=[slower, FAST], verdicts=verdicts)
    client = await workplace.client()
    uri = await searched(workplace, client)
    titles = [action["title"] for action in rewrites(await client.actions(uri, CURSOR))]
    assert ["2.31x" in titles[0], "1.50x" in titles[1]] == [True, True]
    (lens,) = await client.request("textDocument/codeLens", {"textDocument": {"uri": uri}})
    assert await client.command(lens["command"]) == {"applied": True}
    assert FAST in client.texts[uri]


async def test_cancel_reaches_the_engine(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[WRONG, FAST], verdicts=VERDICTS)
    workplace.hold()
    client = await workplace.client()
    uri = client.open(workplace.workspace / "a.cu", SAXPY, "cuda")
    await client.command((await client.actions(uri, CURSOR))[0]["command"])
    await workplace.until_requested("generate")
    await client.wait(client.progress)
    token = next(params["token"] for name, params in client.notifications if name == "$/progress")
    client.notify("window/workDoneProgress/cancel", {"token": token})
    await workplace.until_requested("cancel")
    await client.wait(lambda: [one for one in client.progress() if one["kind"] == "end"])
    assert await client.lenses(uri) == ["DICE: find faster"]
    assert client.messages() == []


async def test_an_edit_inside_while_it_runs_makes_it_stale(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[FAST], verdicts=VERDICTS)
    workplace.hold()
    client = await workplace.client()
    uri = client.open(workplace.workspace / "a.cu", SAXPY, "cuda")
    await client.command((await client.actions(uri, CURSOR))[0]["command"])
    await workplace.until_requested("verify")
    at = client.position(uri, CURSOR)
    client.change(uri, [{"range": {"start": at, "end": at}, "newText": "/* mine */ "}])
    await workplace.until_requested("cancel")
    workplace.release()
    await client.wait(lambda: client.messages("window/logMessage"))
    assert client.messages("window/logMessage") == ["`axpb`: its code was edited"]
    assert not rewrites(await client.actions(uri, CURSOR))
    assert (await client.lenses(uri))[0].startswith("DICE: find faster")


async def test_an_edit_elsewhere_moves_the_rewrite(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[FAST], verdicts=VERDICTS)
    client = await workplace.client()
    uri = await searched(workplace, client)
    origin = {"line": 0, "character": 0}
    client.change(uri, [{"range": {"start": origin, "end": origin}, "newText": "// new 😋\n\n"}])
    text = client.texts[uri]
    (action,) = rewrites(await client.actions(uri, text.index("dst[k] =")))
    annotation = action["edit"]["changeAnnotations"]["dice"]
    assert annotation["needsConfirmation"] and "changed outside this code" in annotation["description"]
    client.apply(uri, action["edit"])
    start, end = text.index("{") + 1, text.index("}\n}") + 2
    assert client.texts[uri] == text[:start] + FAST + text[end:]


async def test_nothing_reaches_the_engine_from_an_untrusted_workspace(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[FAST], verdicts=VERDICTS)
    client = await workplace.client(options={})
    client.answers["window/showMessageRequest"] = lambda _: {"title": "Do not trust"}
    uri = client.open(workplace.workspace / "a.cu", SAXPY, "cuda")
    find = (await client.actions(uri, CURSOR))[0]["command"]
    await asyncio.gather(client.command(find), client.command(find))
    await client.wait(lambda: len(client.messages()) == 2)
    assert "is not trusted" in client.messages()[1]
    asked = [method for method, _ in client.requests if method == "window/showMessageRequest"]
    assert len(asked) == 1, "it is asked once"
    assert workplace.requests() == []
    await client.command({"command": "dice.trustWorkspace"})
    await client.command((await client.actions(uri, CURSOR))[0]["command"])
    await client.wait(lambda: len(client.messages()) == 3)
    assert "verified" in client.messages()[2]
    await client.command({"command": "dice.untrustWorkspace"})
    stored = json.loads((Path(workplace.environment["XDG_DATA_HOME"]) / "dice-ls/trust.json").read_text())
    assert stored == {str(workplace.workspace): False}


async def test_trust_can_come_from_the_client_only_for_its_session(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[FAST], verdicts=VERDICTS)
    client = await workplace.client(options={"trusted": False})
    await searched(workplace, client)
    assert "is not trusted" in client.messages()[0]
    assert not [method for method, _ in client.requests if method == "window/showMessageRequest"]
    assert workplace.requests() == []


async def test_a_dead_engine_is_one_clear_message_and_the_next_request_works(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[FAST], verdicts=VERDICTS)
    workplace.hold()
    client = await workplace.client()
    uri = client.open(workplace.workspace / "a.cu", SAXPY, "cuda")
    find = (await client.actions(uri, CURSOR))[0]["command"]
    await client.command(find)
    await workplace.until_requested("generate")
    workplace.kill_engine()
    await client.wait(lambda: client.messages())
    assert client.messages() == ["`axpb`: the engine ended; the next request starts it again"]
    workplace.release()
    await workplace.start_engine(cores=[FAST], verdicts=VERDICTS)
    await client.command(find)
    await client.wait(lambda: len(client.messages()) == 2)
    assert "1 of 1 candidate verified" in client.messages()[1]


async def test_an_engine_that_refuses_is_quoted(workplace: Workplace) -> None:
    await workplace.start_engine(error="no model in /nowhere; name a folder with config.json")
    client = await workplace.client()
    await searched(workplace, client)
    assert client.messages() == ["`axpb`: no model in /nowhere; name a folder with config.json"]


async def test_cursor_moves_cost_the_engine_nothing(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[FAST], verdicts=VERDICTS)
    client = await workplace.client()
    uri = client.open(workplace.workspace / "a.cu", SAXPY, "cuda")
    for step in range(200):
        await client.actions(uri, step % len(SAXPY))
        await client.lenses(uri)
    assert workplace.requests() == []


async def test_jobs_wait_in_one_queue(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[FAST], verdicts=VERDICTS)
    workplace.hold()
    client = await workplace.client()
    uris = [client.open(workplace.workspace / f"{name}.cu", SAXPY, "cuda") for name in "ab"]
    for uri in uris:
        await client.command((await client.actions(uri, CURSOR))[0]["command"])
    await workplace.until_requested("generate")
    assert await client.lenses(uris[1]) == ["DICE: queued"]
    assert (await client.command({"command": "dice.status"}))["queue"] == 2
    workplace.release()
    await client.wait(lambda: len(client.messages()) == 2)
    assert len([one for one in workplace.requests() if one["type"] == "generate"]) == 2


async def test_closing_a_document_cancels_its_job(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[FAST], verdicts=VERDICTS)
    workplace.hold()
    client = await workplace.client()
    uri = client.open(workplace.workspace / "a.cu", SAXPY, "cuda")
    await client.command((await client.actions(uri, CURSOR))[0]["command"])
    await workplace.until_requested("generate")
    client.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
    await workplace.until_requested("cancel")


async def test_shutdown_cancels_running_jobs(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[FAST], verdicts=VERDICTS)
    workplace.hold()
    client = await workplace.client()
    uri = client.open(workplace.workspace / "a.cu", SAXPY, "cuda")
    await client.command((await client.actions(uri, CURSOR))[0]["command"])
    await workplace.until_requested("generate")
    assert await client.stop() == 0
    await workplace.until_requested("gone")
    assert workplace.engine is not None and workplace.engine.poll() is None


async def test_a_client_that_dies_while_a_job_runs_ends_the_server(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[FAST] * 8, verdicts=VERDICTS)
    workplace.hold()
    client = await workplace.client()
    uri = client.open(workplace.workspace / "a.cu", SAXPY, "cuda")
    await client.command((await client.actions(uri, CURSOR))[0]["command"])
    await workplace.until_requested("generate")
    assert client.process.stdin is not None
    client.process.stdin.close()
    await asyncio.wait_for(client.process.wait(), 10)


async def test_plain_clients_get_plain_edits_and_commands(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[FAST], verdicts=VERDICTS)
    code_action = {**CAPABILITIES["textDocument"]["codeAction"]}
    del code_action["tagSupport"]
    capabilities = {"textDocument": {"codeAction": code_action}}
    client = await workplace.client(capabilities=capabilities)
    uri = await searched(workplace, client)
    (action,) = rewrites(await client.actions(uri, CURSOR))
    assert list(action["edit"]) == ["changes"] and "tags" not in action
    assert not client.progress()
    bare = await workplace.client(capabilities={})
    uri = bare.open(workplace.workspace / "a.cu", SAXPY, "cuda")
    (command,) = await bare.actions(uri, CURSOR)
    assert command["command"] == "dice.findFaster"
    await asyncio.sleep(0)


async def test_a_stale_command_is_refused(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[FAST], verdicts=VERDICTS)
    client = await workplace.client()
    uri = await searched(workplace, client)
    (lens,) = await client.request("textDocument/codeLens", {"textDocument": {"uri": uri}})
    at = client.position(uri, CURSOR)
    client.change(uri, [{"range": {"start": at, "end": at}, "newText": " "}])
    with pytest.raises(LspError, match="edited since"):
        await client.command(lens["command"])
    assert FAST not in client.texts[uri]

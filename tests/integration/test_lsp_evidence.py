"""What the server tells about its results: hover, evidence, the trace, and the commands that steer the engine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from conftest import Workplace
from lsp_client import CAPABILITIES, Client, LspError
from test_lsp import CURSOR, FAST, SAXPY, VERDICTS, WRONG, rewrites, searched

pytestmark = pytest.mark.asyncio

MODULE = """import torch
from torch import nn

SCALE = 2.0


class Gate(nn.Module):
    def __init__(self):
        super(Gate, self).__init__()

    def forward(self, x):
        return torch.sigmoid(x) * SCALE


def get_inputs():
    return [torch.randn(64, 8)]
"""
NEW_MODULE = "\n\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return fast(x, SCALE)\n"


async def command(client: Client, name: str, **argument: Any) -> Any:
    return await client.command({"command": name, "arguments": [argument]})


async def hover(client: Client, uri: str, offset: int) -> str | None:
    at = client.position(uri, offset)
    answer = await client.request("textDocument/hover", {"textDocument": {"uri": uri}, "position": at})
    return answer["contents"]["value"] if answer else None


async def test_hover_tells_how_a_kernel_is_tested_before_anything_ran(workplace: Workplace) -> None:
    client = await workplace.client()
    uri = client.open(workplace.workspace / "a.cu", SAXPY, "cuda")
    text = await hover(client, uri, SAXPY.index("axpb"))
    assert text is not None
    for part in ("plan: launch", "launch in run_axpb", "count=125", "block 256", "restored before each run"):
        assert part in text
    assert await hover(client, uri, SAXPY.index("axpb<<<")) == text, "at its launch too"
    assert await hover(client, uri, CURSOR) is None, "not on every word of the body"
    assert await hover(client, uri, 0) is None


async def test_hover_shows_the_evidence_of_a_rewrite(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[WRONG, FAST], verdicts=VERDICTS)
    text_document = {**CAPABILITIES["textDocument"], "hover": {"contentFormat": ["markdown", "plaintext"]}}
    client = await workplace.client(capabilities={**CAPABILITIES, "textDocument": text_document})
    uri = await searched(workplace, client)
    text = await hover(client, uri, SAXPY.index("axpb"))
    assert text is not None and "**DICE**" in text
    for part in (
        "2.31x faster on NVIDIA H200, verified on 5 inputs",
        "0.2 ms before, 0.0864 ms after, ratio between 2.20 and 2.40 (95 %)",
        "candidate 0: mismatch (values): dst differs at 3 of 1000 places",
        "NVIDIA H200",
    ):
        assert part in text


async def test_the_evidence_as_json(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[WRONG, FAST], verdicts=VERDICTS)
    client = await workplace.client()
    uri = client.open(workplace.workspace / "a.cu", SAXPY, "cuda")
    before = await command(client, "dice.showEvidence", uri=uri, position=client.position(uri, CURSOR))
    assert (before["state"], before["candidates"], before["when"]) == ("none", [], "")
    uri = await searched(workplace, client)
    found = await command(client, "dice.showEvidence", uri=uri, position=client.position(uri, CURSOR))
    assert (found["state"], found["stale"], found["name"]) == ("done", False, "axpb")
    assert found["plan"]["source"] == "launch"
    assert {
        "what": "called through",
        "value": "run_axpb(...)",
        "origin": "launch in run_axpb, line 13",
    } in found["plan"]["how"]
    assert found["plan"]["sizes"] == [{"count": 1155}, {"count": 125}, {"count": 17933}]
    assert found["plan"]["measured_at"] == {"count": 16777216}
    assert [(c["index"], c["offerable"], c["core"]) for c in found["candidates"]] == [
        (1, True, FAST),
        (0, False, WRONG),
    ]
    assert found["candidates"][0]["verdict"]["speedup"] == 2.314
    assert found["device"] == "NVIDIA H200" and found["when"].startswith("20")
    text = client.texts[uri]
    at = client.position(uri, text.index("dst[k]"))
    client.change(uri, [{"range": {"start": at, "end": at}, "newText": " "}])
    stale = await command(client, "dice.showEvidence", uri=uri, position=at)
    assert stale["stale"] and stale["candidates"] == found["candidates"]
    assert "shown, not applied" in stale["summary"]


async def test_the_trace_tells_when_each_token_was_settled(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[FAST], verdicts=VERDICTS)
    client = await workplace.client()
    uri = await searched(workplace, client)
    where = {"uri": uri, "position": client.position(uri, CURSOR)}
    trace = await command(client, "dice.showTrace", **where)
    assert "".join(token["text"] for token in trace["tokens"]) == FAST
    assert trace["candidate"] == 0 and trace["block_size"] == 4
    assert [token["block"] for token in trace["tokens"][:9]] == [0, 0, 0, 0, 1, 1, 1, 1, 2]
    assert [token["step"] for token in trace["tokens"][:4]] == [0, 1, 2, 0]
    with pytest.raises(LspError, match="no candidate"):
        await command(client, "dice.showTrace", **where, candidate=7)


async def test_evidence_is_a_document_for_clients_that_do_not_draw_it(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[FAST], verdicts=VERDICTS)
    window = {**CAPABILITIES["window"], "showDocument": {"support": True}}
    client = await workplace.client(capabilities={**CAPABILITIES, "window": window})
    shown: list[str] = []
    client.answers["window/showDocument"] = lambda params: shown.append(params["uri"]) or {"success": True}
    uri = await searched(workplace, client)
    actions = await client.actions(uri, CURSOR)
    (show,) = [action for action in actions if action["title"] == "Show the evidence for `axpb`"]
    await client.command(show["command"])
    assert "2.31x faster" in Path(shown[0].removeprefix("file://")).read_text(encoding="utf-8")


async def test_pause_stops_the_engine_and_resume_begins_anew(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[FAST], verdicts=VERDICTS)
    workplace.hold()
    client = await workplace.client()
    uri = client.open(workplace.workspace / "a.cu", SAXPY, "cuda")
    await client.command((await client.actions(uri, CURSOR))[0]["command"])
    await workplace.until_requested("generate")
    assert (await command(client, "dice.pause"))["state"] == "paused"
    await workplace.until_requested("cancel")
    assert await client.lenses(uri) == ["DICE: paused"]
    workplace.release()
    await asyncio.sleep(0.2)
    assert len([one for one in workplace.requests() if one["type"] == "generate"]) == 1
    await command(client, "dice.resume")
    await client.wait(lambda: client.messages())
    assert "1 of 1 candidate verified" in client.messages()[0]
    assert (await command(client, "dice.status"))["state"] == "idle"


async def test_a_paused_job_can_be_cancelled(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[FAST], verdicts=VERDICTS)
    client = await workplace.client()
    uri = client.open(workplace.workspace / "a.cu", SAXPY, "cuda")
    await command(client, "dice.pause")
    await client.command((await client.actions(uri, CURSOR))[0]["command"])
    await client.wait(lambda: [one for one in client.progress() if one["kind"] == "begin"])
    assert await client.command({"command": "dice.cancel"}) == {"cancelled": 1}
    await client.wait(lambda: [one for one in client.progress() if one["kind"] == "end"])
    assert not workplace.requests()


async def test_restarting_the_engine_ends_it_and_the_work_goes_on_with_the_next(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[FAST], verdicts=VERDICTS)
    client = await workplace.client()
    await searched(workplace, client)
    status = await command(client, "dice.restartEngine")
    assert not status["engine"]["running"]
    await workplace.until_requested("shutdown")
    await workplace.start_engine(cores=[FAST], verdicts=VERDICTS)
    uri = next(iter(client.texts))
    await client.command(
        next(a for a in await client.actions(uri, CURSOR) if "Find" in a["title"])["command"]
    )
    await client.wait(lambda: len(client.messages()) == 2)
    assert "1 of 1 candidate verified" in client.messages()[1]


async def test_a_checkpoint_is_selected_by_its_folder(workplace: Workplace, tmp_path: Path) -> None:
    await workplace.start_engine(cores=[FAST], verdicts=VERDICTS)
    client = await workplace.client()
    assert await client.command({"command": "dice.selectCheckpoint"}) == {
        "checkpoint": None,
        "choices": [{"path": None, "title": "nano (comes with DICE)"}],
    }
    for wrong in ("models/mine", str(tmp_path / "nothing"), 3):
        with pytest.raises(LspError, match=r"path|no model"):
            await command(client, "dice.selectCheckpoint", path=wrong)
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    chosen = await command(client, "dice.selectCheckpoint", path=str(folder))
    assert chosen["checkpoint"] == str(folder) and chosen["choices"][1] == {
        "path": str(folder),
        "title": "mine",
    }
    await searched(workplace, client)
    assert next(one for one in workplace.requests() if one["type"] == "generate")["checkpoint"] == str(folder)


async def test_clear_cache_forgets_results(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[FAST], verdicts=VERDICTS)
    client = await workplace.client()
    uri = await searched(workplace, client)
    assert await client.lenses(uri) == ["DICE: 2.31x verified"]
    assert (await client.command({"command": "dice.clearCache"}))["results"] == 1
    assert await client.lenses(uri) == ["DICE: find faster"]


async def test_edits_come_when_an_action_is_resolved_by_a_client_that_can(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[FAST], verdicts=VERDICTS)
    action_support = {
        **CAPABILITIES["textDocument"]["codeAction"],
        "dataSupport": True,
        "resolveSupport": {"properties": ["edit"]},
    }
    client = await workplace.client(
        capabilities={**CAPABILITIES, "textDocument": {"codeAction": action_support}}
    )
    uri = await searched(workplace, client)
    actions = await client.actions(uri, CURSOR)
    assert not rewrites(actions)
    offers = [action for action in actions if action.get("tags") == [1]]
    assert len(offers) == 1, (actions, client.messages(), await client.lenses(uri))
    (offer,) = offers
    resolved = await client.request("codeAction/resolve", offer)
    find = next(action for action in actions if action["title"].startswith("Find"))
    assert await client.request("codeAction/resolve", find) == find, "VS Code resolves those too"
    at = client.position(uri, CURSOR)
    client.change(uri, [{"range": {"start": at, "end": at}, "newText": " "}])
    with pytest.raises(LspError, match="edited since"):
        await client.request("codeAction/resolve", offer)
    client.change(
        uri, [{"range": {"start": at, "end": {**at, "character": at["character"] + 1}}, "newText": ""}]
    )
    resolved = await client.request("codeAction/resolve", offer)
    client.apply(uri, resolved["edit"])
    assert FAST in client.texts[uri]


async def test_a_selection_is_rewritten_alone(workplace: Workplace) -> None:
    core = "if (k < count) dst[k] = fmaf(alpha, lhs[k], rhs[k]);"
    await workplace.start_engine(cores=[core], verdicts={core: VERDICTS[FAST]})
    client = await workplace.client()
    uri = client.open(workplace.workspace / "a.cu", SAXPY, "cuda")
    start, end = (client.position(uri, SAXPY.index(part)) for part in ("k < count", "= alpha"))
    params = {
        "textDocument": {"uri": uri},
        "range": {"start": start, "end": end},
        "context": {"diagnostics": []},
    }
    actions = await client.request("textDocument/codeAction", params)
    (ask,) = [action for action in actions if "lines 5 to 7" in action["title"]]
    await client.command(ask["command"])
    await client.wait(lambda: client.messages())
    request = next(one for one in workplace.requests() if one["type"] == "generate")
    assert request["kind"] == "selection" and request["reference"].startswith("if (k < count) {")
    (action,) = rewrites(await client.actions(uri, CURSOR))
    client.apply(uri, action["edit"])
    first, last = SAXPY.index("if (k"), SAXPY.index("  }\n}") + 3
    assert client.texts[uri] == SAXPY[:first] + core + SAXPY[last:]


async def test_a_module_can_be_replaced_or_go_into_a_file_of_its_own(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[NEW_MODULE], verdicts={NEW_MODULE: VERDICTS[FAST]})
    edit_support = {**CAPABILITIES["workspace"]["workspaceEdit"], "resourceOperations": ["create"]}
    workspace = {**CAPABILITIES["workspace"], "workspaceEdit": edit_support}
    client = await workplace.client(capabilities={**CAPABILITIES, "workspace": workspace})
    uri = client.open(workplace.workspace / "layers.py", MODULE, "python")
    cursor = MODULE.index("torch.sigmoid")
    await command(client, "dice.rewriteModule", uri=uri, position=client.position(uri, cursor))
    await client.wait(lambda: client.messages())
    below, replaced, apart = rewrites(await client.actions(uri, cursor))
    assert replaced["title"].endswith(", in place of `Gate`")
    assert apart["title"].endswith(", in the new file layers_gate_dice.py")
    create, fill = apart["edit"]["documentChanges"]
    assert create["kind"] == "create" and create["uri"] == fill["textDocument"]["uri"]
    assert create["uri"].endswith("/layers_gate_dice.py")
    text = fill["edits"][0]["newText"]
    assert "from torch import nn" in text and "from layers import SCALE" in text and "class ModelNew" in text
    client.apply(uri, replaced["edit"])
    now = client.texts[uri]
    assert "class GateReference(nn.Module)" in now and "super(GateReference, self)" in now
    assert now.count("class Gate(nn.Module)") == 1 and "ModelNew" not in now
    compile(now, "layers.py", "exec")
    assert below["edit"]


async def test_inlay_hints_show_the_measured_time_at_launches_when_turned_on(workplace: Workplace) -> None:
    measured = {**VERDICTS[FAST], "bytes": 200_000_000}
    await workplace.start_engine(cores=[FAST], verdicts={FAST: measured})
    client = await workplace.client()
    uri = await searched(workplace, client)
    whole = {"start": {"line": 0, "character": 0}, "end": {"line": 99, "character": 0}}
    params = {"textDocument": {"uri": uri}, "range": whole}
    assert not await client.request("textDocument/inlayHint", params)
    client.notify("workspace/didChangeConfiguration", {"settings": {"dice": {"inlayHints": True}}})
    (hint,) = await client.request("textDocument/inlayHint", params)
    assert hint["label"] == "0.2 ms, 1000 GB/s" and "NVIDIA H200" in hint["tooltip"]
    assert hint["position"] == client.position(uri, SAXPY.index(">>>") + 3)

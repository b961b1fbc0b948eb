"""Plain Python functions and kernels behind torch functions, through the real server with a scripted engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Workplace
from lsp_client import LspError
from test_lsp import CURSOR, FAST, SAXPY
from test_lsp_evidence import FAST as FASTER
from test_lsp_evidence import VERDICTS, command, rewrites

pytestmark = pytest.mark.asyncio
FUNCTION = """import torch


# @dice inputs(x=randn(64, 1024), bias=randn(1024))
def gated(x, bias, scale=1.0):
    return torch.sigmoid(x + bias) * scale
"""
NEW = """


class ModelNew(torch.nn.Module):
    def forward(self, x, bias):
        return torch.sigmoid(x + bias)
"""
TENSORS = (Path(__file__).parents[1] / "sources" / "tensors.cu").read_text()
GATE = """
  int i = threadIdx.x + blockIdx.x * blockDim.x;
  if (i < n) y[i] = x[i] / (scalar_t(1) + exp(-g[i]));
"""


async def test_a_function_is_rewritten_in_its_place(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[NEW], verdicts={NEW: VERDICTS[FASTER]})
    client = await workplace.client()
    uri = client.open(workplace.workspace / "ops.py", FUNCTION, "python")
    assert await client.lenses(uri) == ["DICE: find faster"]
    cursor = FUNCTION.index("sigmoid")
    await command(client, "dice.rewriteModule", uri=uri, position=client.position(uri, cursor))
    await client.wait(lambda: client.messages())
    asked = {request["type"]: request for request in workplace.requests()}
    assert asked["generate"]["kind"] == "module"
    assert "class gated_call(" in asked["verify"]["original"]
    _, replaced = rewrites(await client.actions(uri, cursor))
    assert replaced["title"].endswith(", in place of `gated`")
    client.apply(uri, replaced["edit"])
    now = client.texts[uri]
    assert "def gated_reference(x, bias, scale=1.0)" in now and "class GatedKernel(" in now
    assert now.count("def gated(x, bias, scale=1.0):") == 1 and "ModelNew" not in now
    compile(now, "ops.py", "exec")


async def test_a_function_is_checked_against_its_reference(workplace: Workplace) -> None:
    body = "    return torch.sigmoid(x + bias) * scale\n"
    text = FUNCTION + "\n\ndef gated_reference(x, bias, scale=1.0):\n" + body.replace("sigmoid", "tanh")
    verdict = {"verdict": "mismatch", "reason": "output[0] is 0.5, the reference 0.1"}
    await workplace.start_engine(cores=[], verdicts={"gated_reference": verdict})
    client = await workplace.client()
    uri = client.open(workplace.workspace / "ops.py", text, "python")
    told = await command(
        client, "dice.checkKernel", uri=uri, position=client.position(uri, text.index("sigmoid"))
    )
    assert told["reference"] == "the function gated_reference" and told["verdict"]["verdict"] == "mismatch"


async def test_a_kernel_behind_a_torch_function_has_a_plan(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[GATE], verdicts={GATE: VERDICTS[FASTER]})
    client = await workplace.client()
    uri = client.open(workplace.workspace / "tensors.cu", TENSORS, "cuda")
    lenses = await client.lenses(uri)
    assert lenses.count("DICE: find faster") == 4 and lenses.count("DICE: no plan, add @dice") == 2
    cursor = TENSORS.index("if (i < n) y[i] = x[i] /")
    at = client.position(uri, cursor)
    shown = await command(client, "dice.showEvidence", uri=uri, position=at)
    assert shown["plan"]["source"] == "host" and "called through: `gate(...)`" in shown["markdown"]
    await command(client, "dice.findFaster", uri=uri, position=at)
    await client.wait(lambda: client.messages())
    (action,) = rewrites(await client.actions(uri, cursor))
    client.apply(uri, action["edit"])
    assert GATE in client.texts[uri]


async def test_commands_act_on_what_stands_at_a_position(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[FAST], verdicts=VERDICTS)
    client = await workplace.client()
    uri = client.open(workplace.workspace / "a.cu", SAXPY, "cuda")
    there = [{"uri": uri, "position": client.position(uri, CURSOR)}]
    answer = await client.command({"command": "dice.rewriteKernel", "arguments": there})
    assert answer["hole"].startswith("kernel_body:axpb:")
    await client.wait(lambda: client.messages())
    with pytest.raises(LspError, match="no module at this position"):
        await client.command({"command": "dice.rewriteModule", "arguments": there})
    with pytest.raises(LspError, match="no kernel at this position"):
        start = [{"uri": uri, "position": {"line": 0, "character": 0}}]
        await client.command({"command": "dice.rewriteKernel", "arguments": start})

"""What a project says in dice.toml and compile_commands.json, and that it may change while the server runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Workplace
from test_lsp import FAST, VERIFIED
from test_lsp_diagnostics import save, shown, words

pytestmark = pytest.mark.asyncio

KERNEL = """#include "width.cuh"
__global__ void blend(const float* x, float* y, int n) {
  int i = blockIdx.y * blockDim.x + threadIdx.x;
  if (i < n) y[i] = WIDTH * x[i] + STEP;
}
"""
SCALE = """#pragma once
__global__ void scale(const float* x, float* y, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i];
}
"""
LAUNCHES = """#include "kernels/scale.cuh"
#include <sizes.h>

void run(const float* x, float* y, float a, int n) { scale<<<CEIL(n, kThreads), kThreads>>>(x, y, a, n); }
"""
TOML = """[kernel.blend]
grid = "1,(n+255)/256"
block = "256"
in = "x[n]"
out = "y[n]"
sizes = "n=1000; n=31"

[build]
include = ["include"]
define = ["STEP=2"]
"""


def project(root: Path) -> None:
    (root / "include").mkdir()
    (root / "include" / "width.cuh").write_text("#define WIDTH 4\n", encoding="utf-8")


async def test_dice_toml_is_honoured_and_followed(workplace: Workplace) -> None:
    project(workplace.workspace)
    await workplace.start_engine(cores=[FAST], verdicts={FAST: VERIFIED})
    client = await workplace.client()
    uri = client.open(workplace.workspace / "a.cu", KERNEL, "cuda")
    assert await client.lenses(uri) == ["DICE: no plan, add @dice"]
    save(client, uri)
    await client.wait(lambda: shown(client, uri))
    assert "width.cuh" in (shown(client, uri) or [])[0]["message"]
    (workplace.workspace / "dice.toml").write_text(TOML, encoding="utf-8")
    await client.wait(lambda: any(method == "workspace/codeLens/refresh" for method, _ in client.requests))
    assert await client.lenses(uri) == ["DICE: find faster"]
    save(client, uri)
    await client.wait(lambda: shown(client, uri) == [])
    await client.command((await client.actions(uri, KERNEL.index("WIDTH *")))[0]["command"])
    await client.wait(lambda: client.messages())
    request = next(one for one in workplace.requests() if one["type"] == "verify")
    assert request["original"].startswith("#define STEP 2\n#define WIDTH 4\n")
    (workplace.workspace / "dice.toml").write_text("[kernl]\n" + TOML, encoding="utf-8")
    await client.wait(lambda: len(client.messages()) == 2)
    assert "unknown table [kernl]" in client.messages()[1]


async def test_compile_commands_are_honoured(workplace: Workplace) -> None:
    project(workplace.workspace)
    entry = {"directory": str(workplace.workspace), "file": "a.cu", "command": "nvcc -Iinclude -c a.cu"}
    (workplace.workspace / "compile_commands.json").write_text(json.dumps([entry]), encoding="utf-8")
    client = await workplace.client()
    uri = client.open(workplace.workspace / "a.cu", KERNEL, "cuda")
    save(client, uri)
    await client.wait(lambda: shown(client, uri))
    assert words(client, uri) == ["STEP"], "the header was found, the definition is missing"


async def test_a_kernel_of_a_header_runs_in_the_source_that_launches_it(workplace: Workplace) -> None:
    root = workplace.workspace
    (root / "include").mkdir()
    (root / "include" / "sizes.h").write_text(
        "#define CEIL(a, b) ((a + b - 1) / b)\nconst int kThreads = 96;\n"
    )
    (root / "kernels").mkdir()
    (root / "kernels" / "scale.cuh").write_text("the text on disk is an older one")
    (root / "main.cu").write_text(LAUNCHES)
    command = {"directory": str(root), "file": "main.cu", "arguments": ["nvcc", "-Iinclude", "-c", "main.cu"]}
    (root / "compile_commands.json").write_text(json.dumps([command]))
    await workplace.start_engine(cores=[FAST], verdicts={FAST: VERIFIED})
    client = await workplace.client()
    uri = client.open(root / "kernels" / "scale.cuh", SCALE, "cuda")
    assert await client.lenses(uri) == ["DICE: find faster"]
    spot = {"textDocument": {"uri": uri}, "position": client.position(uri, SCALE.index("scale(") + 1)}
    said = (await client.request("textDocument/hover", spot))["contents"]["value"]
    assert "launch in run, line 4 of main.cu" in said and "block 96" in said
    await client.command((await client.actions(uri, SCALE.index("a * x")))[0]["command"])
    await client.wait(lambda: client.messages())
    request = next(one for one in workplace.requests() if one["type"] == "verify")
    for text, core in ((request["original"], "a * x[i]"), (request["candidate"], FAST)):
        assert core in text and "void run(" in text and "#define CEIL" in text and "older" not in text
    (rewrite,) = [a for a in await client.actions(uri, SCALE.index("a * x")) if "Rewrite" in a["title"]]
    client.apply(uri, rewrite["edit"])
    start, end = SCALE.index("{") + 1, SCALE.rindex("}")
    assert client.texts[uri] == SCALE[:start] + FAST + SCALE[end:]


@pytest.mark.parametrize("told", ["saved", "watched"])
async def test_plans_follow_the_headers_that_they_come_through(workplace: Workplace, told: str) -> None:
    root = workplace.workspace
    (root / "sizes.h").write_text("// nothing yet\n")
    client = await workplace.client()
    text = (
        '#include "sizes.h"\n'
        + SCALE
        + "void go(float* x, float* y, int n) { scale<<<n / W, W>>>(x, y, 2, n); }\n"
    )
    uri = client.open(root / "a.cu", text, "cuda")
    assert await client.lenses(uri) == ["DICE: no plan, add @dice"]
    (root / "sizes.h").write_text("#define W 64\n")
    header = {"uri": (root / "sizes.h").as_uri()}
    if told == "saved":
        client.open(root / "sizes.h", "#define W 64\n", "cuda-cpp")
        client.notify("textDocument/didSave", {"textDocument": header})
    else:
        client.notify("workspace/didChangeWatchedFiles", {"changes": [{**header, "type": 2}]})
    await client.wait(lambda: any(method == "workspace/codeLens/refresh" for method, _ in client.requests))
    assert await client.lenses(uri) == ["DICE: find faster"]

"""Edits are right to the byte: every encoding, CRLF, emoji and CJK, kernels inside Python strings, annotations."""

from __future__ import annotations

import ast

import pytest
from conftest import Workplace
from lsp_client import Client

pytestmark = pytest.mark.asyncio

BLEND = (
    "// 混合 😀 kernel\r\n"
    "#include <cuda_runtime.h>\r\n"
    "\r\n"
    "__global__ void blend(const float* a, const float* b, float* mix, int n) /* 😀😀 幅 */ {  // 開始 😀\r\n"
    "  int i = blockIdx.x * blockDim.x + threadIdx.x;\r\n"
    "  // half of each: 半分 😀\r\n"
    "  if (i < n) mix[i] = 0.5f * a[i] + 0.5f * b[i];\r\n"
    "}\r\n"
    "\r\n"
    "void go(const float* a, const float* b, float* mix, int n, cudaStream_t s) "
    "{ blend<<<(n + 127) / 128, 128, 0, s>>>(a, b, mix, n); }  // 終わり 😀"
)
BLENDED = "\n  const int i = blockIdx.x * 128 + threadIdx.x;  // 速い 😀\n  if (i < n) mix[i] = 0.5f * (a[i] + b[i]);\n"
GATE = '''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

gpu_src = """
#include <torch/extension.h>
#include <cstdio>

__global__ void gate_mul(const float* a, const float* g, float* o, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0 && n < 0) printf("bad size %d\\\\n", n);  // 😀
    if (i < n) o[i] = a[i] / (1.0f + expf(-g[i]));
}

torch::Tensor gate(torch::Tensor a, torch::Tensor g) {
    auto o = torch::empty_like(a);
    int n = a.numel();
    gate_mul<<<(n + 255) / 256, 256>>>(a.data_ptr<float>(), g.data_ptr<float>(), o.data_ptr<float>(), n);
    return o;
}
"""

cpp_src = "torch::Tensor gate(torch::Tensor a, torch::Tensor g);"
ext = load_inline(name="gate_ext", cpp_sources=cpp_src, cuda_sources=gpu_src, functions=["gate"])


class ModelNew(nn.Module):
    def forward(self, a, g):
        return ext.gate(a, g)


def get_inputs():
    return [torch.randn(1 << 16), torch.randn(1 << 16)]
'''
GATED = (
    "\n    int i = blockIdx.x * 256 + threadIdx.x;\n"
    '    if (n < 0) printf("bad \\"%d\\"\\n", n);\n    if (i < n) o[i] = a[i];\n'
)
MODULE = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2  # 😀


def get_inputs():
    return [torch.randn(64, 1000)]


def get_init_inputs():
    return []
"""
WRITTEN = "\n\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return ext.run(x)\n"
FLIP = """__global__ void flip(float* data, int w, int h, int s) {
  int x = threadIdx.x;
  if (x < w) data[x] = data[s - x];
}
"""


async def rewritten(
    place: Workplace, client: Client, name: str, text: str, where: str, language: str, timeout: float = 60
) -> str:
    """Search at ``where`` and apply the first rewrite; returns the text that the editor has then."""
    uri = client.open(place.workspace / name, text, language)
    offset = text.index(where)
    find = next(a for a in await client.actions(uri, offset) if a["title"].startswith("Find a faster"))
    await client.command(find["command"])
    await client.wait(lambda: client.messages(), timeout=timeout)
    action = next((a for a in await client.actions(uri, offset) if "edit" in a), None)
    assert action is not None, client.messages()
    client.apply(uri, action["edit"])
    return client.texts[uri]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
async def test_crlf_emoji_and_cjk(workplace: Workplace, encoding: str) -> None:
    verdicts = {BLENDED: {"verdict": "verified", "speedup": 1.5}}
    await workplace.start_engine(cores=[BLENDED], verdicts=verdicts, newline="\r\n")
    client = await workplace.client(encoding=encoding)
    after = await rewritten(workplace, client, "unicode name 😀.cu", BLEND, "mix[i] =", "cuda")
    start, end = BLEND.index("{  // 開始") + 1, BLEND.index("}\r\n\r\nvoid")
    assert after == BLEND[:start] + BLENDED.replace("\n", "\r\n") + BLEND[end:]
    generate = next(request for request in workplace.requests() if request["type"] == "generate")
    assert "\r" not in generate["reference"]


async def test_a_kernel_inside_a_python_string_is_escaped_again(workplace: Workplace) -> None:
    verdicts = {"int i = blockIdx.x * 256": {"verdict": "verified", "speedup": 1.5}}
    await workplace.start_engine(cores=[GATED], verdicts=verdicts)
    client = await workplace.client()
    after = await rewritten(workplace, client, "gate.py", GATE, "if (i < n) o[i]", "python")
    values = {
        statement.targets[0].id: statement.value.value  # type: ignore[attr-defined]
        for statement in ast.parse(after).body
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
    }
    source = str(values["gpu_src"])
    assert source[source.index("{") + 1 : source.index("}\n\ntorch")] == GATED
    generate, verify = (r for r in workplace.requests() if r["type"] in ("generate", "verify"))
    assert '%d\\n", n);' in generate["reference"], "the engine reads one backslash"
    assert verify["candidate"] == after and verify["kernel"] is None


async def test_a_module_gets_its_rewrite_inserted_once(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[WRITTEN], verdicts={WRITTEN: {"verdict": "verified", "speedup": 3.0}})
    client = await workplace.client()
    after = await rewritten(workplace, client, "model.py", MODULE, "torch.relu", "python")
    cut = MODULE.index("\n\n\ndef get_inputs")
    assert after == MODULE[:cut] + WRITTEN + MODULE[cut:]
    uri = next(iter(client.texts))
    assert not [a for a in await client.actions(uri, after.index("torch.relu")) if "edit" in a]


async def test_a_kernel_without_a_plan_gets_an_annotation(workplace: Workplace) -> None:
    client = await workplace.client()
    uri = client.open(workplace.workspace / "flip.cu", FLIP, "cuda")
    assert await client.lenses(uri) == ["DICE: no plan, add @dice"]
    insert, disabled = await client.actions(uri, FLIP.index("data[x] ="))
    assert insert["kind"] == "quickfix" and insert["title"] == "Insert a @dice annotation above `flip`"
    assert disabled["disabled"]["reason"]
    assert await client.command(insert["command"]) == {"applied": True}
    text = client.texts[uri]
    assert text.endswith(FLIP) and text.startswith("// @dice grid=")
    assert await client.lenses(uri) == ["DICE: find faster"]


async def test_code_that_cannot_be_edited_says_why(workplace: Workplace) -> None:
    text = "__global__ void a(float* x) {\n#if N\n  x[0] = 1;\n}\n#endif\n"
    client = await workplace.client()
    uri = client.open(workplace.workspace / "a.cu", text, "cuda")
    for action in await client.actions(uri, text.index("x[0]")):
        assert action["disabled"]["reason"]
    assert not await client.lenses(uri)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
async def test_a_typo_in_an_annotation_is_a_diagnostic_on_its_word(
    workplace: Workplace, encoding: str
) -> None:
    client = await workplace.client(encoding=encoding, options={"trusted": True, "diagnosticsDelayMs": 10})
    line = "/* 😀 */ // @dice grid=1 block=32 inout(data[w]) sizse(w=7, h=1, s=6)\n"
    text = line.removeprefix("/* 😀 */ ") + FLIP
    uri = client.open(workplace.workspace / "flip.cu", text, "cuda")

    def published() -> list[dict]:
        return [p for name, p in client.notifications if name == "textDocument/publishDiagnostics"]

    await client.wait(lambda: published() and published()[-1]["diagnostics"])
    (first, *_) = published()[-1]["diagnostics"]
    assert first["range"]["start"] == {"line": 0, "character": text.index("sizse")}
    assert "sizes" in first["message"]
    at = client.position(uri, text.index("sizse"))
    end = {"line": 0, "character": at["character"] + 5}
    client.change(uri, [{"range": {"start": at, "end": end}, "newText": "sizes"}])
    await client.wait(lambda: not published()[-1]["diagnostics"])
    assert published()[-1]["version"] == 2


async def test_incremental_changes_keep_the_text_exact(workplace: Workplace) -> None:
    """Many small edits, some in one notification; the kernel is found again where it is then."""
    await workplace.start_engine(cores=[BLENDED], verdicts={BLENDED: {"verdict": "verified", "speedup": 2.0}})
    client = await workplace.client()
    uri = client.open(workplace.workspace / "b.cu", "", "cuda")
    for offset in range(0, len(BLEND), 7):
        at = client.position(uri, offset)
        client.change(uri, [{"range": {"start": at, "end": at}, "newText": BLEND[offset : offset + 7]}])
    assert client.texts[uri] == BLEND
    start = {"line": 0, "character": 0}
    insert = {"range": {"start": start, "end": start}, "newText": "// 😀\u2028\f 中\r\n"}
    remove = {"range": {"start": start, "end": {"line": 0, "character": 5}}, "newText": ""}
    client.change(uri, [insert, remove, insert])
    (lens,) = await client.request("textDocument/codeLens", {"textDocument": {"uri": uri}})
    assert lens["range"]["start"] == client.position(uri, client.texts[uri].index("__global__"))

"""Diagnostics on save and after a check: on the exact words, moved with the text, gone when it is edited."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import Workplace
from lsp_client import Client, LspError, encoded
from test_lsp import CURSOR, SAXPY, VERDICTS

pytestmark = pytest.mark.asyncio

WRONG_CU = """#include <cuda_runtime.h>
// 很好 😀
__global__ void f(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  /* 😀 */ if (i < n) y[i] = scale * x[i];
}

template <typename T> __global__ void g(T* x) { x[0].nope(); }

void run(float* x) { g<float><<<1, 32>>>(x); }
"""
WRONG_PY = '''from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>
__global__ void f(float* x) {
  /* 😀 */ printf("a\\\\n"); x[0] = scale;
}
torch::Tensor run(torch::Tensor x) { f<<<1, 1>>>(x.data_ptr<float>()); return x; }
"""
ext = load_inline(name="e", cpp_sources="torch::Tensor run(torch::Tensor x);", cuda_sources=SOURCE)
'''


def shown(client: Client, uri: str) -> list[dict[str, Any]] | None:
    """The diagnostics that the client shows now; None before the first."""
    told = [
        p for name, p in client.notifications if name == "textDocument/publishDiagnostics" and p["uri"] == uri
    ]
    return told[-1]["diagnostics"] if told else None


def words(client: Client, uri: str) -> list[str]:
    """The text under each diagnostic of the compiler or of a check."""
    lines = client.texts[uri].split("\n")
    found = []
    for one in shown(client, uri) or []:
        start, end = one["range"]["start"], one["range"]["end"]
        assert start["line"] == end["line"]
        units = encoded(lines[start["line"]].removesuffix("\r"), client.encoding)
        found.append("".join(units[start["character"] : end["character"]]))
    return found


def save(client: Client, uri: str) -> None:
    client.notify("textDocument/didSave", {"textDocument": {"uri": uri}})


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
async def test_compiler_errors_are_on_their_words(workplace: Workplace, encoding: str, newline: str) -> None:
    client = await workplace.client(encoding=encoding)
    uri = client.open(workplace.workspace / "a.cu", WRONG_CU.replace("\n", newline), "cuda")
    save(client, uri)
    await client.wait(lambda: shown(client, uri))
    assert words(client, uri) == ["scale", "x"]
    found = shown(client, uri) or []
    assert 'identifier "scale" is undefined' in found[0]["message"]
    assert "class type" in found[1]["message"], "the launch tells the template's argument"
    assert {one["source"] for one in found} == {"dice"} and {one["code"] for one in found} == {"nvrtc"}


async def test_a_byte_order_mark_and_letters_of_any_alphabet_break_nothing(workplace: Workplace) -> None:
    client = await workplace.client()
    text = "\ufeff#define WIDTH 4\r\n__global__ void f(float* x, int длина) {\r\n  x[WIDTH] = 温度;\r\n}\r\n"
    uri = client.open(workplace.workspace / "a.cu", text, "cuda")
    save(client, uri)
    await client.wait(lambda: shown(client, uri))
    assert {"温度", "длина"} <= set(words(client, uri))
    assert not any(one["range"]["start"]["line"] == 0 for one in shown(client, uri) or [])


async def test_device_lambdas_need_no_option(workplace: Workplace) -> None:
    client = await workplace.client()
    text = WRONG_CU.replace("y[i] = scale", "y[i] = [=] __device__ (int k) { return 2.0f * k; }(i) + scale")
    uri = client.open(workplace.workspace / "a.cu", text, "cuda")
    save(client, uri)
    await client.wait(lambda: shown(client, uri))
    assert words(client, uri) == ["scale", "x"]


async def test_errors_in_python_strings_are_on_their_words_too(workplace: Workplace) -> None:
    client = await workplace.client()
    uri = client.open(workplace.workspace / "a.py", WRONG_PY, "python")
    save(client, uri)
    await client.wait(lambda: shown(client, uri))
    assert words(client, uri) == ["scale"]


async def test_errors_move_with_the_text_and_go_when_it_is_edited(workplace: Workplace) -> None:
    client = await workplace.client(options={"trusted": True, "diagnosticsDelayMs": 0})
    uri = client.open(workplace.workspace / "a.cu", WRONG_CU, "cuda")
    save(client, uri)
    await client.wait(lambda: shown(client, uri))
    origin = {"line": 0, "character": 0}
    client.change(uri, [{"range": {"start": origin, "end": origin}, "newText": "// 😋 new\n\n"}])
    await client.wait(
        lambda: (shown(client, uri) or [{}])[0].get("range", {}).get("start", {}).get("line") == 6
    )
    assert words(client, uri) == ["scale", "x"]
    at = client.position(uri, client.texts[uri].index("scale") + 2)
    client.change(uri, [{"range": {"start": at, "end": at}, "newText": "xx"}])
    await client.wait(lambda: len(shown(client, uri) or []) == 1)
    assert words(client, uri) == ["x"]


async def test_a_right_file_has_none_and_a_closed_one_too(workplace: Workplace) -> None:
    client = await workplace.client()
    uri = client.open(workplace.workspace / "a.cu", WRONG_CU, "cuda")
    save(client, uri)
    await client.wait(lambda: shown(client, uri))
    text = WRONG_CU.replace("scale", "2.0f").replace(".nope()", " = 1")
    client.notify(
        "textDocument/didChange",
        {"textDocument": {"uri": uri, "version": 2}, "contentChanges": [{"text": text}]},
    )
    save(client, uri)
    await client.wait(lambda: shown(client, uri) == [])
    client.notify(
        "textDocument/didChange",
        {"textDocument": {"uri": uri, "version": 3}, "contentChanges": [{"text": WRONG_CU}]},
    )
    save(client, uri)
    await client.wait(lambda: shown(client, uri))
    client.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
    await client.wait(lambda: shown(client, uri) == [])


@pytest.mark.parametrize("options", [{"trusted": False}, {"trusted": True, "diagnosticsOnSave": False}])
async def test_nothing_is_compiled_without_trust_or_when_turned_off(
    workplace: Workplace, options: dict[str, Any]
) -> None:
    client = await workplace.client(options=options)
    uri = client.open(workplace.workspace / "a.cu", WRONG_CU, "cuda")
    await client.wait(lambda: shown(client, uri) is not None)
    save(client, uri)
    await client.lenses(uri)
    assert shown(client, uri) == []
    children = subprocess.run(
        ["ps", "--ppid", str(client.process.pid), "-o", "args="], capture_output=True, text=True
    ).stdout
    assert "compile_check" not in children


async def test_search_on_save_takes_what_was_edited(workplace: Workplace) -> None:
    fast = "\n  const int k = blockIdx.x * 256 + threadIdx.x;\n  if (k < count) dst[k] = fmaf(alpha, lhs[k], rhs[k]);\n"
    await workplace.start_engine(cores=[fast], verdicts={fast: next(iter(VERDICTS.values()))})
    client = await workplace.client(options={"trusted": True, "searchOnSave": True, "workOnBattery": True})
    uri = client.open(workplace.workspace / "a.cu", SAXPY, "cuda")
    await client.lenses(uri)
    save(client, uri)
    await client.lenses(uri)
    assert not workplace.requests(), "nothing was edited"
    at = client.position(uri, CURSOR)
    client.change(uri, [{"range": {"start": at, "end": at}, "newText": "/**/ "}])
    save(client, uri)
    await client.wait(lambda: client.messages(), timeout=120)
    assert "1 of 1 candidate verified" in client.messages()[0]
    save(client, uri)
    assert await client.lenses(uri) == ["DICE: 2.31x verified"]
    assert len([one for one in workplace.requests() if one["type"] == "generate"]) == 1


MISMATCH = {
    "verdict": "mismatch",
    "rule": "values",
    "reason": "dst differs at 3 of 1000003 places for n = 1000003",
}


async def checked(client: Client, uri: str, offset: int = CURSOR) -> dict[str, Any]:
    argument = {"uri": uri, "position": client.position(uri, offset)}
    return await client.command({"command": "dice.checkKernel", "arguments": [argument]})


async def test_a_kernel_is_checked_against_what_it_was_when_opened(workplace: Workplace) -> None:
    edited = "dst[k] = alpha * lhs[k] - rhs[k]"
    await workplace.start_engine(cores=[], verdicts={edited: MISMATCH})
    client = await workplace.client()
    uri = client.open(workplace.workspace / "a.cu", SAXPY, "cuda")
    with pytest.raises(LspError, match="no other version"):
        await checked(client, uri)
    start = client.position(uri, SAXPY.index("+ rhs"))
    end = {**start, "character": start["character"] + 1}
    client.change(uri, [{"range": {"start": start, "end": end}, "newText": "-"}])
    answer = await checked(client, uri)
    assert answer["verdict"]["verdict"] == "mismatch" and "opened" in answer["reference"]
    (found,) = shown(client, uri) or []
    assert found["message"].startswith(
        "`axpb` disagrees with what it was when the file was opened: dst differs"
    )
    assert "n = 1000003" in found["message"] and words(client, uri) == ["axpb"]
    request = next(one for one in workplace.requests() if one["type"] == "verify")
    assert request["kernel"] == "axpb" and edited in request["candidate"] and request["original"] == SAXPY
    client.change(uri, [{"range": {"start": start, "end": end}, "newText": "+"}])
    await client.wait(lambda: shown(client, uri) == [])


async def test_a_kernel_is_checked_against_its_reference_beside_it(workplace: Workplace) -> None:
    start = SAXPY.index("__global__")
    end = SAXPY.index("void run_axpb")
    other = SAXPY[start:end].replace("axpb", "axpb_reference").replace("alpha * lhs[k]", "lhs[k] * alpha")
    text = SAXPY[:start] + other + SAXPY[start:]
    agrees = {"verdict": "no_gain", "speedup": 0.99}
    await workplace.start_engine(cores=[], verdicts={"alpha * lhs[k]": agrees})
    client = await workplace.client()
    uri = client.open(workplace.workspace / "a.cu", text, "cuda")
    answer = await checked(client, uri, text.index("alpha * lhs"))
    assert answer["reference"] == "`axpb_reference` on line 3"
    request = next(one for one in workplace.requests() if one["type"] == "verify")
    assert request["original"].count("lhs[k] * alpha") == 2 and request["candidate"] == text
    assert "agrees with `axpb_reference` on line 3 on 5 inputs, 0.99x as fast" in client.messages()[0]
    assert shown(client, uri) == []


async def test_a_kernel_is_checked_against_its_committed_version(workplace: Workplace) -> None:
    path = Path(workplace.workspace / "a.cu")
    path.write_text(SAXPY, encoding="utf-8")
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    for command in (["init", "-q"], ["add", "a.cu"], [*identity, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", *command], cwd=workplace.workspace, check=True)
    text = SAXPY.replace("alpha * lhs[k]", "lhs[k] * alpha")
    await workplace.start_engine(cores=[], verdicts={"lhs[k] * alpha": {"verdict": "correct_unmeasured"}})
    client = await workplace.client()
    uri = client.open(path, text, "cuda")
    assert (await checked(client, uri))["reference"] == "its committed version"

"""Ghost text: where it is shown, what it must pass before, and how the next key ends it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from conftest import Workplace
from lsp_client import Client, LspError

pytestmark = pytest.mark.asyncio

TYPED = """// 😀 kernels
__global__ void axpb(float a, const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] =
}
"""
END = TYPED.index("y[i] =") + len("y[i] =")


async def ghosts(client: Client, uri: str, offset: int, kind: int = 2, **extra: Any) -> list[str]:
    params = {
        "textDocument": {"uri": uri},
        "position": client.position(uri, offset),
        "context": {"triggerKind": kind},
    }
    answer = await client.request("textDocument/inlineCompletion", params, **extra)
    assert all(item["range"] == {"start": params["position"], "end": params["position"]} for item in answer)
    return [item["insertText"] for item in answer]


async def opened(
    workplace: Workplace, text: str = TYPED, name: str = "a.cu", **options: Any
) -> tuple[Client, str]:
    settings = {"trusted": True, "ghostTextDelayMs": 0, **options}
    client = await workplace.client(options=settings)
    return client, client.open(workplace.workspace / name, text, "python" if name.endswith("py") else "cuda")


async def test_what_compiles_is_shown(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[" a * x[i] + 1.0f;\n"], verdicts={})
    client, uri = await opened(workplace)
    assert await ghosts(client, uri, END) == [" a * x[i] + 1.0f;"]
    (request,) = [one for one in workplace.requests() if one["type"] == "generate"]
    assert request["begin"].endswith("if (i < n) y[i] =") and request["begin"].startswith("\n  int i")
    assert (request["n"], request["max_new_tokens"], request["kind"]) == (1, 40, "kernel_body")
    assert request["priority"] > 0
    assert not [one for one in workplace.requests() if one["type"] == "verify"]


async def test_what_does_not_compile_is_not_shown_and_is_cut_where_it_does(workplace: Workplace) -> None:
    cores = [" b * x[i];\n", " a * x[i];\n  y[i] += nothing;\n", " a * ;"]
    await workplace.start_engine(cores=cores, verdicts={})
    client, uri = await opened(workplace)
    assert await ghosts(client, uri, END, kind=1) == [" a * x[i];"]


async def test_the_next_candidates_come_when_asked_by_hand(workplace: Workplace) -> None:
    cores = [" a * x[i];", " a * x[i];\n", " a + x[i];"]
    await workplace.start_engine(cores=cores, verdicts={})
    client, uri = await opened(workplace, ghostText="onRequest")
    assert await ghosts(client, uri, END) == [], "only by hand"
    assert await ghosts(client, uri, END, kind=1) == [" a * x[i];", " a + x[i];"]


async def test_the_word_that_is_being_typed_must_agree(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[" axis * x[i];", " a * x[i];"], verdicts={})
    client, uri = await opened(workplace, TYPED.replace("y[i] =", "y[i] = a * x[i] + fm"))
    assert await ghosts(client, uri, END + len(" a * x[i] + fm"), kind=1) == []
    await client.kill()
    workplace.kill_engine()
    await workplace.start_engine(cores=[" fmaxf(x[i], 0.0f);"], verdicts={})
    client, uri = await opened(workplace, TYPED.replace("y[i] =", "y[i] = a * x[i] + fm"))
    assert await ghosts(client, uri, END + len(" a * x[i] + fm")) == ["axf(x[i], 0.0f);"]


async def test_not_in_comments_strings_directives_or_outside_of_kernels(workplace: Workplace) -> None:
    text = """__global__ void f(float* x) {
  // note
  /* block */
#pragma unroll
  for (int i = 0; i < 3; ++i) printf("say");
  x[0] = 1;  // tail
}
int outside;
"""
    await workplace.start_engine(cores=["x"], verdicts={})
    client, uri = await opened(workplace, text)
    for at in ("note", "unroll", "tail", "outside"):
        assert await ghosts(client, uri, text.index(at) + len(at), kind=1) == [], at
    for at in ("note", "ock */", "unroll", "say", "tail", "outside"):
        assert await ghosts(client, uri, text.index(at) + 1, kind=1) == [], at
    assert await ghosts(client, uri, text.index("[0]"), kind=1) == [], "code follows on the line"
    assert workplace.requests() == []


async def test_ghost_text_before_closing_brackets_fits_between_them(workplace: Workplace) -> None:
    text = TYPED.replace("y[i] =", "y[i] = fmaxf();")
    await workplace.start_engine(cores=["x[i], 0.0f);\n  more"], verdicts={})
    client, uri = await opened(workplace, text)
    assert await ghosts(client, uri, text.index(");\n}")) == ["x[i], 0.0f"]


async def test_code_below_is_not_written_again(workplace: Workplace) -> None:
    text = TYPED.replace("  if (i < n) y[i] =\n", "\n  if (i < n) y[i] = a;\n")
    cursor = text.index("\n\n") + 1
    cores = ["  const float v = x[i];\n  if (i < n) y[i] = a;\n", "  if (i < n) y[i] = a;\n"]
    await workplace.start_engine(cores=cores, verdicts={})
    client, uri = await opened(workplace, text)
    assert await ghosts(client, uri, cursor, kind=1) == ["  const float v = x[i];"]


async def test_inside_a_python_string_it_is_escaped(workplace: Workplace) -> None:
    text = '''from torch.utils.cpp_extension import load_inline
source = """
__global__ void f(float* x) {
  x[0] = 1;
  printf(
}
"""
ext = load_inline(name="e", cpp_sources="", cuda_sources=source)


def get_inputs():
    return []
'''
    await workplace.start_engine(cores=['"done\\n");'], verdicts={})
    client, uri = await opened(workplace, text, "a.py")
    assert await ghosts(client, uri, text.index("printf(") + 7) == ['"done\\\\n");']


async def test_typing_along_costs_no_decoding(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[" a * x[i];"], verdicts={})
    client, uri = await opened(workplace)
    assert await ghosts(client, uri, END) == [" a * x[i];"]
    at = client.position(uri, END)
    client.change(uri, [{"range": {"start": at, "end": at}, "newText": " a *"}])
    assert await ghosts(client, uri, END + 4) == [" x[i];"]
    assert len([one for one in workplace.requests() if one["type"] == "generate"]) == 1


async def test_the_next_key_ends_it_in_the_engine(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[" a;", " b;"], verdicts={})
    workplace.hold()
    client, uri = await opened(workplace)
    waiting = asyncio.ensure_future(ghosts(client, uri, END))
    await workplace.until_requested("generate")
    at = client.position(uri, END)
    client.change(uri, [{"range": {"start": at, "end": at}, "newText": " x"}])
    assert await waiting == []
    await workplace.until_requested("cancel")


async def test_a_cancelled_request_ends_it_in_the_engine(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[" a;", " b;"], verdicts={})
    workplace.hold()
    client, uri = await opened(workplace)
    waiting = asyncio.ensure_future(ghosts(client, uri, END))
    await workplace.until_requested("generate")
    client.notify("$/cancelRequest", {"id": client.last_id})
    with pytest.raises(LspError) as error:
        await waiting
    assert error.value.code == -32800
    await workplace.until_requested("cancel")


async def test_keys_in_quick_succession_are_one_request(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[" a;"], verdicts={})
    client, uri = await opened(workplace, ghostTextDelayMs=150)
    waiting = []
    for step in range(5):
        waiting.append(asyncio.ensure_future(ghosts(client, uri, END + step)))
        at = client.position(uri, END + step)
        await asyncio.sleep(0.02)
        if step < 4:
            client.change(uri, [{"range": {"start": at, "end": at}, "newText": " "}])
    assert (await asyncio.gather(*waiting))[:4] == [[]] * 4
    assert len([one for one in workplace.requests() if one["type"] == "generate"]) == 1


async def test_without_trust_nothing_is_compiled_and_the_grammar_decides(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[" b * x[i];", " a * ;"], verdicts={})
    client, uri = await opened(workplace, trusted=False)
    assert await ghosts(client, uri, END, kind=1) == [" b * x[i];"], "unverified: b is not declared"


async def test_a_paused_server_and_a_missing_engine_give_none(workplace: Workplace) -> None:
    await workplace.start_engine(error="no model in /nowhere")
    client, uri = await opened(workplace)
    assert await ghosts(client, uri, END) == []
    assert not client.messages(), "no pop-up while typing"
    await client.command({"command": "dice.pause"})
    assert await ghosts(client, uri, END, kind=1) == []

"""Files as people write them, through the real server: what is offered, and that typing a file comes to the same."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from conftest import Workplace
from lsp_client import Client

pytestmark = pytest.mark.asyncio

WILD = Path(__file__).parents[1] / "wild"
FIND = "find faster"
EXPECTED: dict[str, dict[str, str]] = {
    "templates.cu": {"axpy_unrolled": FIND, "bias_act": FIND},
    "lambdas.cu": {"squares": FIND, "row_sums": FIND},
    "ptx.cu": {"copy4": FIND, "lane_ids": FIND},
    "main_only.cu": {"vec_add": FIND, "matmul": FIND},
    "strings.cu": {"say": FIND, "dead": "never compiled"},
    "letters.cu": {"añadir": "outside ASCII", "пример": "outside ASCII", "after_it": FIND},
    "torch_extension.cu": {"gelu_kernel": FIND, "layer_norm_kernel": FIND},
    "pytest_modules.py": {
        "swish_kernel": FIND,
        "Gate": FIND,
        "rms_norm": FIND,
    },
    "macros.cu": {"scale_by": FIND, "transpose": FIND},
    "launch_apis.cu": {
        "by_struct": "type 'Params'",
        "gather": "needs a fill rule",
        "saxpy_c": FIND,
        "coop": "no launch of coop",
    },
    "broken.cu": {"first": "no launch", "second": "no launch", "fourth": "no launch", "fifth": "no launch"},
    "inline_sources.py": {
        "ka": "several strings",
        "kb": "f-string",
        "kc": "no string literal",
        "kd": "several strings",
        "Model": FIND,
        "Inner": "not of Inner",
    },
    "half_types.cu": {"wmma_gemm": FIND, "h2f": FIND, "bf_add": FIND},
    "branches.cu": {"fill_vec": FIND, "block_sum": FIND},
}


def language(name: str) -> str:
    return "python" if name.endswith(".py") else "cuda"


def text_of(name: str) -> str:
    return (WILD / name).read_bytes().decode()


async def offered(client: Client, uri: str, name: str) -> str:
    """What the menu says inside the code of this name: what can be done, or why nothing can."""
    text = client.texts[uri]
    heads = (f" {name}(", f"class {name}(", f"def {name}(")
    places = [text.index(head) + len(head) - 2 for head in heads if head in text]
    for place in places:
        for action in await client.actions(uri, place):
            if action["title"] == f"Find a faster version of `{name}`":
                return action["disabled"]["reason"] if "disabled" in action else FIND
    return "nothing"


async def test_what_is_offered(workplace: Workplace) -> None:
    assert {path.name for path in WILD.iterdir()} == EXPECTED.keys()
    client = await workplace.client()
    for file, expected in EXPECTED.items():
        uri = client.open(workplace.workspace / file, text_of(file), language(file))
        found = {name: await offered(client, uri, name) for name in expected}
        assert {name: said for name, said in found.items() if expected[name] not in said} == {}, file


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_file_that_is_typed_becomes_the_file_that_is_opened(workplace: Workplace, seed: int) -> None:
    client = await workplace.client(options={"trusted": True, "diagnosticsDelayMs": 0})
    draw = random.Random(seed)
    for file in EXPECTED:
        whole = client.open(workplace.workspace / file, text_of(file), language(file))
        typed = client.open(workplace.workspace / f"typed_{file}", "", language(file))
        rest = text_of(file)
        while rest:
            size = draw.choice([1, 3, 20, 100, 400])
            size += rest[:size].endswith("\r")
            at = client.position(typed, len(client.texts[typed]))
            client.change(typed, [{"range": {"start": at, "end": at}, "newText": rest[:size]}])
            rest = rest[size:]
            if draw.random() < 0.2:
                await client.lenses(typed)
        assert client.texts[typed] == client.texts[whole]
        for _ in range(200):  # plans of the last key come a moment after it
            shown = [
                await client.request("textDocument/codeLens", {"textDocument": {"uri": uri}})
                for uri in (typed, whole)
            ]
            one, other = (
                [(lens["range"], lens["command"]["title"]) for lens in lenses or []] for lenses in shown
            )
            if one == other:
                break
            await asyncio.sleep(0.05)
        assert one == other, file

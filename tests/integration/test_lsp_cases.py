"""The cases under ``tests/cases`` as an editor meets them, through the real server with a scripted engine."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from conftest import Workplace
from lsp_client import Client, encoded

pytestmark = pytest.mark.asyncio

CASES = Path(__file__).parents[1] / "cases"
NO_GAIN = {"verdict": "no_gain", "speedup": 1.01, "speedup_low": 0.97, "speedup_high": 1.05}


def case(name: str) -> str:
    return (CASES / name).read_bytes().decode()


def open_case(place: Workplace, client: Client, name: str) -> str:
    return client.open(place.workspace / name, case(name), "python" if name.endswith(".py") else "cuda")


async def search(client: Client, uri: str, offset: int) -> list[dict[str, Any]]:
    """Ask for a faster version, wait for the summary; the rewrites that are offered then."""
    find = next(a for a in await client.actions(uri, offset) if a["title"].startswith("Find a faster"))
    await client.command(find["command"])
    await client.wait(lambda: client.messages())
    return [action for action in await client.actions(uri, offset) if "edit" in action]


def core_of(text: str, opening: str) -> tuple[int, int]:
    """The text between the braces of the first body after ``opening``, whose end stands alone on its line."""
    start = text.index("{", text.index(opening)) + 1
    return start, text.index("\n}", start) + 1


@pytest.mark.parametrize(("encoding", "start"), [("utf-8", 111), ("utf-16", 107), ("utf-32", 105)])
async def test_unicode_crlf(workplace: Workplace, encoding: str, start: int) -> None:
    core = "\n  int k = blockIdx.x * 128 + threadIdx.x; // 🎯\n  if (k < n) mixed[k] = w * (first[k] - second[k]);\n"
    verdicts = {core: {"verdict": "verified", "speedup": 1.5}}
    await workplace.start_engine(cores=[core], verdicts=verdicts, newline="\r\n")
    client = await workplace.client(encoding=encoding)
    uri = open_case(workplace, client, "wide_characters.cu")
    text = client.texts[uri]
    (rewrite,) = await search(client, uri, text.index("mixed[i] ="))
    (edit,) = rewrite["edit"]["documentChanges"][0]["edits"]
    assert edit["range"]["start"] == {"line": 3, "character": start}
    assert edit["range"]["end"] == {"line": 7, "character": 0}
    client.apply(uri, rewrite["edit"])
    before, after = text.encode()[:169], text.encode()[352:]
    assert client.texts[uri].encode() == before + core.replace("\n", "\r\n").encode() + after
    generate = next(request for request in workplace.requests() if request["type"] == "generate")
    assert generate["reference"] == text.encode()[169:352].decode().replace("\r\n", "\n")


async def test_embedded_string(workplace: Workplace) -> None:
    core = (
        '\n  int i = blockIdx.x * 256 + threadIdx.x;\n  printf("%d \\"\\n", n);\n  if (i < n) o[i] = g[i];\n'
    )
    await workplace.start_engine(
        cores=[core], verdicts={"blockIdx.x * 256": {"verdict": "verified", "speedup": 1.5}}
    )
    client = await workplace.client()
    uri = open_case(workplace, client, "string_kernel.py")
    before = client.texts[uri]
    (rewrite,) = await search(client, uri, before.index("if (i < n)"))
    client.apply(uri, rewrite["edit"])
    after = client.texts[uri]
    old, new = source_of(before), source_of(after)
    start, end = old.index(") {") + 3, old.index("}\n\ntorch")
    assert new == old[:start] + core + old[end:]
    assert after[:295] == before[:295] and after.endswith(before[457:])
    generate = next(request for request in workplace.requests() if request["type"] == "generate")
    assert (
        'printf("negative size %d\\n", n)' in generate["reference"] and "\\\\n" not in generate["reference"]
    )


def source_of(text: str) -> str:
    assigned = [node for node in ast.parse(text).body if isinstance(node, ast.Assign)]
    value = next(node.value for node in assigned if getattr(node.targets[0], "id", "") == "device_code")
    return str(ast.literal_eval(value))


@pytest.mark.parametrize(
    ("name", "where", "reason"),
    [
        ("two_openings.cu", "const float b = offset", "#else"),
        ("two_openings.cu", "v[i] * g + b", "#endif"),
        ("half_typed.cu", "float v = q[", "unfinished"),
    ],
)
async def test_declined_kernels_say_why(workplace: Workplace, name: str, where: str, reason: str) -> None:
    client = await workplace.client()
    uri = open_case(workplace, client, name)
    (action,) = await client.actions(uri, client.texts[uri].index(where))
    assert reason in action["disabled"]["reason"] and "command" not in action and "edit" not in action
    assert not client.messages()


async def test_neighbours_of_declined_code_are_offered(workplace: Workplace) -> None:
    client = await workplace.client()
    for name, where, kernel in (
        ("two_openings.cu", "v[i] < 0.0f", "no_negatives"),
        ("made_by_macros.cu", "out[i] = in[i] + s", "move_up"),
        ("half_typed.cu", "q[i] *= 2.0f", "below"),
        ("row_maximum.cu", "best_of[threadIdx.x] = top", "row_maximum"),
        ("running_mean.cu", "keep * mean[i]", "running_mean"),
    ):
        uri = open_case(workplace, client, name)
        (action,) = await client.actions(uri, client.texts[uri].index(where))
        assert action["title"] == f"Find a faster version of `{kernel}`" and "disabled" not in action


async def test_macro_made_code_is_not_listed(workplace: Workplace) -> None:
    client = await workplace.client()
    uri = open_case(workplace, client, "made_by_macros.cu")
    assert await client.lenses(uri) == ["DICE: find faster"]
    for where in ("FOR_EACH(i, n) {   ", "const float x = in[i]", "DEFINE_MAP(square", "DEFINE_MAP(squash"):
        assert not [
            a for a in await client.actions(uri, client.texts[uri].index(where)) if "disabled" not in a
        ]


async def test_mid_edit_recovers_by_incremental_changes(workplace: Workplace) -> None:
    client = await workplace.client()
    uri = open_case(workplace, client, "half_typed.cu")
    text = client.texts[uri]
    assert len(await client.lenses(uri)) == 2
    offset = text.index("float v = q[") + len("float v = q[")
    for char in "i];\n    q[i] = v + v;\n  }\n}\n":
        at = client.position(uri, offset)
        client.change(uri, [{"range": {"start": at, "end": at}, "newText": char}])
        await client.actions(uri, offset)
        offset += 1
    lenses = await client.request("textDocument/codeLens", {"textDocument": {"uri": uri}})
    lines = client.texts[uri].split("\n")
    assert [lines[lens["range"]["start"]["line"]].split("(")[0] for lens in lenses] == [
        f"__global__ void {name}" for name in ("above", "unfinished_one", "below")
    ]
    assert not client.messages(), "nothing pops up while someone types"


async def test_needs_annotation(workplace: Workplace) -> None:
    client = await workplace.client(options={"trusted": True, "diagnosticsDelayMs": 10})
    uri = open_case(workplace, client, "gradients.cu")
    text = client.texts[uri]
    (find,) = await client.actions(uri, text.index("across[y * w"))
    assert find["title"] == "Find a faster version of `gradients`"
    insert, disabled = await client.actions(uri, text.index("src[(h - 1"))
    assert (
        insert["title"] == "Insert a @dice annotation above `upside_down`" and disabled["disabled"]["reason"]
    )
    assert not any("faster on" in action["title"] for action in (insert, disabled))
    await client.command(insert["command"])
    stub = client.texts[uri].removeprefix(text[: text.index("__global__ void upside_down")])
    assert stub.startswith("// @dice grid=") and stub.endswith(
        text[text.index("__global__ void upside_down") :]
    )
    for name in ("src", "dst", "w", "h", "pitch"):
        assert name in stub.split("__global__")[0]
    (find,) = await client.actions(uri, client.texts[uri].index("src[(h - 1"))
    assert find["title"] == "Find a faster version of `upside_down`"
    assert not published(client)


async def test_a_typo_names_the_known_keys(workplace: Workplace) -> None:
    client = await workplace.client(options={"trusted": True, "diagnosticsDelayMs": 10})
    text = case("gradients.cu").replace("@dice sizes(", "@dice sizse(")
    uri = client.open(workplace.workspace / "typo.cu", text, "cuda")
    await client.wait(lambda: published(client))
    first = published(client)[0]
    line = text[: text.index("sizse")].count("\n")
    assert first["range"]["start"]["line"] == first["range"]["end"]["line"] == line
    for key in ("sizes", "grid", "block", "in", "out", "inout", "tmp", "fill", "tmpl", "tol"):
        assert key in first["message"]
    (disabled,) = await client.actions(uri, text.index("across[y * w"))
    assert "sizse" in disabled["disabled"]["reason"]


def published(client: Client) -> list[dict[str, Any]]:
    found = [
        p["diagnostics"] for name, p in client.notifications if name == "textDocument/publishDiagnostics"
    ]
    return found[-1] if found else []


async def test_within_noise_nothing_is_offered_and_no_ratio_is_shown(workplace: Workplace) -> None:
    core = "\n  int k = blockIdx.x * 256 + threadIdx.x;\n  if (k < length) dst[k] = fmaf(factor, left[k], right[k]);\n"
    await workplace.start_engine(cores=[core], verdicts={core: NO_GAIN})
    client = await workplace.client()
    uri = open_case(workplace, client, "scaled_sum.cu")
    assert not await search(client, uri, client.texts[uri].index("right[k];"))
    assert client.messages() == ["`scaled_sum`: no verified rewrite: 1 no_gain"]
    shown = [*await client.lenses(uri), *(a["title"] for a in await client.actions(uri, 200))]
    assert not [one for one in shown if "1.0" in one or "faster on" in one]


async def test_moving_through_every_case_asks_nothing_of_the_engine(workplace: Workplace) -> None:
    await workplace.start_engine(cores=[], verdicts={})
    client = await workplace.client()
    for path in sorted(CASES.iterdir()):
        uri = open_case(workplace, client, path.name)
        text = client.texts[uri]
        for offset in range(0, len(text), 97):
            await client.actions(uri, offset)
        await client.lenses(uri)
        assert encoded(text, "utf-16")
    assert workplace.requests() == []


async def test_an_annotation_is_offered_only_where_it_helps(workplace: Workplace) -> None:
    """Not for a whole CUDA source, and not above an annotation that is there already."""
    client = await workplace.client()
    text = case("string_kernel.py").replace("def get_inputs", "def some_inputs")
    uri = client.open(workplace.workspace / "launched.py", text, "python")
    assert await client.lenses(uri) == ["DICE: no plan, see why", "DICE: find faster"], (
        "its host function is called"
    )
    text = text.replace("    damped<<<", "    // damped<<<").replace("o[i] = a[i]", "o[n - 1 - i] = a[i]")
    uri = client.open(workplace.workspace / "plain.py", text, "python")
    assert await client.lenses(uri) == ["DICE: no plan, see why", "DICE: no plan, add @dice"]
    (disabled,) = await client.actions(uri, text.index("#include"))
    assert "get_inputs" in disabled["disabled"]["reason"]
    insert, _ = await client.actions(uri, text.index("if (i < n)"))
    await client.command(insert["command"])
    assert await client.lenses(uri) == ["DICE: no plan, see why", "DICE: find faster"]

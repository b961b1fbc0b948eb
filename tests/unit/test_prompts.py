"""Requests to tokens in both formats, and replies back to cores."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from dice_engine.chat import core_end
from dice_engine.model.tokenizer import SPECIALS, DiceTokenizer
from dice_engine.prompts import CoreRequest, PromptError, build_prompt, core_request, parse_core

PREFIX = "".join(f"// line {i}\n" for i in range(30)) + "__global__ void k(float* x) {"
SUFFIX = "}\n" + "".join(f"// after {i}\n" for i in range(30))


@pytest.fixture(scope="module")
def tokenizer(tiny_checkpoint: Path) -> DiceTokenizer:
    return DiceTokenizer.load(tiny_checkpoint)


def split(ids: list[int], tokenizer: DiceTokenizer) -> dict[str, str]:
    """Text after each special token."""
    parts: dict[str, list[int]] = {}
    current: list[int] = []
    for i in ids:
        if i < len(SPECIALS):
            current = parts.setdefault(SPECIALS[i], [])
        else:
            current.append(i)
    return {name: tokenizer.decode(part) for name, part in parts.items()}


def test_special_tokens(tokenizer: DiceTokenizer) -> None:
    assert [tokenizer.special(s) for s in SPECIALS] == list(range(10))
    assert 0 in tokenizer.stop_ids


@pytest.mark.parametrize(
    "text", ["", "é🙂\0", "a\r\n\tb  c\n\n", "<|core|> <|endoftext|>", "x" * 300, "\u2028\x0b\f"]
)
def test_text_comes_back_exactly_and_never_as_a_special(tokenizer: DiceTokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert not ids or min(ids) >= len(SPECIALS)


@pytest.mark.parametrize("kind", ["kernel_body", "load_inline_core", "module"])
def test_fim_layout(tokenizer: DiceTokenizer, kind: str) -> None:
    ids = build_prompt(CoreRequest(kind, "pre\n", "\nsuf", "ref"), tokenizer)  # type: ignore[arg-type]
    assert ids[0] == tokenizer.special(f"<|{kind}|>") and ids[-1] == tokenizer.special("<|core|>")
    assert split(ids, tokenizer) == {
        f"<|{kind}|>": "",
        "<|reference|>": "ref",
        "<|prefix|>": "pre\n",
        "<|suffix|>": "\nsuf",
        "<|core|>": "",
    }


def test_a_selection_is_asked_for_like_a_kernel_body(tokenizer: DiceTokenizer) -> None:
    request = CoreRequest("selection", "a", "b", "c")
    assert build_prompt(request, tokenizer)[0] == tokenizer.special("<|kernel_body|>")


def test_over_budget_whole_lines_go_from_the_far_ends(tokenizer: DiceTokenizer) -> None:
    request = CoreRequest("kernel_body", PREFIX, SUFFIX, "x[0] = 1;")
    full = len(build_prompt(request, tokenizer))
    for budget in (full, full - 1, full // 2, full // 4, 60):
        ids = build_prompt(request, tokenizer, budget)
        parts = split(ids, tokenizer)
        assert len(ids) <= budget
        assert parts["<|reference|>"] == "x[0] = 1;"
        prefix, suffix = parts["<|prefix|>"], parts["<|suffix|>"]
        assert PREFIX.endswith(prefix) and (
            len(prefix) == len(PREFIX) or PREFIX[: -len(prefix) or None][-1] == "\n"
        )
        assert SUFFIX.startswith(suffix) and (suffix == SUFFIX or suffix[-1:] in ("\n", ""))
    assert "__global__" in split(build_prompt(request, tokenizer, full // 4), tokenizer)["<|prefix|>"]


def test_a_short_side_leaves_its_room_to_the_other(tokenizer: DiceTokenizer) -> None:
    request = CoreRequest("kernel_body", PREFIX, "}\n", "x")
    budget = len(build_prompt(request, tokenizer)) - 1
    parts = split(build_prompt(request, tokenizer, budget), tokenizer)
    assert parts["<|suffix|>"] == "}\n" and parts["<|prefix|>"].count("\n") == 29


def test_reference_too_long_is_said(tokenizer: DiceTokenizer) -> None:
    request = CoreRequest("kernel_body", "", "", "x = 1;\n" * 100)
    for format in ("fim", "chat"):
        with pytest.raises(PromptError, match="tokens long, the model's context"):
            build_prompt(request, tokenizer, 100, format)
    with pytest.raises(PromptError, match="format 'morse' is not known"):
        build_prompt(request, tokenizer, format="morse")


def test_reference_of_each_kind() -> None:
    assert core_request("kernel_body", "p", "c", "s").reference == "c"
    assert core_request("load_inline_core", "p", "c", "s", "class Model").reference == "class Model"
    assert core_request("load_inline_core", "p", "c", "s").reference == "c"
    assert core_request("module", "p", "", "s").reference == ""


@pytest.mark.parametrize("kind", ["kernel_body", "load_inline_core", "module"])
def test_chat_reply_is_begun_with_fence_and_prefix(tokenizer: DiceTokenizer, kind: str) -> None:
    request = CoreRequest(kind, PREFIX + "\n", SUFFIX, "class Model: pass")  # type: ignore[arg-type]
    ids = build_prompt(request, tokenizer, format="chat")
    start = tokenizer.special("<|im_start|>")
    assert ids[0] == start and ids.count(start) == 2 and ids.count(tokenizer.special("<|im_end|>")) == 1
    reply = tokenizer.decode(ids[len(ids) - ids[::-1].index(start) :])
    assert reply == f"assistant\n```{'cpp' if kind == 'kernel_body' else 'python'}\n{PREFIX}\n"
    budget = len(ids) - 150
    shorter = build_prompt(request, tokenizer, budget, "chat")
    assert budget - 300 < len(shorter) <= budget


@pytest.mark.parametrize(
    ("kind", "text", "core"),
    [
        ("load_inline_core", 'src = """\nvoid f() {}\n"""\n\ncpp = "x"', 'src = """\nvoid f() {}\n"""'),
        ("load_inline_core", "src = r'''a \"\"\" b'''\nmore", "src = r'''a \"\"\" b'''"),
        ("load_inline_core", 'src = """a \\""" b"""rest', 'src = """a \\""" b"""'),
        ("load_inline_core", 'src = """a', None),
        ("kernel_body", "\n  if (a) { b(); }\n}\nvoid run() {}", "\n  if (a) { b(); }\n"),
        ("kernel_body", "\n // }\n /* } */ s = \"}\"; c = '}'; }", "\n // }\n /* } */ s = \"}\"; c = '}'; "),
        ("kernel_body", "if (a) { b(); }", None),
        ("module", "\nclass ModelNew: pass\n```\nThat is it.", "\nclass ModelNew: pass\n"),
        ("module", "\nclass ModelNew: pass\n\ndef get_inputs():\n  x", "\nclass ModelNew: pass\n\n"),
        ("module", "\nclass ModelNew", None),
    ],
)
def test_chat_core_end(kind: str, text: str, core: str | None) -> None:
    suffix = "\n\ndef get_inputs():\n    return []\n"
    end = core_end(kind, text, suffix)  # type: ignore[arg-type]
    assert (None if end is None else text[:end]) == core
    expected = text if core is None else core
    assert parse_core(kind, text, "chat", suffix) == expected  # type: ignore[arg-type]


def test_fim_reply_is_the_core() -> None:
    assert parse_core("kernel_body", " x; }\n``` ") == " x; }\n``` "


def test_a_core_that_has_begun_stands_at_the_end_of_the_prompt(tokenizer: DiceTokenizer) -> None:
    request = CoreRequest("kernel_body", "pre\n", "\nsuf", "ref", begin="\n  int i = ")
    ids = build_prompt(request, tokenizer)
    assert ids[: ids.index(tokenizer.special("<|core|>")) + 1] == build_prompt(
        replace(request, begin=""), tokenizer
    )
    assert tokenizer.decode(ids).endswith("\n  int i = ")
    long = replace(request, prefix="// a line of text\n" * 200)
    assert len(build_prompt(long, tokenizer, 200)) <= 200

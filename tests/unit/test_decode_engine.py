"""The engine: checkpoint + prompts + decoder, and `dice generate` on top of it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import dice_engine
import pytest
import torch
from dice_engine import generate
from dice_engine.engine import BlockProgress, Candidate, Engine
from dice_engine.model.config import CheckpointError
from dice_engine.prompts import CoreRequest, PromptError, build_prompt

REQUEST = CoreRequest("kernel_body", "__global__ void k(float* x) {", "}", " x[0] = 1; ")


@pytest.fixture(scope="module")
def engine(tiny_checkpoint: Path) -> Engine:
    return Engine.load(tiny_checkpoint, device="cpu")


def test_first_is_greedy_the_rest_are_seeded(engine: Engine) -> None:
    options = {"temperature": 0.8, "max_new_tokens": 24}
    found = engine.candidates(REQUEST, n=4, seed=7, **options)
    assert [c.index for c in found] == [0, 1, 2, 3]
    prompt = build_prompt(REQUEST, engine.tokenizer)
    assert found[0].tokens == engine.model.generate(prompt, 24).tokens[0]
    assert found[2].tokens == engine.model.generate(prompt, 24, temperature=0.8, seed=9).tokens[0]
    assert found == [
        Candidate(**{**again.__dict__, "seconds": c.seconds})
        for again, c in zip(engine.candidates(REQUEST, n=4, seed=7, **options), found, strict=True)
    ]
    for c in found:
        assert c.core == engine.tokenizer.decode(c.tokens) and len(c.step_map) == len(c.tokens)
        assert c.complete == (c.tokens[-1] == 0)
    assert engine.candidates(REQUEST, n=4, seed=8, **options)[1].tokens == found[2].tokens


@pytest.mark.parametrize("begin", ["", "float y = "])
def test_without_a_temperature_the_others_leave_the_first(engine: Engine, begin: str) -> None:
    request = replace(REQUEST, begin=begin)
    seen: list[BlockProgress] = []
    first, *others = engine.candidates(request, n=6, max_new_tokens=60, on_block=seen.append)
    prompt = [*build_prompt(REQUEST, engine.tokenizer), *engine.tokenizer.encode(begin)]
    assert first.tokens == engine.model.generate(prompt, 60).tokens[0]
    assert [c.index for c in others] == list(range(1, 6))
    assert len({tuple(c.tokens) for c in (first, *others)}) == 6
    for c in others:
        place = next(i for i, (a, b) in enumerate(zip(first.tokens, c.tokens, strict=False)) if a != b)
        taken = [*first.tokens[:place], c.tokens[place]]
        assert c.tokens[place] not in engine.tokenizer.stop_ids
        assert c.tokens == engine.model.generate(prompt, 60, forced=taken).tokens[0], "greedy from there on"
        assert c.step_map[: place + 1] == [*first.step_map[:place], 0] and len(c.step_map) == len(c.tokens)
        assert c.core == engine.tokenizer.decode(c.tokens)
    for c in (first, *others):
        mine = [p for p in seen if p.candidate == c.index]
        assert [t for p in mine for t in p.new] == c.tokens
        assert [s for p in mine for s in p.steps] == c.step_map
    fewer = engine.candidates(request, n=3, max_new_tokens=60)
    assert [c.tokens for c in fewer] == [c.tokens for c in (first, *others[:2])], "the likeliest come first"


def test_fewer_candidates_where_there_is_no_room_to_differ(engine: Engine) -> None:
    assert len(engine.candidates(REQUEST, n=8, max_new_tokens=1)) == 1
    assert len(engine.candidates(REQUEST, n=8, max_new_tokens=2)) == 3
    assert len(engine.candidates(REQUEST, n=1, max_new_tokens=8)) == 1


def test_memory_that_runs_out_at_a_fork_ends_its_request_only(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("no memory")

    other = engine.submit(REQUEST, 3, temperature=0.8, max_new_tokens=24)
    monkeypatch.setattr("dice_engine.engine.forks", exhausted)
    with pytest.raises(torch.OutOfMemoryError):
        engine.candidates(REQUEST, 3, max_new_tokens=16)
    while not other.done:
        engine.step()
    assert other.error is None and other.finished == 3


def test_many_requests_give_what_each_gives_alone(engine: Engine) -> None:
    requests = [
        CoreRequest(REQUEST.kind, "// padding\n" * i + REQUEST.prefix, REQUEST.suffix, REQUEST.reference)
        for i in range(5)
    ]
    heard: list[int] = []
    many = engine.candidates_many(requests, 3, 5, heard.append, max_new_tokens=30)
    assert heard == sorted(heard) and heard[-1] == 5
    for request, found in zip(requests, many, strict=True):
        alone = engine.candidates(request, 3, 5, max_new_tokens=30)
        assert [(c.index, c.core, c.step_map, c.complete) for c in found] == [
            (c.index, c.core, c.step_map, c.complete) for c in alone
        ]
    with pytest.raises(PromptError):
        engine.candidates_many([REQUEST, CoreRequest("kernel_body", "", "", "x[i] = 1;\n" * 400)], 2)
    assert engine.candidates(REQUEST, 1, max_new_tokens=8)


def test_stop_texts(engine: Engine) -> None:
    whole = engine.candidates(REQUEST, n=3, seed=7, temperature=0.8, max_new_tokens=40)
    for c in whole:
        for length in (1, 3):
            stop = c.core[len(c.core) // 2 :][:length]
            stops = ["no such text", stop]
            found = engine.candidates(REQUEST, 3, 7, temperature=0.8, max_new_tokens=40, stop=stops)
            for cut, full in zip(found, whole, strict=True):
                assert cut.core == full.core.partition(stop)[0]
                assert full.tokens[: len(cut.tokens)] == cut.tokens
                assert cut.complete == (full.complete or stop in full.core)


def test_a_core_whose_beginning_is_given(engine: Engine) -> None:
    begin = "float y = "
    found = engine.candidates(replace(REQUEST, begin=begin), n=2, max_new_tokens=24)
    prompt = [*build_prompt(REQUEST, engine.tokenizer), *engine.tokenizer.encode(begin)]
    assert found[0].tokens == engine.model.generate(prompt, 24).tokens[0]
    assert found[0].core == engine.tokenizer.decode(found[0].tokens)


def test_progress_for_each_block_and_cancel(engine: Engine) -> None:
    seen: list[BlockProgress] = []
    found = engine.candidates(REQUEST, n=2, max_new_tokens=32, on_block=seen.append)
    for c in found:
        counts = [p.tokens for p in seen if p.candidate == c.index]
        assert counts == sorted(counts) and counts[-1] == len(c.tokens)
    assert seen[-1].finished == seen[-1].n == 2
    few: list[BlockProgress] = []
    assert (
        engine.candidates(REQUEST, 2, max_new_tokens=400, on_block=few.append, cancelled=lambda: len(few) > 3)
        == []
    )
    assert len(few) == 4


def test_context_bounds_prompt_and_reply(engine: Engine) -> None:
    long = CoreRequest("kernel_body", "// a line of text\n" * 200 + "void k() {", "}", "x")
    found = engine.candidates(long, n=1, max_new_tokens=100)
    assert len(found[0].tokens) <= 100
    with pytest.raises(PromptError, match="tokens long"):
        engine.candidates(CoreRequest("kernel_body", "", "", "x[i] = 1;\n" * 400), n=1)


def test_chat_checkpoints_stop_where_the_core_ends(tiny_checkpoint: Path, tmp_path: Path) -> None:
    folder = tmp_path / "chat"
    shutil.copytree(tiny_checkpoint, folder)
    config = json.loads((folder / "config.json").read_text())
    del config["dice"]
    config["max_position_embeddings"] = 4000
    (folder / "config.json").write_text(json.dumps(config))
    engine = Engine.load(folder, device="cpu")
    assert engine.format == "chat"
    found = engine.candidates(REQUEST, n=3, max_new_tokens=200)
    assert len(found) == 3
    for c in found:
        text = engine.tokenizer.decode(c.tokens)
        assert text.startswith(c.core) and (c.core.count("}") <= c.core.count("{"))


def test_load_errors(tiny_checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such checkpoint folder"):
        dice_engine.load(tmp_path / "no")
    with pytest.raises(CheckpointError, match="dtype 'int4' is none of"):
        dice_engine.load(tiny_checkpoint, dtype="int4")
    shutil.copytree(tiny_checkpoint, tmp_path / "c")
    (tmp_path / "c" / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"no tokenizer\.json"):
        Engine.load(tmp_path / "c", "cpu")


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = generate.main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def test_generate_command(tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "in.json"
    file.write_text(json.dumps({"prefix": "void k() {", "suffix": "}\n", "core": "x = 1;"}))
    common = ["--infill", str(file), "--checkpoint", str(tiny_checkpoint), "--device", "cpu", "-n", "2"]
    common += ["--max-new-tokens", "16"]
    more = ["--strategy", "sequential", "--steps", "2", "--top-k", "5", "--begin", "float", "--stop", ";"]
    _, out, _ = run([*common, "--json", *more], capsys)
    assert all(c["core"].startswith("float") and ";" not in c["core"] for c in json.loads(out)["candidates"])
    code, _, err = run([*common, "--top-p", "0"], capsys)
    assert code == 2 and "top_p" in err and err.count("\n") == 1
    code, out, _ = run([*common, "--json", "--seed", "3"], capsys)
    report = json.loads(out)
    assert code in (0, 1) and len(report["candidates"]) == 2
    for c in report["candidates"]:
        assert c["program"] == "void k() {" + c["core"] + "}\n"
    code, out, _ = run(common, capsys)
    assert "--- candidate 1:" in out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "not a JSON object"),
        ('{"prefix": "a"}', 'no text "suffix"'),
        ('{"prefix": "a", "suffix": "b"}', "says nothing about what to write"),
        ('{"prefix": "a", "suffix": "b", "core": 5}', '"core" is not text'),
        ('{"prefix": "a", "suffix": "b", "core": "", "kind": "poem"}', "'poem', it can be kernel_body"),
    ],
)
def test_generate_input_errors(
    content: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.json").write_text(content)
    code, _, err = run(["--infill", str(tmp_path / "in.json")], capsys)
    assert code == 2 and message in err and err.count("\n") == 1
    code, _, err = run(["--infill", str(tmp_path / "nothing.json")], capsys)
    assert code == 2 and "cannot read" in err

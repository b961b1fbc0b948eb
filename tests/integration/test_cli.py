"""``dice`` from the outside: exit codes, one clear line on errors, JSON, and ``suggest`` end to end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Workplace

EXAMPLES = Path(__file__).parents[2] / "examples"
NANO = Path(__file__).parents[2] / "engine/dice_engine/checkpoints/nano/model.safetensors"
FILE = """__global__ void twice(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i] * 2.0f;
}

void run_twice(const float* in, float* out, int n, cudaStream_t s) {
  twice<<<(n + 255) / 256, 256, 0, s>>>(in, out, n);
}
"""
FAST = (
    "\n  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += 256 * gridDim.x) out[i] = in[i] + in[i];\n"
)
WRONG = "\n  out[0] = 1;\n"
VERDICTS = {
    FAST: {"verdict": "verified", "speedup": 1.4, "reference_ms": 0.7, "candidate_ms": 0.5},
    WRONG: {"verdict": "mismatch", "rule": "values", "reason": "out differs everywhere"},
}


def dice(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    # readline, which pytest imports, sets COLUMNS
    inherited = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    return subprocess.run(
        [sys.executable, "-m", "dice_ls.cli", *arguments],
        env={**inherited, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=120,
    )


def suggest(place: Workplace, *arguments: str) -> subprocess.CompletedProcess[str]:
    return dice("suggest", *arguments, environment=place.environment)


@pytest.fixture
def source(workplace: Workplace) -> Path:
    path = workplace.workspace / "twice.cu"
    path.write_text(FILE)
    return path


def test_bad_use_is_one_line_and_exit_2(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("hello")
    latin = tmp_path / "latin.cu"
    latin.write_bytes(b"// caf\xe9\n")
    for arguments in (
        ("bench", "everything"),
        ("suggest", str(tmp_path / "none.cu")),
        ("suggest", str(text)),
        ("suggest", str(latin)),
    ):
        result = dice(*arguments)
        assert result.returncode == 2, arguments
        assert len(result.stderr.strip().splitlines()) == 1, result.stderr
        assert "Traceback" not in result.stderr
    assert dice("unknown").returncode == 2
    assert dice().returncode == 2
    assert dice("suggest", str(text), "-n", "0").returncode == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("suggest FILE:9", "no line 9, the last is 8"),
        ("suggest FILE:0", "no line 0"),
        ("suggest FILE -n x", "-n: expected a whole number from 1 to 64, not 'x'"),
        ("suggest FILE -n 65", "from 1 to 64"),
        ("suggest FILE --device tpu", "tpu"),
        ("suggest", "FILE"),
        ("suggest FOLDER", "Is a directory"),
        ("holes", "FILE"),
        ("holes FOLDER", "Is a directory"),
        ("generate --reference FILE -n 0", "of at least 1"),
        ("serve --idle-seconds soon", "'soon'"),
        ("doctor now", "now"),
        ("report FILE --out FILE", "a page named like a source"),
        ("unknown", "unknown"),
    ],
)
def test_bad_arguments_are_one_line_that_names_them(source: Path, arguments: str, said: str) -> None:
    words = arguments.replace("FILE", str(source)).replace("FOLDER", str(source.parent)).split()
    result = dice(*words)
    assert result.returncode == 2 and not result.stdout
    (line,) = result.stderr.strip().splitlines()
    assert said in line and line.startswith("dice"), line


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_file_that_cannot_be_written_is_refused_before_the_search(
    workplace: Workplace, source: Path
) -> None:
    source.chmod(0o444)
    result = suggest(workplace, str(source), "--apply")
    assert result.returncode == 2 and "cannot write" in result.stderr
    assert workplace.requests() == []


def test_help_and_version() -> None:
    assert "suggest" in dice("--help").stdout
    assert dice("--version").stdout.startswith("dice ")


def test_holes_run_without_torch(source: Path) -> None:
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from dice_ls.cli import main\n"
        f"sys.exit(main(['holes', {str(source)!r}, '--json']))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    (hole,) = json.loads(result.stdout)
    assert (hole["name"], hole["editable"], hole["plan"]["source"]) == ("twice", True, "launch")


@pytest.mark.parametrize("command", [["suggest", "FILE"], ["generate", "--reference", "FILE"], ["serve"]])
def test_without_torch_the_engine_is_asked_for(
    workplace: Workplace, source: Path, command: list[str]
) -> None:
    arguments = [str(source) if word == "FILE" else word for word in command]
    program = (
        "import sys; sys.modules['torch'] = None\n"
        f"from dice_ls.cli import main\nsys.exit(main({arguments!r}))"
    )
    environment = {**os.environ, **workplace.environment}
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 2
    (line,) = result.stderr.strip().splitlines()
    assert "pip install 'dice-ls[engine]'" in line


def test_exit_codes_of_parts_are_passed_on(tmp_path: Path) -> None:
    result = dice("verify", str(tmp_path / "a.cu"), str(tmp_path / "b.cu"))
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


NORM = """
import torch
class Norm(torch.nn.Module):
    def forward(self, x):
        return x.tanh()
def get_inputs():
    return [torch.randn(8, 8)]
def get_init_inputs():
    return []
"""
NEW = "import os, torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        os.system('true')\n"


def test_verify_blames_no_candidate_for_the_reference_or_the_machine(tmp_path: Path) -> None:
    texts = {
        "a.cu": "__global__ void k(int* p) { p[0] = 1; }\n",
        "b.cu": FILE,
        "two.py": NORM + NORM.replace("Norm", "Other"),
    }
    texts |= {"broken.py": "def f(\n", "new.py": NEW}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    path = {name: str(tmp_path / name) for name in texts}
    no_plan = dice("verify", "--json", path["a.cu"], path["a.cu"])
    assert no_plan.returncode == 2 and json.loads(no_plan.stdout)["verdict"] == "no_plan"
    assert no_plan.stderr.startswith("dice verify: cannot be checked: ") and no_plan.stderr.count("\n") == 1
    bare = dice(
        "verify",
        "--no-cache",
        "--json",
        "--device",
        "cpu",
        path["b.cu"],
        path["b.cu"],
        environment={"PATH": "/"},
    )
    assert bare.returncode == 2 and json.loads(bare.stdout)["verdict"] == "infra_error"
    two = dice("verify", path["two.py"], path["new.py"])
    assert (
        two.returncode == 2
        and "has no class Model derived from nn.Module; it has Norm and Other" in two.stderr
    )
    broken = dice("verify", path["broken.py"], path["new.py"])
    assert broken.returncode == 2 and "broken.py: line 1: '(' was never closed" in broken.stderr


def test_what_a_text_gives_away_is_refused_before_torch_is_imported(tmp_path: Path) -> None:
    texts = {
        "norm.py": NORM,
        "new.py": NEW,
        "a.cu": FILE,
        "b.cu": FILE.replace("<<<", "<<<system(0),"),
        "torch.py": "assert False",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    for pair in (("norm.py", "new.py"), ("a.cu", "b.cu")):
        places = [str(tmp_path / name) for name in pair]
        done = dice("verify", *places, "--json", environment={"PYTHONPATH": str(tmp_path)})
        assert done.returncode == 1, done.stderr
        assert json.loads(done.stdout)["verdict"] == "unsafe"


def test_holes_of_a_class_are_listed_where_it_stands(tmp_path: Path) -> None:
    (tmp_path / "norm.py").write_text(NORM)
    assert dice("holes", str(tmp_path / "norm.py")).stdout.splitlines()[1].split()[0] == "3-5"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "a.py",
            "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x:\n        return x\n",
            "line 3: '(",
        ),
        ("b.py", NORM + "x = = 3\n", "line 10: invalid syntax"),
        ("c.cu", "int f() {\n  return (1;\n}\n", "line 3: unmatched '}'"),
        ("d.cu", "/* nothing\n", "line 1: a comment is never closed"),
        ("e.cu", "// " + "x" * (3 << 20), "too large: 3.0 MiB, files of at most 2 MiB are read"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line_with_its_place(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    (tmp_path / name).write_text(text)
    answers = [dice(command, str(tmp_path / name)) for command in ("holes", "suggest")]
    assert [answer.returncode for answer in answers] == [2, 2]
    lines = [answer.stderr.split(": ", 1) for answer in answers]
    assert [start for start, _ in lines] == ["dice holes", "dice suggest"]
    assert lines[0][1] == lines[1][1] and said in lines[0][1] and lines[0][1].count("\n") == 1


def test_verify_reads_the_headers_of_the_project(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "kernels").mkdir()
    (tmp_path / "block.h").write_text("constexpr int kBlock = 64;\n")
    (tmp_path / "main.cu").write_text(
        '#include "kernels/twice.cuh"\n#include "block.h"\n'
        "void run(float* x, int n) { twice<<<(n + kBlock - 1) / kBlock, kBlock>>>(x, n); }\n"
    )
    text = "__global__ void twice(float* x, int n) {\n  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    text += "  if (i < n) x[i] *= 2;\n}\n"
    header, other = tmp_path / "kernels" / "twice.cuh", tmp_path / "other.cuh"
    header.write_text(text)
    other.write_text(text.replace("x[i] *= 2", "x[i] *= 3"))
    result = dice("verify", str(header), str(other), "--device", "cpu", "--no-cache", "--json")
    assert json.loads(result.stdout)["verdict"] == "mismatch", result.stdout + result.stderr


def test_verify_runs_what_main_runs(tmp_path: Path) -> None:
    text = "__global__ void twice(float* x, int n) {\n  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    text += "  if (i < n) x[i] *= 2;\n}\nint main() {\n  int n = 1 << 20;\n  float* x;\n"
    text += "  cudaMalloc(&x, n * sizeof(float));\n  twice<<<n / 256, 256>>>(x, n);\n  return 0;\n}\n"
    one, other = tmp_path / "one.cu", tmp_path / "other.cu"
    one.write_text(text)
    other.write_text(text.replace("if (i < n) x[i] *= 2", "x[i] = 2 * x[i]"))
    result = dice("verify", str(one), str(other), "--device", "cpu", "--no-cache", "--json")
    assert json.loads(result.stdout)["verdict"] == "correct_unmeasured", result.stdout + result.stderr
    other.write_text(text.replace("x[i] *= 2", "x[i] *= 3"))
    result = dice("verify", str(one), str(other), "--device", "cpu", "--no-cache", "--json")
    assert json.loads(result.stdout)["verdict"] == "mismatch", result.stdout + result.stderr


@pytest.mark.parametrize(
    ("name", "contents", "words"),
    [
        ("model.safetensors", None, "model.safetensors is cut short"),
        ("config.json", "{", "config.json cannot be read"),
        ("tokenizer.json", "", "tokenizer.json cannot be read"),
    ],
)
def test_doctor_sees_a_broken_checkpoint(tmp_path: Path, name: str, contents: str | None, words: str) -> None:
    for file in NANO.parent.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    broken = tmp_path / name
    broken.write_bytes(broken.read_bytes()[:-1000] if contents is None else contents.encode())
    result = dice("doctor", "--json", "--checkpoint", str(tmp_path))
    (found,) = (check for check in json.loads(result.stdout)["checks"] if check["name"] == "checkpoint")
    assert found["state"] == "missing" and words in found["detail"], found


def test_doctor_names_what_is_missing(tmp_path: Path) -> None:
    empty = tmp_path / "bin"
    empty.mkdir()
    result = dice("doctor", "--json", "--checkpoint", str(tmp_path), environment={"PATH": str(empty)})
    assert result.returncode == 1
    report = json.loads(result.stdout)
    checks = {check["name"]: check for check in report["checks"]}
    assert not report["ok"]
    assert {"python", "torch", "checkpoint", "g++", "GPU", "NVRTC", "nvcc", "sandbox"} <= set(checks)
    assert checks["g++"]["state"] == "missing" and "apt install g++" in checks["g++"]["advice"]
    assert checks["checkpoint"]["state"] == "missing" and str(tmp_path) in checks["checkpoint"]["detail"]
    assert "what to do" in dice("doctor").stdout


@pytest.mark.asyncio
async def test_suggest_reports_every_candidate(workplace: Workplace, source: Path) -> None:
    await workplace.start_engine(cores=[WRONG, FAST], verdicts=VERDICTS)
    result = suggest(workplace, str(source), "--json")
    assert result.returncode == 0, result.stderr
    report: dict[str, Any] = json.loads(result.stdout)
    assert set(report) == {"file", "hole", "device", "candidates", "best"}
    assert report["hole"]["name"] == "twice" and report["hole"]["line"] == 1
    assert report["best"] == 1 and report["device"] == "NVIDIA H200"
    assert [one["verdict"]["verdict"] for one in report["candidates"]] == ["mismatch", "verified"]
    assert report["candidates"][1]["core"] == FAST and report["candidates"][1]["seconds"] >= 0
    assert source.read_text() == FILE


@pytest.mark.asyncio
async def test_suggest_shows_a_table_and_the_diff_and_applies(workplace: Workplace, source: Path) -> None:
    await workplace.start_engine(cores=[WRONG, FAST], verdicts=VERDICTS)
    source.chmod(0o640)
    result = suggest(workplace, f"{source}:3", "--apply")
    assert result.returncode == 0, result.stderr
    for shown in (
        "verified",
        "1.40x",
        "mismatch",
        "out differs",
        "1 of 2 candidates verified",
        "+  for (int i",
    ):
        assert shown in result.stdout, result.stdout
    start, end = FILE.index("{") + 1, FILE.index("}\n\nvoid")
    assert source.read_text() == FILE[:start] + FAST + FILE[end:]
    assert source.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in source.parent.iterdir()] == ["twice.cu"]


@pytest.mark.asyncio
async def test_without_a_place_the_cuda_source_comes_before_the_module(workplace: Workplace) -> None:
    """The plain Model of a file that has a CUDA version is no default and cannot be rewritten beside it."""
    await workplace.start_engine(cores=[], verdicts={})
    source = workplace.workspace / "gated.py"
    source.write_bytes((EXAMPLES / "gated_rms_norm.py").read_bytes())
    result = suggest(workplace, str(source), "--json")
    assert json.loads(result.stdout)["hole"]["kind"] == "load_inline_core", result.stderr
    line = 1 + source.read_text().splitlines().index("class Model(nn.Module):")
    refused = suggest(workplace, f"{source}:{line}")
    assert refused.returncode == 1 and "rewrite that one" in refused.stderr
    assert [request["kind"] for request in workplace.requests() if "kind" in request] == ["load_inline_core"]


@pytest.mark.asyncio
async def test_equal_candidates_share_a_row(workplace: Workplace, source: Path) -> None:
    await workplace.start_engine(cores=[WRONG, FAST, WRONG, FAST], verdicts=VERDICTS)
    result = suggest(workplace, str(source))
    rows = [
        line.split()[:3] for line in result.stdout.splitlines() if " verified " in line or " mismatch" in line
    ]
    assert rows[:2] == [["1,", "3", "verified"], ["0,", "2", "mismatch"]]


@pytest.mark.asyncio
async def test_suggest_says_no_with_exit_1(workplace: Workplace, source: Path) -> None:
    await workplace.start_engine(cores=[WRONG], verdicts=VERDICTS)
    result = suggest(workplace, str(source), "--apply")
    assert result.returncode == 1
    assert "no verified rewrite: 1 mismatch" in result.stdout
    assert source.read_text() == FILE


@pytest.mark.asyncio
async def test_suggest_refuses_places_without_a_hole(workplace: Workplace, source: Path) -> None:
    await workplace.start_engine(cores=[FAST], verdicts=VERDICTS)
    elsewhere = suggest(workplace, f"{source}:7:1")
    assert elsewhere.returncode == 2 and "`twice`" in elsewhere.stderr
    assert suggest(workplace, f"{source}:99").returncode == 2
    flip = source.with_name("flip.cu")
    flip.write_text("__global__ void flip(float* d, int w, int h, int s) {\n  d[s] = d[w + h];\n}\n")
    no_plan = suggest(workplace, str(flip))
    assert no_plan.returncode == 1 and "cannot be checked" in no_plan.stderr
    assert workplace.requests() == []


def test_suggest_with_a_real_engine_that_writes_nonsense(
    workplace: Workplace, source: Path, tiny_checkpoint: Path
) -> None:
    """Random weights: the engine process is started, decodes, judges, and the answer is an honest no."""
    options = ("--checkpoint", str(tiny_checkpoint), "--device", "cpu", "-n", "2", "--json")
    try:
        result = suggest(workplace, str(source), *options)
        assert result.returncode == 1, result.stderr
        report = json.loads(result.stdout)
        assert report["best"] is None and len(report["candidates"]) == 2
        assert all(one["verdict"]["verdict"] != "infra_error" for one in report["candidates"]), report
        bad = suggest(workplace, str(source), "--checkpoint", str(source.parent))
        assert bad.returncode == 2 and len(bad.stderr.strip().splitlines()) == 1, bad.stderr
    finally:
        workplace.stop_real_engine()


@pytest.mark.skipif(not NANO.exists(), reason="the embedded checkpoint is not in this tree")
def test_suggest_with_the_embedded_model(workplace: Workplace, source: Path) -> None:
    """The whole thread: the real engine process decodes with nano, g++ builds, the judge compares.

    A checkpoint that finds nothing must say so; every candidate has a verdict of its own either way.
    """
    try:
        result = suggest(workplace, str(source), "--json", "--device", "cpu", "-n", "2", "--apply")
        report = json.loads(result.stdout)
        verdicts = [one["verdict"] for one in report["candidates"]]
        assert len(verdicts) == 2 and all(one["verdict"] != "infra_error" for one in verdicts), report
        if report["best"] is None:
            assert result.returncode == 1 and source.read_text() == FILE
            return
        assert result.returncode == 0, result.stderr
        best = report["candidates"][report["best"]]
        assert best["verdict"]["verdict"] == "correct_unmeasured" and best["verdict"]["speedup"] is None
        assert best["verdict"]["trials"] >= 5
        start, end = report["hole"]["start_byte"], report["hole"]["end_byte"]
        assert source.read_text() == FILE[:start] + best["core"] + FILE[end:]
    finally:
        workplace.stop_real_engine()

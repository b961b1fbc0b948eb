"""Modules of many kinds against their rewrites; what cannot be verified says why; cache and command line."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dice_engine.verify.cache import VerdictCache
from dice_engine.verify.session import VerifySession
from dice_engine.verify.verdict import Verdict

sys.path.insert(0, str(Path(__file__).parents[1]))
from candidates import HONEST, REFERENCE, module

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the CPU backend needs g++")

CASES = Path(__file__).parents[1] / "cases"


@pytest.fixture(scope="module")
def session() -> Iterator[VerifySession]:
    with VerifySession("cpu", timeout=20.0) as opened:
        yield opened


def reference(forward: str, inputs: str, init: str = "pass") -> str:
    return f"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x, *more):
        {forward}


def get_inputs():
    return [{inputs}]
"""


def rewrite(forward: str, cuda: str, functions: str, init: str = "pass") -> str:
    """A candidate whose CUDA source binds ``functions`` (comma separated)."""
    return f'''
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

ext = load_inline("ext", cpp_sources="", cuda_sources=r"""
#include <torch/extension.h>
{cuda}
""", functions={functions.split(",")!r})


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x, *more):
        {forward}
'''


RELU = """
__global__ void relu_all(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = fmaxf(x[i], 0.0f);
}
torch::Tensor relu_(torch::Tensor x) {
  auto c = x.contiguous();
  auto y = torch::empty_like(c);
  relu_all<<<(c.numel() + 127) / 128, 128>>>(c.data_ptr<float>(), y.data_ptr<float>(), c.numel());
  return y;
}
"""


def passed(session: VerifySession, wanted: str, candidate: str) -> str:
    found = session.verify_module(wanted, candidate)
    assert found.verdict == "correct_unmeasured", found
    return found.reason


def test_weights_come_from_the_reference_and_kept_operators_are_named(session: VerifySession) -> None:
    wanted = reference("return F.relu(self.lin(x))", "torch.randn(8, 16)", "self.lin = nn.Linear(16, 24)")
    candidate = rewrite(
        "return ext.relu_(self.lin(x))", RELU, "relu_", "torch.randn(3); self.lin = nn.Linear(16, 24)"
    )
    assert "addmm" in passed(session, wanted, candidate)


def test_buffers_are_copied_and_eval_mode_holds(session: VerifySession) -> None:
    init = "self.bn = nn.BatchNorm1d(16); self.bn.running_mean.uniform_(); self.drop = nn.Dropout(0.5)"
    wanted = reference("return F.relu(self.drop(self.bn(x)))", "torch.randn(8, 16)", init)
    candidate = rewrite("return ext.relu_(self.bn(x))", RELU, "relu_", "self.bn = nn.BatchNorm1d(16)")
    passed(session, wanted, candidate)


AFFINE = """
__global__ void affine_all(const float* x, const float* w, const float* b, float* y, int n, int d) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = fmaxf(x[i], 0.0f) * w[i % d] + b[i % d];
}
torch::Tensor affine(torch::Tensor x, torch::Tensor w, torch::Tensor b) {
  auto y = torch::empty_like(x);
  affine_all<<<(x.numel() + 127) / 128, 128>>>(x.data_ptr<float>(), w.data_ptr<float>(), b.data_ptr<float>(),
                                               y.data_ptr<float>(), x.numel(), x.size(1));
  return y;
}
"""
EVEN = "self.w = nn.Parameter(torch.ones(33)); self.b = nn.Parameter(torch.zeros(33))"
TRAINABLE = reference("return F.relu(x) * self.w + self.b", "torch.randn(40, 33)", EVEN)


@pytest.mark.parametrize("source", [AFFINE.replace("w[i % d]", "w[0]"), AFFINE.replace(" + b[i % d]", "")])
def test_weights_that_are_even_when_new_must_be_read(session: VerifySession, source: str) -> None:
    found = session.verify_module(
        TRAINABLE, rewrite("return ext.affine(x, self.w, self.b)", source, "affine", EVEN)
    )
    assert found.verdict == "mismatch" and "on other weights" in found.reason, found


@pytest.mark.parametrize(
    ("forward", "init"),
    [
        ("return ext.affine(x, self.w, self.b)", EVEN),
        (
            "return ext.affine(x, self.weight, self.bias)",
            "self.bias = nn.Parameter(torch.zeros(33)); self.weight = nn.Parameter(torch.ones(33))",
        ),
        (
            "self.packed = self.packed or [self.w.clone(), self.b.clone()]; return ext.affine(x, *self.packed)",
            f"{EVEN}; self.packed = None",
        ),
    ],
)
def test_weights_may_have_other_names_and_be_packed_at_the_first_call(
    session: VerifySession, forward: str, init: str
) -> None:
    passed(session, TRAINABLE, rewrite(forward, AFFINE, "affine", init))


@pytest.mark.parametrize(
    ("forward", "answer"),
    [
        ("return F.relu(x), x + 1", "return ext.relu_(x), x + 1"),
        ("return [F.relu(x), None, 3]", "return [ext.relu_(x), None, 3]"),
        ("return {'a': F.relu(x)}", "return {'a': ext.relu_(x)}"),
        ("return F.relu(x).argmax(1)", "return ext.relu_(x).argmax(1)"),
        ("return F.relu(x) > 0.5", "return ext.relu_(x) > 0.5"),
        ("return F.relu(x).t()", "return ext.relu_(x).t().contiguous()"),
    ],
)
def test_outputs_of_every_kind(session: VerifySession, forward: str, answer: str) -> None:
    passed(session, reference(forward, "torch.randn(40, 33)"), rewrite(answer, RELU, "relu_"))


def test_inputs_that_are_not_contiguous_or_not_floating(session: VerifySession) -> None:
    wanted = reference(
        "return F.relu(x) + more[0][:, None] * more[1]",
        "torch.randn(33, 40).t(), torch.randint(0, 5, (40,)), True",
    )
    candidate = rewrite("return ext.relu_(x) + more[0][:, None] * more[1]", RELU, "relu_")
    passed(session, wanted, candidate)


def test_a_reference_that_works_in_place_allows_it(session: VerifySession) -> None:
    cuda = RELU.replace("auto y = torch::empty_like(c);", "auto y = c;")
    wanted = reference("return F.relu_(x)", "torch.randn(40, 33)")
    passed(session, wanted, rewrite("return ext.relu_(x)", cuda, "relu_"))
    honest = reference("return F.relu(x)", "torch.randn(40, 33)")
    found = session.verify_module(honest, rewrite("return ext.relu_(x)", cuda, "relu_"))
    assert (found.verdict, found.rule) == ("mismatch", "input_mutation")


def test_half_and_double(session: VerifySession) -> None:
    for dtype, ctype in (("float16", "at::Half"), ("float64", "double")):
        cuda = RELU.replace("float*", "T*").replace("__global__", "template <typename T>\n__global__")
        cuda = cuda.replace("fmaxf(x[i], 0.0f)", "x[i] > T(0.0f) ? x[i] : T(0.0f)").replace(
            "relu_all<<<", f"relu_all<{ctype}><<<"
        )
        cuda = cuda.replace("data_ptr<float>", f"data_ptr<{ctype}>").replace("at::Half><<<", "__half><<<")
        if dtype == "float16":
            cuda = "#include <cuda_fp16.h>\n" + cuda.replace(
                "c.data_ptr<at::Half>()", "(__half*)c.data_ptr<at::Half>()"
            )
            cuda = cuda.replace("y.data_ptr<at::Half>()", "(__half*)y.data_ptr<at::Half>()")
        passed(
            session,
            reference("return F.relu(x)", f"torch.randn(40, 33).to(torch.{dtype})"),
            rewrite("return ext.relu_(x)", cuda, "relu_"),
        )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (REFERENCE.replace("def get_inputs", "def other"), "get_inputs"),
        (REFERENCE.replace("torch.softmax(x * self.factor, dim=1)", "torch.zeros_like(x)"), "zeros"),
        (REFERENCE.replace("torch.softmax(x * self.factor, dim=1)", "x + 0.0"), "input 0"),
        (REFERENCE.replace("class Model(", "class Other("), "Model"),
        (REFERENCE.replace("return torch.softmax", "return undefined"), "undefined"),
        (REFERENCE.replace("* self.factor", "* __import__('time').time_ns() % 7"), "reproducible"),
        (
            f"{REFERENCE}\ndef get_init_inputs():\n    return [torch.nn.Linear(2, 2)]\n",
            "init inputs: a message cannot",
        ),
    ],
)
def test_references_that_verify_nothing(session: VerifySession, text: str, words: str) -> None:
    found = session.verify_module(text, HONEST["plain"])
    assert found.verdict == "no_plan", found
    assert words in found.reason


def test_a_kernel_in_a_string_against_the_file_it_stands_in(session: VerifySession) -> None:
    text = (CASES / "string_kernel.py").read_text()
    better = text.replace("a[i] / (1.0f + expf(-g[i]))", "a[i] * (1.0f / (1.0f + expf(-g[i])))")
    passed(session, text, better)
    wrong = session.verify_module(text, text.replace("expf(-g[i])", "expf(g[i])"))
    assert wrong.verdict == "mismatch"


@pytest.mark.parametrize("answer", ["torch.zeros_like(x)", "torch.full_like(x, 1 / x.shape[1])"])
def test_tiny_outputs_are_no_excuse(session: VerifySession, answer: str) -> None:
    text = (CASES / "wide_softmax.py").read_text().replace("64, 131072", "4, 131072")
    candidate = (
        "import torch\nclass ModelNew(torch.nn.Module):\n    def __init__(self, axis):\n"
        f"        super().__init__()\n    def forward(self, x):\n        return {answer}\n"
    )
    assert session.verify_module(text, candidate).verdict == "deceptive"
    filled = rewrite(
        "return ext.relu_(x)",
        RELU.replace(
            "fmaxf(x[i], 0.0f)", "x[i] * 1e-9f + " + ("0.0f" if "zeros" in answer else "1.0f / 131072")
        ),
        "relu_",
    ).replace("def __init__(self)", "def __init__(self, axis)")
    assert session.verify_module(text, filled).verdict == "mismatch"


def test_cache_keeps_verdicts_as_private_json(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    with VerifySession("cpu", cache=VerdictCache(folder)) as session:
        first = session.verify_module(REFERENCE, HONEST["plain"])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    with VerifySession("cpu", cache=VerdictCache(folder)) as session:
        session._judge_module = lambda *_: Verdict("timeout")  # type: ignore[method-assign]
        assert session.verify_module(REFERENCE, HONEST["plain"]) == first
        assert session.verify_module(REFERENCE, HONEST["plain"] + "\n#").verdict == "timeout"


def cli(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dice_engine.verify", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_command_line(tmp_path: Path) -> None:
    reference_file, good, bad = (tmp_path / name for name in ("ref.py", "good.py", "bad.py"))
    reference_file.write_text(REFERENCE)
    good.write_text(HONEST["plain"])
    bad.write_text(module("return torch.softmax(x * self.factor, dim=1)"))
    done = cli(reference_file, good, "--json", "--device", "cpu", "--no-cache")
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)
    fields = "verdict rule reason reference_ms candidate_ms speedup speedup_low speedup_high max_abs_err max_rel_err"
    measured = "bytes bytes_per_second roofline registers spills shared_bytes occupancy kernels gpu"
    fields += f" trials device build seconds {measured}"
    assert set(fields.split()) == set(verdict)
    assert not any(verdict[name] for name in measured.split()), "nothing of a GPU is known here"
    assert set(verdict["build"]) == {"backend", "seconds", "log"}
    done = cli(reference_file, bad, "--device", "cpu", "--no-cache")
    assert done.returncode == 1
    assert "no_launch" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("missing.py", "missing.py"), "missing.py"),
        (("a.txt", "a.txt"), "expected a .py or .cu file"),
        ((CASES / "wide_softmax.py", CASES / "scaled_sum.cu"), "one kind"),
        ((CASES / "half_typed.cu", CASES / "half_typed.cu"), "--kernel"),
        ((CASES / "half_typed.cu", CASES / "scaled_sum.cu"), "the candidate has no kernel"),
        ((), "required"),
    ],
)
def test_bad_use_is_one_line(arguments: tuple[str | Path, ...], words: str) -> None:
    done = cli(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


WEIGHTED = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 2.0, 64))

    def forward(self, x):
        return x * self.scale


def get_inputs():
    return [torch.randn(32, 64)]
"""
SCALED = '''import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
__global__ void scaled(const float* x, const float* w, float* y, int n, int d) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * w[i % d];
}
torch::Tensor run(torch::Tensor x, torch::Tensor w) {
  auto y = torch::empty_like(x);
  int n = x.numel();
  scaled<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), w.data_ptr<float>(), y.data_ptr<float>(), n, w.numel());
  return y;
}
"""
extension = load_inline(name="scaled", cpp_sources="", cuda_sources=source, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 2.0, 64))

    def forward(self, x):
        return extension.run(x, self.scale)
'''


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ("self.scale = nn.Parameter(torch.linspace(0.5, 2.0, 64))", None),
        ("self.weight = nn.Parameter(torch.linspace(0.5, 2.0, 64))", "state_dict lacks scale"),
        ("self.scale = torch.linspace(0.5, 2.0, 64)", "state_dict lacks scale"),
        (
            "self.scale = nn.Parameter(torch.linspace(0.5, 2.0, 64)[None])",
            "changes the shape or type of scale",
        ),
    ],
)
def test_what_takes_the_place_of_a_class_has_its_state(
    session: VerifySession, new: str, said: str | None
) -> None:
    candidate = SCALED.replace("self.scale = nn.Parameter(torch.linspace(0.5, 2.0, 64))", new)
    if "self.weight" in new:
        candidate = candidate.replace("(x, self.scale)", "(x, self.weight)")
    found = session.verify_module(WEIGHTED, candidate, keep_state=True)
    if said is None:
        assert found.verdict == "correct_unmeasured", found
    else:
        assert (found.verdict, found.rule) == ("mismatch", "state_dict") and said in found.reason


def test_an_answer_that_is_a_multiple_of_an_input_is_the_kernels(session: VerifySession) -> None:
    reference = WEIGHTED.replace("torch.linspace(0.5, 2.0, 64)", "torch.full((64,), 2.0)")
    candidate = SCALED.replace("torch.linspace(0.5, 2.0, 64)", "torch.full((64,), 2.0)")
    candidate = candidate.replace("run(x, ", "run(x.contiguous() + 0.0, ")
    assert session.verify_module(reference, candidate).verdict == "correct_unmeasured"


COMPLEX = """
import torch
import torch.nn as nn


class {name}(nn.Module):
    def forward(self, x):
        return torch.fft.fft(x){rest}


def get_inputs():
    return [torch.randn(4, 16)]


def get_init_inputs():
    return []
"""


@pytest.mark.filterwarnings("error:Casting complex")
def test_both_parts_of_complex_outputs_count(session: VerifySession) -> None:
    reference = COMPLEX.format(name="Model", rest="")
    assert session.same_outputs(reference, COMPLEX.format(name="ModelNew", rest=" * 1.0"))
    assert not session.same_outputs(reference, COMPLEX.format(name="ModelNew", rest=".conj()"))
    assert not session.same_outputs(reference, COMPLEX.format(name="ModelNew", rest=".real"))

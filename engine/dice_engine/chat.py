"""The chat format, for published SDAR and DICE checkpoints: one user turn, and a reply that is begun for the model.

The reply is pre-filled with the code fence and the prefix as visible tokens, so the model goes on exactly where the
core starts; :func:`core_end` says where it has ended.
"""

from __future__ import annotations

import re

from dice_engine.prompts import CoreRequest, Encoder, PromptError, trim
from dice_engine.source.hole import HoleKind

_TASKS = {
    "load_inline_core": (
        "You write fast CUDA kernels for PyTorch. Given a PyTorch architecture, and the beginning and the end of a "
        "Python file that replaces it with custom CUDA operators, write the missing middle: the assignment of the CUDA "
        "source string with the kernels and the C++ function that launches them. The results must be the same."
    ),
    "kernel_body": (
        "You write fast CUDA kernels. Given a kernel's body, and the beginning and the end of its file, write a faster "
        "body: the text between the kernel's braces. Signature and launch stay as they are, and so must the results."
    ),
    "module": (
        "You write fast CUDA kernels for PyTorch. Given a Python file with a module, write the class ModelNew that "
        "follows it, with the same constructor and the same results, whose work is done by custom CUDA operators "
        "compiled with torch.utils.cpp_extension.load_inline."
    ),
}
_LANGUAGE = {"load_inline_core": "python", "module": "python", "kernel_body": "cpp"}

# The example is ours: a scaled shift, small enough to cost little context, whole enough to show the form.
_EXAMPLE_MODULE = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, shift):
        return x * self.scale + shift
"""
_EXAMPLE_PREFIX = """\
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

"""
_EXAMPLE_CORE = '''\
source = """
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void scale_shift_kernel(const float* x, const float* shift, float* out, float scale, long n) {
    long stride = (long)gridDim.x * blockDim.x;
    for (long i = (long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        out[i] = fmaf(x[i], scale, shift[i]);
    }
}

torch::Tensor scale_shift(torch::Tensor x, torch::Tensor shift, double scale) {
    auto out = torch::empty_like(x);
    long n = x.numel();
    int threads = 256;
    int blocks = (int)std::min<long>((n + threads - 1) / threads, 4096);
    scale_shift_kernel<<<blocks, threads>>>(
        x.data_ptr<float>(), shift.data_ptr<float>(), out.data_ptr<float>(), (float)scale, n);
    return out;
}
"""'''
_EXAMPLE_SUFFIX = """

declaration = "torch::Tensor scale_shift(torch::Tensor x, torch::Tensor shift, double scale);"
ops = load_inline(name="scale_shift", cpp_sources=declaration, cuda_sources=source, functions=["scale_shift"])


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, shift):
        return ops.scale_shift(x.contiguous(), shift.contiguous(), self.scale)
"""


def build_chat_prompt(request: CoreRequest, tokenizer: Encoder, budget: int | None = None) -> list[int]:
    """The user turn and the begun reply, in at most ``budget`` tokens; trimmed like the ``fim`` prompt."""
    prefix, suffix = request.prefix, request.suffix
    ids = _assemble(request, prefix, suffix, tokenizer)
    if budget is None or len(ids) <= budget:
        return ids
    fixed = len(_assemble(request, "", "", tokenizer))
    if fixed > budget:
        raise PromptError(
            f"task, example and the code to rewrite are {fixed} tokens long, the model's context holds {budget}; "
            "choose a smaller kernel or a checkpoint with a longer context"
        )
    # The prefix stands twice: in the turn and in the begun reply. Tokens may join differently at the seams, so give
    # way until it fits.
    available = budget - fixed
    while len(ids) > budget:
        available = max(0, available - max(8, len(ids) - budget if available < budget - fixed else 0))
        prefix, suffix = trim(
            request.prefix, request.suffix, available // 2, lambda t: len(tokenizer.encode(t))
        )
        ids = _assemble(request, prefix, suffix, tokenizer)
    return ids


def core_end(kind: HoleKind, text: str, suffix: str) -> int | None:
    """Where the core ends in a reply that begins with it; None: not yet.

    ``load_inline_core``: right after the delimiter that closes the source string. ``kernel_body`` and ``selection``:
    before the brace that closes the kernel. ``module``: before the code fence, or where the suffix begins.
    """
    if kind == "load_inline_core":
        return _string_end(text)
    if kind == "module":
        return _module_end(text, suffix)
    return _brace_end(text)


def may_end(kind: HoleKind, written: str) -> bool:
    """Whether a reply to which ``written`` was just added needs to be asked for :func:`core_end` again."""
    closers = {"load_inline_core": "\"'", "kernel_body": "}", "selection": "}"}.get(kind)
    return closers is None or any(closer in written for closer in closers)


def _assemble(request: CoreRequest, prefix: str, suffix: str, tokenizer: Encoder) -> list[int]:
    kind = "kernel_body" if request.kind == "selection" else request.kind
    language = _LANGUAGE[kind]
    parts = [_TASKS[kind]]
    if kind != "kernel_body":
        whole = _EXAMPLE_PREFIX + _EXAMPLE_CORE + _EXAMPLE_SUFFIX
        parts += [
            "Example. The architecture:\n" + _fenced(_EXAMPLE_MODULE),
            "Beginning:\n" + _fenced(_EXAMPLE_PREFIX) + "\nEnd:\n" + _fenced(_EXAMPLE_SUFFIX),
            "The whole file:\n" + _fenced(whole),
            "Now yours. The architecture:\n" + _fenced(request.reference or request.prefix),
        ]
    else:
        parts.append("The body:\n" + _fenced(request.reference, language))
    parts += [
        "Beginning:\n" + _fenced(prefix, language) + "\nEnd:\n" + _fenced(suffix, language),
        "Write the whole file in one code block, beginning and end unchanged.",
    ]
    start, end = tokenizer.special("<|im_start|>"), tokenizer.special("<|im_end|>")
    return [
        start,
        *tokenizer.encode("user\n" + "\n\n".join(parts)),
        end,
        *tokenizer.encode("\n"),
        start,
        *tokenizer.encode(f"assistant\n```{language}\n{prefix}"),
    ]


def _fenced(code: str, language: str = "python") -> str:
    return f"```{language}\n{code.rstrip()}\n```"


_OPENING = re.compile(r"""=\s*\(?\s*[rRuUbBfF]{0,2}(\"\"\"|'''|"|')""")


def _string_end(text: str) -> int | None:
    opening = _OPENING.search(text)
    if opening is None:
        return None
    delimiter, raw = opening[1], opening.end()
    while True:
        found = text.find(delimiter, raw)
        if found < 0:
            return None
        backslashes = len(text[:found]) - len(text[:found].rstrip("\\"))
        if backslashes % 2 == 0:
            return found + len(delimiter)
        raw = found + 1


def _module_end(text: str, suffix: str) -> int | None:
    ends = []
    fence = re.search(r"^```", text, re.MULTILINE)
    if fence:
        ends.append(fence.start())
    first = next((line for line in suffix.splitlines() if line.strip()), None)
    if first:
        again = re.search("^" + re.escape(first) + "$", text, re.MULTILINE)
        if again:
            ends.append(again.start())
    return min(ends, default=None)


_TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"([^()\\\s]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|[{}]""",
    re.DOTALL,
)


def _brace_end(text: str) -> int | None:
    depth = 0
    for token in _TOKEN.finditer(text):
        if token[0] == "{":
            depth += 1
        elif token[0] == "}":
            if depth == 0:
                return token.start()
            depth -= 1
    return None

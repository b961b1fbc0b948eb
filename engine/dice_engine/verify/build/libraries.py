"""NVIDIA's libraries in host code: which of their functions it calls, and whether a header is to be had at all."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

from dice_engine.verify.build.lexer import live_tokens, tokenize
from dice_engine.verify.build.nvrtc_library import cuda_includes

_CALL = re.compile(r"(?:cublas(?:Lt)?|cudnn|cufft|cusparse|cusolver\w*?|curand|nccl)[A-Z]\w*")
_KEPT_QUIET = re.compile(r"\w*(?:Create|Destroy|Set|Get|Init)[A-Z]?\w*|\w+_(?:t|st)|curand_\w+")
"""Handles, descriptors and settings: no work."""
_BLAS = re.compile(r"\bblas\s*::\s*(\w+)")
"""torch's own wrappers of cuBLAS (``at::cuda::blas::gemm``), which its dispatcher does not see."""

_SYSTEM = ("/usr/include", "/usr/local/include")


def called_libraries(source: str) -> list[str]:
    """Library functions that compute and are called in ``source`` (comments and strings aside), in order."""
    found: dict[str, None] = {}
    tokens = list(live_tokens(tokenize(source)))
    words = " ".join(token.text for token in tokens if token.kind in ("id", "punct"))
    found.update((f"blas::{name}", None) for name in _BLAS.findall(words))
    for token, following in pairwise(tokens):
        called = token.kind == "id" and following.text == "(" and _CALL.fullmatch(token.text)
        if called and not _KEPT_QUIET.fullmatch(token.text):
            found[token.text] = None
    return list(found)


def missing_header(log: str) -> str | None:
    """The header that a compiler asked for and that nobody has, None when one may have it."""
    asked = re.search(r'cannot open source file "([^"]+)"', log)
    if asked is None:
        return None
    import torch

    root = Path(torch.__file__).parent / "include"
    folders = [root, root / "torch/csrc/api/include", *cuda_includes(), *map(Path, _SYSTEM)]
    folders += [folder / "cccl" for folder in cuda_includes()]
    return None if any((folder / asked.group(1)).is_file() for folder in folders) else asked.group(1)

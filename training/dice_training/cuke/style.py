"""Habits of writing: names, layout and idioms, drawn once for a file so that a file looks like one person's work."""

# ruff: noqa: E501
from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class CoreStyle:
    """How the CUDA source of a module is written. Each style goes with its own names for the source variable,

    so that who reads the rest of the file can tell the style.
    """

    sources: tuple[str, ...]
    declarations: tuple[str, ...]
    indent: str
    index: str
    value: str
    output: str
    early_return: bool
    threads: str
    """Name of the block size, or empty for a literal in the launch."""
    blocks: str
    contiguous: bool
    checks: bool


# fmt: off
CORE_STYLES: tuple[CoreStyle, ...] = (
    CoreStyle(("source", "cuda_source"), ("cpp_source", "cpp_src"), "    ", "idx", "v", "out", False, "threads", "blocks", False, False),
    CoreStyle(("cuda_src", "cuda_code"), ("cpp_src", "decl"), "  ", "i", "v", "out", True, "", "", False, False),
    CoreStyle(("kernel_source", "cuda_kernel_source"), ("cpp_source", "cpp_sources"), "    ", "idx", "val", "output", False, "block_size", "num_blocks", True, True),
    CoreStyle(("gpu_source", "kernel_code"), ("cpp_decl", "header"), "    ", "i", "val", "out", True, "threads", "blocks", True, False),
)
# fmt: on
"""Beside these, a source named ``<function>_source`` (as in KernelBench) is written in the first style."""

IMPORTS_FUNCTIONAL = "import torch.nn.functional as F"


@dataclass(frozen=True)
class FileStyle:
    """How the PyTorch file around it is written."""

    super_call: str
    base: str
    nn_import: bool
    annotate: bool
    docstring: str
    forward_doc: bool
    one_expression: bool
    fresh_names: bool
    comments: bool
    use_modules: bool
    batch_name: str
    width_name: str
    sizes_as_variables: bool
    trailing_newline: bool


_BATCH_NAMES = ("batch_size", "batch_size", "batch_size", "B", "N", "rows", "num_rows", "n_samples", "M")
_WIDTH_NAMES = (
    "dim",
    "dim",
    "hidden_size",
    "features",
    "num_features",
    "D",
    "in_features",
    "cols",
    "input_size",
    "hidden_dim",
    "d_model",
    "embed_dim",
)
MIDDLE_NAMES = (
    ("channels", "height"),
    ("seq_len", "num_heads"),
    ("C", "H"),
    ("dim1", "dim2"),
    ("sequence_length", "heads"),
)
_DOCS = (
    "Simple model that performs {what}.",
    "A model that computes {what}.",
    "Applies {what} to the input tensor.",
    "{What}.",
    "Model computing {what}\n\n    Used as a fused building block.",
)


def file_style(rng: random.Random) -> FileStyle:
    old = rng.random() < 0.45
    nn_import = rng.random() < 0.88
    return FileStyle(
        super_call="super(Model, self).__init__()" if old else "super().__init__()",
        base="nn.Module" if nn_import else "torch.nn.Module",
        nn_import=nn_import,
        annotate=rng.random() < 0.3,
        docstring=rng.choice(_DOCS) if rng.random() < 0.35 else "",
        forward_doc=rng.random() < 0.1,
        one_expression=rng.random() < 0.3,
        fresh_names=rng.random() < 0.25,
        comments=rng.random() < 0.2,
        use_modules=nn_import and rng.random() < 0.45,
        batch_name=rng.choice(_BATCH_NAMES),
        width_name=rng.choice(_WIDTH_NAMES),
        sizes_as_variables=rng.random() < 0.6,
        trailing_newline=rng.random() < 0.85,
    )


FUNCTION_WORDS = ("fused", "custom", "fast", "apply", "run", "compute", "my", "model", "op")
FUNCTION_SUFFIXES = ("_cuda", "_cuda", "_forward", "_cuda_forward", "", "_op", "_gpu")
"""Function names are an operator or word joined with one of these."""


def function_name(rng: random.Random, ops: list[str]) -> str:
    """A name for the host function: from the operators (shortened) or a general word."""
    roll = rng.random()
    if roll < 0.4:
        return "_".join(ops[:2]) + rng.choice(
            [s for s in FUNCTION_SUFFIXES if s]
        )  # a bare name may be a C function
    elif roll < 0.65:
        stem = "fused_" + "_".join(ops[:2])
    elif roll < 0.8:
        stem = rng.choice(
            (
                "fused_op",
                "elementwise",
                "row_op",
                "fused_ops",
                "pointwise",
                "activation",
                "fused_kernel_op",
                "block_op",
            )
        )
    else:
        stem = rng.choice(FUNCTION_WORDS) + "_" + rng.choice(ops)
    return stem + rng.choice(FUNCTION_SUFFIXES)

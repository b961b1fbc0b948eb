"""Habits of writing: names, layout and idioms, drawn once for a file so that a file looks like one person's work."""

# ruff: noqa: E501
from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from dice_training.cuke.words import NamePool, fresh_name


@dataclass(frozen=True)
class FileStyle:
    """How the PyTorch file around the computation is written."""

    class_name: str
    super_call: str
    base: str
    nn_import: bool
    functional: str
    """By which name ``torch.nn.functional`` is reached."""
    functional_import: str
    annotate: bool
    hint: bool
    docstring: str
    forward_doc: str
    split: float
    """Share of operators that get a statement of their own."""
    locals: Literal["same", "one", "many"]
    comments: float
    use_modules: float
    inplace: float
    """Share of augmented assignments and in-place methods where they are possible."""
    helpers: Literal["", "function", "method"]
    batch_name: str
    width_name: str
    sizes: Literal["variables", "literals", "tuple"]
    sizes_first: bool
    dense: bool
    """No spaces around ``**``."""
    title: str
    main_guard: bool
    trailing_newline: bool


_CLASSES = (
    "Net",
    "Block",
    "FusedOp",
    "Activation",
    "Layer",
    "Module1",
    "RowOp",
    "Head",
    "Simple",
    "MyModel",
    "Gate",
)
_BATCH_NAMES = (
    "batch_size",
    "batch_size",
    "batch_size",
    "B",
    "N",
    "num_rows",
    "n_samples",
    "M",
    "bs",
    "batch",
)
_WIDTH_NAMES = (
    "dim", "dim", "hidden_size", "features", "num_features", "D", "in_features", "ncols", "input_size",
    "hidden_dim", "d_model", "embed_dim", "channels", "hidden", "width",
)  # fmt: skip
MIDDLE_NAMES = (
    ("channels_in", "height"), ("seq_len", "num_heads"), ("C", "H"), ("dim1", "dim2"), ("sequence_length", "heads"),
)  # fmt: skip
_SIZES: list[Literal["variables", "literals", "tuple"]] = ["variables", "literals", "tuple"]
_DOCS = (
    "Simple model that performs {what}.",
    "A model that computes {what}.",
    "Applies {what} to the input tensor.",
    "{What}.",
    "{What}",
    "Model computing {what}\n\n    Used as a fused building block.",
    "Small module from our encoder.",
    "Post-processing of the logits (see section 3).",
    "Reference implementation.\n\n    Slow, but easy to read.",
    "Part {n} of the pipeline: {what}.",
    "\n    {What}, as in the paper.\n    ",
)
_FORWARD_DOCS = (
    "{What}.",
    "Args:\n            {x} (torch.Tensor): Input tensor of any shape.\n\n        Returns:\n            torch.Tensor: Output tensor.",
    "{x}: float tensor, shape (batch, ...)",
    "Forward pass.",
)
_TITLES = (
    "# {what}",
    "# KernelBench level 1: {what}",
    '"""{What}."""',
    "# Problem {n}\n# {what}",
    "# -*- coding: utf-8 -*-",
    '"""Model definition and its inputs."""',
)
_ALIASES = (
    ("F", "import torch.nn.functional as F"),
    ("F", "import torch.nn.functional as F"),
    ("F", "import torch.nn.functional as F"),
    ("F", "from torch.nn import functional as F"),
    ("torch.nn.functional", ""),
    ("func", "import torch.nn.functional as func"),
    ("functional", "from torch.nn import functional"),
)


def file_style(rng: random.Random, plain: bool = False) -> FileStyle:
    """``plain``: nothing stands at the top level beside imports and what the module needs."""
    old = rng.random() < 0.45
    nn_import = rng.random() < 0.88
    class_name = "Model"
    if rng.random() < 0.25:
        class_name = (
            rng.choice(_CLASSES) if rng.random() < 0.7 else fresh_name(rng).title().replace("_", "") + "Net"
        )
    alias, statement = rng.choice(_ALIASES)
    if alias == "torch.nn.functional" and nn_import:
        alias = rng.choice(("torch.nn.functional", "nn.functional"))
    names = NamePool(rng, fresh=rng.choice((0.0, 0.0, 0.3)))
    return FileStyle(
        class_name=class_name,
        super_call=f"super({class_name}, self).__init__()" if old else "super().__init__()",
        base="nn.Module" if nn_import else "torch.nn.Module",
        nn_import=nn_import,
        functional=alias,
        functional_import=statement,
        annotate=rng.random() < 0.3,
        hint=rng.random() < 0.3,
        docstring=rng.choice(_DOCS) if rng.random() < 0.35 else "",
        forward_doc=rng.choice(_FORWARD_DOCS) if rng.random() < 0.12 else "",
        split=rng.choice((0.1, 0.35, 0.35, 0.7, 1.0)),
        locals=rng.choice(("same", "same", "one", "many")),
        comments=rng.choice((0.0, 0.0, 0.0, 0.3)),
        use_modules=rng.choice((0.0, 0.0, 0.4, 0.9)) if nn_import else 0.0,
        inplace=rng.choice((0.0, 0.0, 0.0, 0.4, 0.9)),
        helpers=rng.choice(("",) * 8 + ("function", "method")),
        batch_name=names.take(_BATCH_NAMES),
        width_name=names.take(_WIDTH_NAMES),
        sizes=rng.choices(_SIZES, (6, 3, 1))[0],
        sizes_first=rng.random() < 0.15,
        dense=rng.random() < 0.2,
        title="" if plain or rng.random() < 0.8 else rng.choice(_TITLES),
        main_guard=not plain and rng.random() < 0.03,
        trailing_newline=rng.random() < 0.85,
    )


FUNCTION_WORDS = ("fused", "custom", "fast", "apply", "run", "compute", "my", "model", "op")
FUNCTION_SUFFIXES = ("_cuda", "_cuda", "_forward", "_cuda_forward", "", "_op", "_gpu")
"""Function names are an operator or word joined with one of these."""


def function_name(rng: random.Random, ops: list[str], taken: set[str]) -> str:
    """A name for the host function: from the operators (shortened), a general word, or anything."""
    roll = rng.random()
    if roll < 0.4:
        return fresh_name(rng, taken) + rng.choice(("", "_cuda", "_fwd"))
    if roll < 0.6:
        return "_".join(ops[:2]) + rng.choice(
            [s for s in FUNCTION_SUFFIXES if s]
        )  # a bare name may be a C function
    stem = "fused_" + "_".join(ops[:2]) if roll < 0.8 else rng.choice(FUNCTION_WORDS) + "_" + rng.choice(ops)
    return stem + rng.choice(FUNCTION_SUFFIXES)

"""A sample in parts, and the words its names are made of."""

from __future__ import annotations

from dataclasses import dataclass

from dice_training.cuke.spec import Spec


@dataclass(frozen=True)
class Parts:
    """A program cut at its core, and what the model is told to compute."""

    reference: str
    prefix: str
    core: str
    suffix: str
    kernel: str
    pytorch: str | None = None
    """The module to check against where the reference is not PyTorch."""
    around: tuple[str, str] | None = None
    """The Python file around a program that is a CUDA source in a string: without it nothing could run."""
    class_name: str = "Model"
    """The PyTorch class to check against."""


def op_names(spec: Spec) -> list[str]:
    short = {
        "mul_scalar": "scale",
        "add_scalar": "shift",
        "layer_norm_affine": "layernorm",
        "rms_norm_affine": "rmsnorm",
        "gelu_tanh": "gelu",
        "div_scalar": "div",
    }
    names = [s.op for s in spec.steps] + ([spec.row.op] if spec.row else [])
    return [short.get(n, n) for n in names]

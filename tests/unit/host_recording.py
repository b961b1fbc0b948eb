"""A ``Runtime`` over meta tensors that notes what host code launches: shapes are real, memory and kernels are not."""

from __future__ import annotations

from typing import Any

import torch
from dice_engine.source.host import Device, Dtype, HostProgram, LaunchCall, Pointer, Unsupported


def tensor(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


class RecordingRuntime:
    def __init__(self) -> None:
        self.calls: list[LaunchCall] = []
        self.functions: list[str] = []

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor)

    def tensor_method(self, owner: torch.Tensor, name: str, args: list[Any], template: str | None) -> Any:
        if name == "data_ptr":
            return Pointer(owner, 0, template or "void")
        if name == "scalar_type":
            return Dtype(str(owner.dtype).removeprefix("torch."))
        if name == "device":
            return Device("cuda")
        if name in ("is_cuda", "is_contiguous"):
            return True
        if name == "sizes":
            return list(owner.shape)
        return getattr(owner, name)(*[_real(a) for a in args])

    def torch_function(self, name: str, args: list[Any], kwargs_options: dict[str, Any]) -> Any:
        self.functions.append(name)
        if name == "cuda.device_property":
            return {"multiProcessorCount": 132}[args[0]]
        if name.startswith("cuda."):
            return None
        if not hasattr(torch, name):
            raise Unsupported(f"torch function {name}")
        options = {"dtype": _real(kwargs_options["dtype"])} if "dtype" in kwargs_options else {}
        made = name in ("empty", "zeros", "ones", "full", "arange")
        return getattr(torch, name)(
            *[_real(a) for a in args], **options, **({"device": "meta"} if made else {})
        )

    def launch(self, call: LaunchCall) -> None:
        self.calls.append(call)


def _real(value: Any) -> Any:
    if isinstance(value, Dtype):
        return getattr(torch, value.name)
    return torch.device("meta") if isinstance(value, Device) else value


def run(source: str, function: str, *args: Any, **bindings: str) -> tuple[Any, list[LaunchCall]]:
    """What the function returns and the launches it makes."""
    runtime = RecordingRuntime()
    result = HostProgram(source).call(function, list(args), runtime, bindings or None)
    return result, runtime.calls


def pointer(name: str, ctype: str = "float") -> Pointer:
    return Pointer(name, 0, ctype)

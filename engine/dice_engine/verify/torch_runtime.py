"""The world behind interpreted host code: torch tensors, and launches on a device module.

``LaunchPath`` is the only way from host code to a kernel. It counts launches and can be told to make them fail or
do nothing, which is how the judge finds code that does not need its kernels.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import torch
import torch.nn.functional as F

from dice_engine.source.host_types import KINDS, size_of
from dice_engine.source.host_values import Device, Dtype, HostError, LaunchCall, Pointer, Unsupported
from dice_engine.verify.build.interface import DeviceModule

LaunchMode = Literal["run", "fail", "skip"]

# What a CPU answers when host code asks for the device's properties: those of a current data-centre GPU.
_PROPERTIES = {
    "multiProcessorCount": 132,
    "maxThreadsPerBlock": 1024,
    "maxThreadsPerMultiProcessor": 2048,
    "sharedMemPerBlock": 49152,
    "sharedMemPerBlockOptin": 232448,
    "sharedMemPerMultiprocessor": 233472,
    "regsPerBlock": 65536,
    "regsPerMultiprocessor": 65536,
    "warpSize": 32,
    "major": 9,
    "minor": 0,
    "l2CacheSize": 60 << 20,
    "totalGlobalMem": 80 << 30,
    "clockRate": 1_980_000,
}
_PYTHON_PROPERTIES = {
    "multiProcessorCount": "multi_processor_count",
    "maxThreadsPerMultiProcessor": "max_threads_per_multi_processor",
    "sharedMemPerBlockOptin": "shared_memory_per_block_optin",
    "sharedMemPerMultiprocessor": "shared_memory_per_multiprocessor",
    "regsPerMultiprocessor": "regs_per_multiprocessor",
    "warpSize": "warp_size",
    "major": "major",
    "minor": "minor",
    "l2CacheSize": "L2_cache_size",
    "totalGlobalMem": "total_memory",
}


def element_dtype(ctype: str) -> torch.dtype | None:
    """The tensor dtype of a C element type, None for one that no tensor has (``void``, ``float4``)."""
    return getattr(torch, KINDS[ctype]) if ctype in KINDS else None


_OPERATORS: Any = getattr(torch._C, "_VariableFunctions")  # noqa: B009  (absent from torch's type stubs)

_UNWATCHED: Any = getattr(torch._C, "DisableTorchFunction")  # noqa: B009
_MOST_GIVEN = 24
_SHARED_UNASKED = 48 * 1024
"""Bytes of dynamic shared memory that a launch gets without asking first."""
_ASKS_FOR_SHARED = re.compile(r"\bcu(?:da)?FuncSetAttribute\b|\bMaxDynamicSharedMemorySize\b")


class LaunchFailed(RuntimeError):
    """Raised by every launch while the judge makes launches fail."""


class LaunchPath:
    """Launches go through here. ``count`` counts them; ``mode`` decides what becomes of them."""

    def __init__(self) -> None:
        self.mode: LaunchMode = "run"
        self.count = 0
        self.sizes: set[int] = set()
        """Element counts of the tensors to keep in ``given``."""
        self.given: list[torch.Tensor] = []
        """Copies of what skipped launches would have read or written, of one of ``sizes``."""
        self.unasked: str | None = None
        """The first launch that a GPU refuses because nobody asked for its shared memory, in words."""

    def launch(self, module: DeviceModule, call: LaunchCall) -> None:
        self.count += 1
        if self.mode == "fail":
            raise LaunchFailed(f"launch of {call.kernel} failed: unspecified launch failure")
        if self.mode == "skip":
            self._note(call)
            return
        arguments = [plain_argument(argument) for argument in call.args]
        module.launch(call.kernel, call.template_args, call.grid, call.block, call.shared, arguments)

    def _note(self, call: LaunchCall) -> None:
        for argument in call.args:
            tensor = argument.base if isinstance(argument, Pointer) else None
            if not isinstance(tensor, torch.Tensor) or tensor.numel() not in self.sizes:
                continue
            if len(self.given) < _MOST_GIVEN:
                self.given.append(tensor.detach().clone())


class TorchRuntime:
    """``Runtime`` of the host interpreter over real tensors; on the CPU every tensor claims to be on ``cuda:0``."""

    def __init__(self, module: DeviceModule, launches: LaunchPath, device: torch.device, host: str = ""):
        """``host``: the text with the host code, where there is some."""
        self.module = module
        self._asks = not host or _ASKS_FOR_SHARED.search(host) is not None
        self.launches = launches
        self.device = device
        self.names: dict[int, str] = {}
        """Of buffers, by their first address."""

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor)

    def launch(self, call: LaunchCall) -> None:
        if call.shared > _SHARED_UNASKED and not self._asks and self.launches.unasked is None:
            self.launches.unasked = (
                f"{call.kernel} is launched with {call.shared} bytes of dynamic shared memory: "
                f"a GPU gives no more than {_SHARED_UNASKED} without cudaFuncSetAttribute"
            )
        self.launches.launch(self.module, call)

    def tensor_method(self, tensor: torch.Tensor, name: str, args: list[Any], template: str | None) -> Any:
        if name in ("data_ptr", "mutable_data_ptr", "const_data_ptr"):
            return self._pointer(tensor, template)
        if name in ("is_cuda", "device", "get_device"):
            on_gpu = self.device.type == "cpu" or tensor.is_cuda
            index = self.device.index or 0
            known = {"is_cuda": on_gpu, "device": Device("cuda", index) if on_gpu else Device("cpu")}
            return known.get(name, index if on_gpu else -1)
        if name in ("scalar_type", "dtype"):
            return Dtype(str(tensor.dtype).removeprefix("torch."))
        if name in ("sizes", "strides"):
            return list(tensor.shape if name == "sizes" else tensor.stride())
        if name == "itemsize":
            return tensor.element_size()
        if name == "nbytes":
            return tensor.numel() * tensor.element_size()
        if name == "defined":
            return True
        if name == "cuda":
            return tensor.to(self.device)
        if name == "slice":
            return torch.ops.aten.slice.Tensor(tensor, *args)
        if name in ("to", "toType"):
            return tensor.to(*[self._value(argument) for argument in args])
        if name == "item" and template:
            return tensor.item()
        method = getattr(torch.Tensor, name, None) if not name.startswith("_") else None
        if method is None or name in _REFUSED_METHODS:
            raise Unsupported(f"tensor method {name}")
        if not callable(method):
            return getattr(tensor, name)
        return method(tensor, *[self._value(argument) for argument in args])

    def torch_function(self, name: str, args: list[Any], kwargs_options: dict[str, Any]) -> Any:
        if name.startswith("cuda."):
            return self._cuda(name.removeprefix("cuda."), args)
        short = name.rsplit("::", 1)[-1].rsplit(".", 1)[-1]
        # Only operators: not torch.load, torch.ops and other things that happen to live in the namespace.
        function = getattr(_OPERATORS, short, None)
        if short == "tensor":
            function = torch.tensor
        if function is None and _is_functional(short):
            function = getattr(F, short)
        if function is None or short.startswith("_"):
            raise Unsupported(f"torch function {name}")
        options = {key: self._value(value) for key, value in kwargs_options.items() if value is not None}
        return function(*[self._value(argument) for argument in args], **options)

    def _pointer(self, tensor: torch.Tensor, template: str | None) -> Pointer:
        if template is None or template == "void":
            return Pointer(tensor, 0, "void")
        ctype = template.replace("const ", "").strip()
        expected = element_dtype(ctype)
        if expected is not None and expected != tensor.dtype:
            have = str(tensor.dtype).removeprefix("torch.")
            raise HostError(f"expected scalar type {ctype} but found {have}")
        return Pointer(tensor, 0, ctype)

    def _value(self, value: Any) -> Any:
        if isinstance(value, Dtype):
            return getattr(torch, value.name)
        if isinstance(value, Device):
            return self.device if value.type == "cuda" else torch.device("cpu")
        if isinstance(value, list | tuple):
            return [self._value(item) for item in value]
        if isinstance(value, Pointer):
            raise Unsupported("a pointer given to a torch function")
        return value

    def _cuda(self, name: str, args: list[Any]) -> Any:
        if name == "device_property":
            return self._property(str(args[0]))
        if name == "memset":
            target, value, size = args
            self._bytes(target, int(size), "cudaMemset").fill_(int(value) & 0xFF)
            return None
        if name == "memcpy":
            target, source, size = args
            to, what = self._bytes(target, int(size), "cudaMemcpy"), "cudaMemcpy from it"
            to.copy_(self._bytes(source, int(size), what))
            return None
        if name == "cooperative" and self.device.type == "cpu":
            return None
        raise Unsupported(f"the CUDA runtime function behind {name}")

    def _bytes(self, pointer: Any, size: int, what: str) -> torch.Tensor:
        if not isinstance(pointer, Pointer) or not isinstance(pointer.base, torch.Tensor):
            raise Unsupported("a copy between host and device memory")
        tensor = pointer.base
        with _UNWATCHED():  # our own look at the storage is no look of the candidate's at its numbers
            storage = tensor.untyped_storage()
        start = address(pointer) - storage.data_ptr()
        if start < 0 or size < 0 or start + size > storage.nbytes():
            name = self.names.get(storage.data_ptr(), "its buffer")
            raise HostError(f"{what}: {size} bytes do not fit the {storage.nbytes()} of {name}")
        flat: Any = torch.empty(0, dtype=torch.uint8, device=tensor.device)
        return flat.set_(storage, start, (size,))

    def _property(self, name: str) -> Any:
        if self.device.type == "cuda":
            found = torch.cuda.get_device_properties(self.device)
            attribute = _PYTHON_PROPERTIES.get(name)
            if attribute is not None and hasattr(found, attribute):
                return getattr(found, attribute)
        if name not in _PROPERTIES:
            raise Unsupported(f"device property {name}")
        return _PROPERTIES[name]


_REFUSED_METHODS = frozenset(
    {"backward", "register_hook", "share_memory_", "storage", "untyped_storage", "numpy", "apply_"}
)


def _is_functional(name: str) -> bool:
    function = getattr(F, name, None)
    return (
        callable(function)
        and not isinstance(function, type)
        and getattr(function, "__module__", "").startswith("torch.")
    )


def plain_argument(value: Any) -> int | float:
    """A kernel argument as the device module takes it."""
    if value is None:
        return 0
    if isinstance(value, Pointer):
        return address(value)
    if isinstance(value, bool | int | float):
        return value
    raise Unsupported(f"a {type(value).__name__} as a kernel argument")


def address(pointer: Pointer) -> int:
    """The device address of ``pointer``, whose base is a tensor. Offsets count in elements of its ctype."""
    if pointer.base is None:
        return 0
    tensor: torch.Tensor = pointer.base
    return tensor.data_ptr() + pointer.offset * (size_of(pointer.ctype) or 1)

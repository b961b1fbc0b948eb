"""The CUDA driver through cuda.bindings: contexts, modules, launches and the names of what went wrong.

Everything runs in the primary context, the one that torch uses, so that torch's tensors are the kernels' buffers.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dice_engine.verify.build.interface import Dim3, InfraError, LaunchError

_RUNTIME_NAMES = {
    "CUDA_ERROR_OUT_OF_MEMORY": "cudaErrorMemoryAllocation",
    "CUDA_ERROR_LAUNCH_FAILED": "cudaErrorLaunchFailure",
    "CUDA_ERROR_ECC_UNCORRECTABLE": "cudaErrorECCUncorrectable",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "cudaErrorNoKernelImageForDevice",
    "CUDA_ERROR_DEINITIALIZED": "cudaErrorCudartUnloading",
}
_STATIC_SHARED_LIMIT = 48 * 1024
"""Dynamic shared memory above this needs cuFuncSetAttribute, on every architecture so far."""


def runtime_name(driver_name: str) -> str:
    """``CUDA_ERROR_ILLEGAL_ADDRESS`` -> ``cudaErrorIllegalAddress``: the name that users know."""
    if driver_name in _RUNTIME_NAMES:
        return _RUNTIME_NAMES[driver_name]
    words = driver_name.removeprefix("CUDA_ERROR_").split("_")
    return "cudaError" + "".join(word.capitalize() for word in words)


def error_name(number: int) -> str:
    """The runtime's name of a CUDA error number. Needs no driver."""
    try:
        return importlib.import_module("cuda.bindings.runtime").cudaError_t(number).name
    except (ImportError, ValueError):
        return "cudaErrorUnknown"


@functools.cache
def driver() -> Any:
    """The module ``cuda.bindings.driver``, initialised. Raises InfraError where there is no driver or no GPU."""
    try:
        module = importlib.import_module("cuda.bindings.driver")
    except ImportError:
        raise InfraError("the package cuda-bindings is missing: pip install 'dice-ls[engine]'") from None
    try:
        (status,) = module.cuInit(0)
    except Exception as error:  # cuda.bindings raises RuntimeError or its own types where libcuda is absent
        raise InfraError(f"no CUDA driver: libcuda cannot be loaded ({_first_line(error)})") from None
    if status != module.CUresult.CUDA_SUCCESS:
        raise InfraError(f"the CUDA driver does not start: {status.name}; see nvidia-smi")
    return module


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def check(result: tuple[Any, ...], doing: str) -> Any:
    """The values of a driver call's result; LaunchError with the runtime's name of the error when it failed."""
    status, *values = result
    if int(status) != 0:
        raise LaunchError(runtime_name(status.name), doing)
    return values[0] if len(values) == 1 else tuple(values)


class Context:
    """The primary context of one GPU, retained for as long as the process lives and made current."""

    def __init__(self, ordinal: int | None = None) -> None:
        api = driver()
        self.ordinal = current_ordinal() if ordinal is None else ordinal
        try:
            self.device = check(api.cuDeviceGet(self.ordinal), f"select GPU {self.ordinal}")
            self.handle = check(api.cuDevicePrimaryCtxRetain(self.device), "open the GPU's primary context")
        except LaunchError as error:
            raise InfraError(f"GPU {self.ordinal} cannot be used: {error}") from None
        self.activate()

    def activate(self) -> None:
        check(driver().cuCtxSetCurrent(self.handle), "make the GPU's context current")

    def attribute(self, name: str) -> int:
        """A ``CU_DEVICE_ATTRIBUTE_`` value, by the rest of its name."""
        api = driver()
        which = getattr(api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(check(api.cuDeviceGetAttribute(which, self.device), f"read {name}"))

    @property
    def arch(self) -> str:
        """``sm_90``: what to compile for."""
        return f"sm_{self.attribute('COMPUTE_CAPABILITY_MAJOR')}{self.attribute('COMPUTE_CAPABILITY_MINOR')}"

    def synchronize(self) -> None:
        """Wait for all work of the context; LaunchError with the name of an asynchronous failure."""
        self.activate()
        check(driver().cuCtxSynchronize(), "a kernel failed while it ran")


@functools.cache
def context(ordinal: int | None = None) -> Context:
    return Context(ordinal)


def current_ordinal() -> int:
    """torch's current device where torch is loaded and has started CUDA, else 0."""
    torch = _torch()
    return int(torch.cuda.current_device()) if torch is not None else 0


def current_stream() -> int:
    """The handle of torch's current stream, so that launches keep their order with torch's own work."""
    torch = _torch()
    return int(torch.cuda.current_stream().cuda_stream) if torch is not None else 0


def _torch() -> Any:
    torch = sys.modules.get("torch")
    return torch if torch is not None and torch.cuda.is_initialized() else None


@dataclass(frozen=True)
class KernelResources:
    """What one kernel takes of a multiprocessor. Bytes; ``local`` is stack and spills per thread."""

    registers: int
    local: int
    shared: int
    spill_stores: int = 0


class Function:
    """One kernel on the GPU."""

    def __init__(self, handle: Any, name: str, context: Context) -> None:
        self.handle = handle
        self.name = name
        self._context = context
        self._shared_allowed = _STATIC_SHARED_LIMIT

    def attribute(self, name: str) -> int:
        api = driver()
        which = getattr(api.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        return int(check(api.cuFuncGetAttribute(which, self.handle), f"read {name}"))

    @property
    def resources(self) -> KernelResources:
        return KernelResources(
            registers=self.attribute("NUM_REGS"),
            local=self.attribute("LOCAL_SIZE_BYTES"),
            shared=self.attribute("SHARED_SIZE_BYTES"),
        )

    def occupancy(self, threads: int, shared: int) -> float:
        """Share of a multiprocessor's warps that can be resident at this block size, 0 to 1."""
        api = driver()
        self.allow_shared(shared)
        blocks = check(
            api.cuOccupancyMaxActiveBlocksPerMultiprocessor(self.handle, threads, shared),
            "read the occupancy",
        )
        warp = self._context.attribute("WARP_SIZE")
        most = self._context.attribute("MAX_THREADS_PER_MULTIPROCESSOR") // warp
        return int(blocks) * -(-threads // warp) / most

    def allow_shared(self, shared: int) -> None:
        """Permit ``shared`` bytes of dynamic shared memory; LaunchError where the GPU has not that much."""
        if shared <= self._shared_allowed:
            return
        api = driver()
        which = api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        check(
            api.cuFuncSetAttribute(self.handle, which, shared),
            f"kernel {self.name}: {shared} bytes of dynamic shared memory",
        )
        self._shared_allowed = shared

    def prepare(self, grid: Dim3, block: Dim3, shared: int, values: Sequence[Any]) -> PreparedLaunch:
        """Everything that a launch needs, packed once: the timed call is then the driver's alone.

        ``values`` are ctypes values, one a parameter. Raises LaunchError for what no GPU launches.
        """
        if min(*grid, *block) < 1 or block[0] * block[1] * block[2] > 1024 or block[2] > 64:
            raise LaunchError(
                "cudaErrorInvalidConfiguration", f"kernel {self.name}: grid {grid}, block {block}"
            )
        self._context.activate()
        self.allow_shared(shared)
        return PreparedLaunch(self, grid, block, shared, values)


class PreparedLaunch:
    """One launch, ready; calling it enqueues the kernel on torch's current stream."""

    def __init__(
        self, function: Function, grid: Dim3, block: Dim3, shared: int, values: Sequence[Any]
    ) -> None:
        self._function = function
        self._values = tuple(
            values
        )  # the driver reads them at each launch: they must outlive this object's calls
        self._table = (ctypes.c_void_p * max(1, len(values)))(*(ctypes.addressof(v) for v in self._values))
        self._shape = (*grid, *block, shared)
        self._address = ctypes.addressof(self._table)
        self._launch = driver().cuLaunchKernel

    def __call__(self) -> None:
        (status,) = self._launch(self._function.handle, *self._shape, current_stream(), self._address, 0)
        if int(status) != 0:
            raise LaunchError(runtime_name(status.name), self._describe())

    def point(self, index: int, address: int) -> None:
        """Let the pointer parameter ``index`` be another address in the launches that follow."""
        self._values[index].value = address

    def _describe(self) -> str:
        gx, gy, gz, bx, by, bz, shared = self._shape
        return (
            f"kernel {self._function.name}: grid ({gx}, {gy}, {gz}), block ({bx}, {by}, {bz}), "
            f"{shared} bytes of shared memory"
        )


class LoadedCubin:
    """A cubin loaded into the primary context; unloaded when this object is closed or forgotten."""

    def __init__(self, data: bytes, context: Context) -> None:
        self._context = context
        context.activate()
        self._data = data
        self._module = check(driver().cuModuleLoadData(data), "load the compiled kernels")

    def function(self, mangled: str, name: str) -> Function:
        self._context.activate()
        handle = check(driver().cuModuleGetFunction(self._module, mangled.encode()), f"find kernel {name}")
        return Function(handle, name, self._context)

    def symbol(self, mangled: str) -> tuple[int, int]:
        """Address and bytes of a ``__device__`` or ``__constant__`` variable."""
        self._context.activate()
        address, size = check(
            driver().cuModuleGetGlobal(self._module, mangled.encode()), f"find the variable {mangled}"
        )
        return int(address), int(size)

    def close(self) -> None:
        module, self._module = getattr(self, "_module", None), None
        if module is not None:
            driver().cuModuleUnload(module)  # a poisoned context refuses; nothing is left to free then

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # the interpreter or the driver is going away: nobody is left to tell
            return


_SPILLS = re.compile(
    r"Compiling entry function '(?P<name>[^']+)'"
    r".*?(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, \d+ bytes spill loads"
    r".*?Used (?P<registers>\d+) registers(?:.*?(?P<shared>\d+) bytes smem)?",
    re.DOTALL,
)


def parse_ptxas(log: str) -> dict[str, KernelResources]:
    """Resources by mangled name from what ``ptxas -v`` prints; needs no GPU."""
    found = {}
    for part in re.split(r"(?=ptxas info\s*: Compiling entry function)", log):
        match = _SPILLS.search(part)
        if match:
            found[match["name"]] = KernelResources(
                registers=int(match["registers"]),
                local=int(match["stack"]),
                shared=int(match["shared"] or 0),
                spill_stores=int(match["stores"]),
            )
    return found

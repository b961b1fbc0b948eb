"""What every device build offers the judge, and how builds and launches fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class BuildError(Exception):
    """The source does not build: the source's fault. ``log`` holds the compiler's words without temporary paths."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log or message


class NeedsToolkit(BuildError):
    """The quick paths do not understand the source, but nvcc may: build the whole source with it."""


class InfraError(Exception):
    """The machine cannot build or run (no compiler, no driver, full disk): never the source's fault."""


_STICKY = frozenset(
    f"cudaError{name}"
    for name in (
        "IllegalAddress",
        "LaunchFailure",
        "LaunchTimeout",
        "Assert",
        "HardwareStackError",
        "IllegalInstruction",
        "MisalignedAddress",
        "InvalidAddressSpace",
        "InvalidPc",
        "ECCUncorrectable",
    )
)


class LaunchError(Exception):
    """A launch failed. ``name`` is the CUDA error's name (``cudaErrorInvalidConfiguration``...)."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name

    @property
    def sticky(self) -> bool:
        """The CUDA context is lost: every later call in this process fails too, only a new process helps."""
        return self.name in _STICKY


Dim3 = tuple[int, int, int]


class DeviceModule(Protocol):
    """Compiled kernels of one source, ready to launch."""

    backend: str
    """``cpu`` or ``nvrtc``."""
    build_seconds: float
    log: str
    """Warnings of the build, cleaned of temporary paths."""

    def launch(
        self,
        kernel: str,
        template_args: tuple[str, ...],
        grid: Dim3,
        block: Dim3,
        shared: int,
        args: Sequence[int | float],
    ) -> None:
        """Run ``kernel`` over ``grid`` blocks of ``block`` threads with ``shared`` bytes of dynamic shared memory.

        ``args`` are plain, in the order of the kernel's parameters: pointers as integer addresses, numbers and
        bools as they are; they are packed by the declared C types. Raises BuildError when an instantiation that
        was not asked for at build time does not compile, LaunchError for a launch that CUDA would refuse.
        """
        ...

    def synchronize(self) -> None:
        """Wait for all launches; raises LaunchError when one of them failed."""
        ...

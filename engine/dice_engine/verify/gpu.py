"""A GPU's description, its bandwidth, and one benchmark at a time on each GPU."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dice_engine.verify.build.interface import InfraError


@dataclass(frozen=True)
class GpuDescription:
    """What a measurement was made on. Unknown values are None or empty: not every machine tells."""

    name: str
    uuid: str = ""
    driver: str = ""
    arch: str = ""
    """``sm_90``: what to compile for, known without starting CUDA in this process."""
    sm_mhz: int | None = None
    memory_mhz: int | None = None
    utilization: int | None = None
    """Percent of the last sampling period in which a kernel ran, whoever's it was."""
    memory_used: int | None = None
    throttle: tuple[str, ...] = ()
    processes: tuple[int, ...] = ()

    def __str__(self) -> str:
        parts = [self.name]
        if self.sm_mhz is not None:
            parts.append(f"{self.sm_mhz} MHz")
        if self.driver:
            parts.append(f"driver {self.driver}")
        if self.throttle:
            parts.append("throttled: " + ", ".join(self.throttle))
        return ", ".join(parts)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


_THROTTLE = {
    "SwPowerCap": "power cap",
    "HwSlowdown": "hardware slowdown",
    "SwThermalSlowdown": "heat (software)",
    "HwThermalSlowdown": "heat (hardware)",
    "HwPowerBrakeSlowdown": "power brake",
}


def describe(ordinal: int = 0) -> GpuDescription | None:
    """GPU ``ordinal`` (as CUDA counts them, CUDA_VISIBLE_DEVICES regarded) as NVML sees it; None without NVML."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no package, no library, no driver: all mean that nobody can be asked
        return None
    try:
        handle = _nvml_handle(pynvml, ordinal)
        return _describe(pynvml, handle) if handle is not None else None
    except pynvml.NVMLError:
        return None
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _nvml_handle(nvml: Any, ordinal: int) -> Any:
    """NVML ignores CUDA_VISIBLE_DEVICES: translate the ordinal."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return nvml.nvmlDeviceGetHandleByIndex(ordinal)
    names = [name.strip() for name in visible.split(",") if name.strip()]
    if ordinal >= len(names):
        return None
    name = names[ordinal]
    return (
        nvml.nvmlDeviceGetHandleByIndex(int(name)) if name.isdigit() else nvml.nvmlDeviceGetHandleByUUID(name)
    )


def _describe(nvml: Any, handle: Any) -> GpuDescription:
    def ask(question: Callable[[], Any]) -> Any:
        try:
            answer = question()
        except nvml.NVMLError:
            return None
        return answer.decode() if isinstance(answer, bytes) else answer

    reasons = ask(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)) or 0
    utilization = ask(lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
    memory = ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    processes = ask(lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle)) or []
    capability = ask(lambda: nvml.nvmlDeviceGetCudaComputeCapability(handle))
    return GpuDescription(
        name=ask(lambda: nvml.nvmlDeviceGetName(handle)) or "NVIDIA GPU",
        uuid=ask(lambda: nvml.nvmlDeviceGetUUID(handle)) or "",
        driver=ask(nvml.nvmlSystemGetDriverVersion) or "",
        arch=f"sm_{capability[0]}{capability[1]}" if capability else "",
        sm_mhz=ask(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
        memory_mhz=ask(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
        utilization=utilization.gpu if utilization is not None else None,
        memory_used=int(memory.used) if memory is not None else None,
        throttle=tuple(
            words
            for name, words in _THROTTLE.items()
            if reasons & getattr(nvml, f"nvmlClocksThrottleReason{name}", 0)
        ),
        processes=tuple(process.pid for process in processes),
    )


def private_folder() -> Path:
    """A folder of this user's alone for locks and measured facts. Raises InfraError when it is somebody else's.

    No environment variable moves it: processes that do not share it would not exclude each other.
    """
    runtime = Path(f"/run/user/{os.getuid()}")
    folder = (runtime if os.access(runtime, os.W_OK) else Path("/tmp")) / f"dice-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise InfraError(f"cannot make the folder {folder}: {error.strerror}") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise InfraError(f"{folder} must be a folder of yours with mode 0700: remove it")
    return folder


@contextlib.contextmanager
def gpu_lock(
    gpu: str = "0", timeout: float | None = None, waiting: Callable[[float], None] | None = None
) -> Iterator[None]:
    """Hold this machine's one right to time on ``gpu`` (its ordinal or UUID) among the user's processes.

    The kernel frees the lock when its holder dies, however it dies. ``waiting`` is told the seconds waited, once a
    second. Raises InfraError after ``timeout`` seconds.
    """
    import fcntl

    path = private_folder() / f"gpu-{gpu}.lock"
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        begun = last = time.monotonic()
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    raise InfraError(f"cannot lock {path}: {error.strerror}") from None
            now = time.monotonic()
            if timeout is not None and now - begun >= timeout:
                raise InfraError(f"GPU {gpu} is being used for another benchmark (waited {timeout:.0f} s)")
            if waiting is not None and now - last >= 1.0:
                last = now
                waiting(now - begun)
            time.sleep(0.01)
        yield
    finally:
        os.close(file)  # the file itself stays: removing it would let two holders lock two files of one name


def wait_until_idle(
    ordinal: int = 0,
    timeout: float = 60.0,
    waiting: Callable[[str], None] | None = None,
    busy_percent: int = 10,
) -> str | None:
    """Wait while others compute on the GPU; the reason to distrust a measurement when they still do, else None.

    Call before this process's own work starts: NVML does not say whose work it was.
    """
    until = time.monotonic() + timeout
    while True:
        seen = describe(ordinal)
        if seen is None or seen.utilization is None or seen.utilization < busy_percent:
            return None
        reason = f"{seen.name} is {seen.utilization} % busy with other work"
        if time.monotonic() >= until:
            return reason
        if waiting is not None:
            waiting(reason)
        time.sleep(0.5)


@functools.cache
def copy_bandwidth() -> float:
    """Bytes a second, read and written, of the best of 20 device-to-device copies on torch's current GPU.

    Measured once a GPU and driver, then remembered in the private folder.
    """
    import torch

    ordinal = torch.cuda.current_device()
    seen = describe(ordinal)
    key = f"{seen.uuid}-{seen.driver}" if seen is not None else torch.cuda.get_device_name(ordinal)
    path = private_folder() / "bandwidth.json"
    known: dict[str, float] = {}
    with contextlib.suppress(OSError, ValueError):
        known = {str(k): float(v) for k, v in json.loads(path.read_text()).items()}
    if key not in known:
        known[key] = copy_rate()
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(known))
        temporary.replace(path)
    return known[key]


def copy_rate() -> float:
    """What ``copy_bandwidth`` measures, measured now and remembered nowhere."""
    import torch

    size = min(1 << 30, torch.cuda.mem_get_info()[0] // 4)
    source = torch.empty(size, dtype=torch.int8, device="cuda")
    target = torch.empty_like(source)
    best = float("inf")
    for _ in range(20):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end))
    return 2 * size / (best * 1e-3)

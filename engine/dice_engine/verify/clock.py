"""The GPU's clock: what a call costs when nothing of it hides and the host does not count.

It runs inside the process that runs the code under test and needs torch with CUDA.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dice_engine.verify.bench import settled
from dice_engine.verify.build import cuda_driver
from dice_engine.verify.build.device_source import split
from dice_engine.verify.build.interface import InfraError
from dice_engine.verify.build.nvrtc import build_nvrtc

WARMUP_CALLS = 200
WARMUP_SECONDS = 2.0
_COVER = 2.0
"""The GPU is held this many times as long as the host takes to prepare a call."""
_LEAST_COVER_MS, _MOST_COVER_MS = 0.05, 10.0
_LATE_MS = 0.01
"""Work that ends this much later than the stream says, in the median, was not on the stream: it counts."""
_ESCAPE_MS, _ESCAPE_SHARE = 0.02, 0.2
"""So much more, and this share of a call's time, is no accident of the host's clock."""
_HOLD_THREADS = 512
_HOLD = """
__global__ void __launch_bounds__(512) hold(unsigned long long nanoseconds) {
  if (threadIdx.x == 0) {
    unsigned long long begun, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begun));
    do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); while (now - begun < nanoseconds);
  }
  __syncthreads();
}
"""
"""Takes every thread of the GPU for a while."""


@dataclass(frozen=True)
class Timing:
    """Times of a series of calls, milliseconds, in order."""

    ms: list[float]
    """What counts: GPU time from before the call to the end of its work on every stream."""
    host_ms: list[float]
    """The same span by the host's clock: never less than ``ms``, or the GPU's clock was tampered with."""
    escaped: bool = False
    """Much of the work went on after the timed stream was done: it ran on another stream, and ``ms`` includes it."""

    @property
    def consistent(self) -> bool:
        """The host saw each call last at least as long as the GPU says it did."""
        return all(host >= 0.95 * gpu - 0.02 for gpu, host in zip(self.ms, self.host_ms, strict=True))


class GpuClock:
    """Times calls on torch's current GPU as they would run cold: L2 flushed, clocks warm.

    Before the call every thread of the GPU is held for as long as the host needs to prepare it (``warm_up`` finds out):
    the time is the kernels', not the host's, and no stream can work ahead of the clock. Both sides of a comparison get
    the same treatment.
    """

    def __init__(self) -> None:
        import torch

        if not torch.cuda.is_available():
            raise InfraError("timing needs a CUDA GPU, and torch sees none")
        # Taken now: the code under test may replace what these names mean later.
        self._synchronize = torch.cuda.synchronize
        self._event = torch.cuda.Event
        self._elapsed = torch.cuda.Event.elapsed_time
        self._now = time.perf_counter
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        self._flush = torch.empty(
            max(4 * properties.L2_cache_size, 64 << 20), dtype=torch.int8, device="cuda"
        )
        self._reset_persisting_l2()
        resident = properties.max_threads_per_multi_processor // _HOLD_THREADS
        blocks = (properties.multi_processor_count * resident, 1, 1)
        self._holder = build_nvrtc(split(_HOLD))
        self._hold = self._holder.prepare("hold", (), blocks, (_HOLD_THREADS, 1, 1), 0, (0,))
        self._cover_ms = _LEAST_COVER_MS
        self._prepared_ms = 0.0

    def _reset_persisting_l2(self) -> None:
        """Lines that someone pinned in L2 would survive the flush."""
        api = cuda_driver.driver()
        self._synchronize()
        api.cuCtxResetPersistingL2Cache()
        limit = api.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE
        api.cuCtxSetLimit(limit, 0)

    def idle_wait(self, calls: int = 5) -> float:
        """Milliseconds from the stream's end to the end of the device-wide wait when there is nothing to wait for.

        It is the host's doing and changes with what else the host does, so it is measured in every turn.
        """
        return statistics.median(late - end for end, late, _ in [self._once(_nothing) for _ in range(calls)])

    def _once(self, call: Callable[[], Any]) -> tuple[float, float, float]:
        """Milliseconds from the start to the end of the stream's work, to the end of all work, and by the host."""
        start, end, late = (self._event(enable_timing=True) for _ in range(3))
        self._synchronize()
        self._flush.zero_()
        self._hold.point(0, int(self._cover_ms * 1e6))
        self._hold()
        start.record()
        begun = self._now()
        call()
        self._prepared_ms = (self._now() - begun) * 1e3
        end.record()
        self._synchronize()
        late.record()
        host = self._now() - begun
        late.synchronize()
        return self._elapsed(start, end), self._elapsed(start, late), host * 1e3

    def warm_up(self, call: Callable[[], Any], restore: Callable[[], Any] | None = None) -> int:
        """Call until two windows of times agree, the clocks having settled; at most 200 calls or 2 s. Returns calls."""
        seen: list[float] = []
        prepared: list[float] = []
        until = time.monotonic() + WARMUP_SECONDS
        while len(seen) < WARMUP_CALLS and not settled(seen) and (time.monotonic() < until or len(seen) < 3):
            if restore is not None:
                restore()
            seen.append(self._once(call)[0])
            prepared.append(self._prepared_ms)
            wanted = _COVER * statistics.median(prepared[-9:])
            self._cover_ms = min(max(wanted, _LEAST_COVER_MS), _MOST_COVER_MS)
        return len(seen)

    def measure(
        self, call: Callable[[], Any], restore: Callable[[], Any] | None = None, n: int = 20
    ) -> Timing:
        """Time ``n`` calls. ``restore`` runs before each, outside its time: fresh inputs.

        One call more is made first and forgotten: the GPU may come from another process's turn.
        """
        spans = []
        for _ in range(n + 1):
            if restore is not None:
                restore()
            spans.append(self._once(call))
        del spans[0]
        wait = self.idle_wait()
        lateness = statistics.median(late - end for end, late, _ in spans) - wait
        times = [max(end, late - wait) if lateness > _LATE_MS else end for end, late, _ in spans]
        # The host's part of the span covers the hold as well where the call was enqueued behind it: it only bounds.
        host = [h for _, _, h in spans]
        return Timing(times, host, lateness > max(_ESCAPE_MS, _ESCAPE_SHARE * statistics.median(times)))


def _nothing() -> None:
    """A call without work."""

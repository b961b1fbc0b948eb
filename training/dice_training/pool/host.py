"""What runs on a node of the cluster: one GPU with the processes that use it, or the cores of a node.

The processes are those of ``local``: candidates run on the node behind the same walls as anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any

from dice_engine.verify import cache, gpu

from dice_training.pool import verdicts
from dice_training.pool.local import LocalPool
from dice_training.pool.work import Judgement, Options, Share, Work


@dataclass(frozen=True)
class About:
    """``device``: the GPU's name or ``cpu``; ``version``: of what judges there."""

    device: str
    version: str


def version() -> str:
    """Verdicts of two versions are not to be mixed, nor can they talk."""
    return f"{metadata.version('dice-ls')} {cache.tools()['source'][:12]}"


class Host:
    """An actor with one GPU to itself, or none. Its workers build and check on it at the same time; a measurement waits
    until it is alone (see ``LocalPool``)."""

    def __init__(self, options: Options, workers: int, deadline: float, shared: Any) -> None:
        self._options, self._shared = options, shared
        self._pool = LocalPool(options, workers, deadline=deadline)
        described = gpu.describe(0) if options.device == "cuda" else None
        self._device = described.name.removeprefix("NVIDIA ") if described else options.device
        self._place = f"{self._device} {described.driver}" if described else self._device

    def about(self) -> About:
        return About(self._device, version())

    def run(self, work: Work) -> list[Any]:
        if not isinstance(work, Share) or work.measure:  # times are taken anew in every run
            return self._pool.run(work).result()
        keys = verdicts.keys(work, self._options, self._place)
        known = self._known(keys)
        missing = tuple(core for core in work.items if core not in known)
        judged: list[Judgement] = self._pool.run(replace(work, items=missing)).result()
        fresh = dict(zip(missing, judged, strict=True))
        self._keep({keys[core]: found for core, found in fresh.items()})
        return [known.get(core) or fresh[core] for core in work.items]

    def close(self) -> None:
        self._pool.close()

    def _known(self, keys: dict[str, str]) -> dict[str, Judgement]:
        import ray
        from ray.exceptions import RayError

        try:
            kept = ray.get(self._shared.get.remote(list(keys.values())), timeout=10)
        except RayError:  # the node that held them is gone: they are judged again
            return {}
        return {
            core: verdicts.judgement(found)
            for core, found in zip(keys, kept, strict=True)
            if found is not None
        }

    def _keep(self, fresh: dict[str, Judgement]) -> None:
        entries = {key: kept for key, found in fresh.items() if (kept := verdicts.entry(found)) is not None}
        if entries:
            self._shared.put.remote(entries)

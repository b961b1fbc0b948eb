"""What the server is doing, told to the client by the notification ``dice/status`` whenever it changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

State = Literal["idle", "starting", "decoding", "checking", "unavailable"]
METHOD = "dice/status"


@dataclass(frozen=True)
class Status:
    state: State = "idle"
    device: str = ""
    """The device the engine runs on, empty until it has said so."""
    queue: int = 0
    """Requests that run or wait."""
    message: str = ""
    """What is wrong and what to do, when ``state`` is ``unavailable``; else empty."""


class StatusReporter:
    """Holds the status and sends it when it differs from what was sent last."""

    def __init__(self, notify: Callable[[str, dict[str, Any]], None]) -> None:
        self._notify = notify
        self.current = Status()

    def update(self, **changes: Any) -> None:
        changed = replace(self.current, **changes)
        if changed != self.current:
            self.current = changed
            self._notify(METHOD, self.to_json())

    def to_json(self) -> dict[str, Any]:
        return asdict(self.current)

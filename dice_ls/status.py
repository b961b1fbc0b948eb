"""What the server is doing, told to the client by the notification ``dice/status`` whenever it changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dice_ls.contract import STATUS, EngineStatus, Status

NO_ENGINE: EngineStatus = {"running": False, "pid": None, "version": "", "models": []}


class StatusReporter:
    """Holds the status and sends it when it differs from what was sent last."""

    def __init__(self, notify: Callable[[str, Any], None]) -> None:
        self._notify = notify
        self.current: Status = {
            "state": "idle",
            "device": "",
            "engine": NO_ENGINE,
            "queue": 0,
            "running": "",
            "waiting_for": "",
            "message": "",
        }

    def update(self, **changes: Any) -> None:
        """Change some of the fields of :class:`dice_ls.contract.Status`."""
        changed: Status = {**self.current, **changes}  # type: ignore[typeddict-item]
        if changed != self.current:
            self.current = changed
            self._notify(STATUS, dict(changed))

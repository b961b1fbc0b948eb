"""What the open folders say about their sources (``dice.toml``, compile commands), read again when it changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dice_engine.source.project import Project

log = logging.getLogger(__name__)
_RECORDED = ".dice/recorded.json"


class Projects:
    """Projects by root, as their files are at the moment of asking."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[object, Project]] = {}

    def at(self, root: Path) -> Project:
        """May be called from any thread; costs a look at some files' times when nothing has changed."""
        from dice_engine.source.project import COMMANDS, FILE, load

        state = tuple(_state(root / name) for name in (FILE, *COMMANDS, _RECORDED))
        known = self._known.get(root)
        if known is None or known[0] != state:
            known = (state, load(root))
            self._known[root] = known
        return known[1]


def _state(path: Path) -> tuple[int, int] | None:
    try:
        told = path.stat()
    except OSError:
        return None
    return told.st_mtime_ns, told.st_size


class Watch:
    """Calls ``changed`` (on the event loop) soon after a project's file was written, made or deleted."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._observer: Any = None
        self._folders: set[Path] = set()
        self._waiting = False

    async def follow(self, roots: list[Path]) -> None:
        """Watch these folders and what of them is there by now; nothing is watched twice."""
        await asyncio.to_thread(self._follow, roots, asyncio.get_running_loop())

    def close(self) -> None:
        if self._observer is not None:
            self._observer.stop()

    def _follow(self, roots: list[Path], loop: asyncio.AbstractEventLoop) -> None:
        from dice_engine.source.project import COMMANDS, FILE
        from watchdog.events import FileSystemEvent, FileSystemEventHandler
        from watchdog.observers import Observer

        names = {FILE, ".dice", *(Path(name).name for name in (*COMMANDS, _RECORDED))}

        watch = self

        class Handler(FileSystemEventHandler):
            def on_any_event(self, event: FileSystemEvent) -> None:
                touched = {Path(str(path)).name for path in (event.src_path, event.dest_path)}
                if event.event_type not in ("opened", "closed_no_write") and names & touched:
                    loop.call_soon_threadsafe(watch._soon, loop)

        if self._observer is None:
            self._observer = Observer()
            self._observer.daemon = True
            self._observer.start()
        for root in roots:
            for folder in (root, root / "build", root / ".dice"):
                try:
                    if folder not in self._folders and folder.is_dir():
                        self._observer.schedule(Handler(), str(folder))
                        self._folders.add(folder)
                except OSError as error:
                    log.warning("%s is not watched: %s", folder, error)

    def _soon(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._waiting:
            self._waiting = True
            loop.call_later(0.2, self._now)

    def _now(self) -> None:
        self._waiting = False
        self._changed()

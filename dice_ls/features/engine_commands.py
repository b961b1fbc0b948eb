"""Commands about the engine: pause, resume, restart, which model, and what is kept on disk."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from pygls.exceptions import JsonRpcInvalidParams

from dice_ls.language_server import DiceServer


def register(server: DiceServer) -> None:
    @server.command("dice.pause")
    def pause(ls: DiceServer, *_: Any) -> dict[str, Any]:
        ls.jobs.pause()
        return dict(ls.status.current)

    @server.command("dice.resume")
    def resume(ls: DiceServer, *_: Any) -> dict[str, Any]:
        ls.jobs.resume()
        return dict(ls.status.current)

    @server.command("dice.restartEngine")
    async def restart_engine(ls: DiceServer, *_: Any) -> dict[str, Any]:
        """End the engine process. What was running begins anew, which starts another one."""
        was_paused = ls.jobs.paused
        ls.jobs.pause()
        await ls.engine.end()
        if not was_paused:
            ls.jobs.resume()
        ls.status.update(engine=ls.engine.status, message="")
        return dict(ls.status.current)

    @server.command("dice.selectCheckpoint")
    async def select_checkpoint(ls: DiceServer, *arguments: Any) -> dict[str, Any]:
        """Decode with the model in ``path`` from now on (null: the embedded one); without it, say what there is."""
        if arguments and not isinstance(arguments[0], dict):
            raise JsonRpcInvalidParams("expected one object with `path`, or nothing")
        if arguments and "path" in arguments[0]:
            path = arguments[0]["path"]
            if path is not None and not (isinstance(path, str) and Path(path).is_absolute()):
                raise JsonRpcInvalidParams("`path` must be the full path of a checkpoint's folder, or null")
            if path is not None and not await asyncio.to_thread(_is_file, Path(path) / "config.json"):
                raise JsonRpcInvalidParams(f"no model in {path}: it has no config.json")
            ls.settings = replace(ls.settings, checkpoint=path)
            ls.seen_checkpoints[path] = None
        choices = [{"path": None, "title": "nano (comes with DICE)"}]
        known = dict.fromkeys([ls.first_settings.checkpoint, *ls.seen_checkpoints])
        choices += [{"path": path, "title": Path(path).name} for path in known if path is not None]
        return {"checkpoint": ls.settings.checkpoint, "choices": choices}

    @server.command("dice.clearCache")
    async def clear_cache(ls: DiceServer, *_: Any) -> dict[str, Any]:
        """Forget the results of this session and the verdicts kept on disk."""
        results = ls.store.clear()
        ls.refresh_lenses()
        return {"results": results, "verdicts": await asyncio.to_thread(_clear_verdicts)}


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # no path at all: too long, or with a zero in it
        return False


def _clear_verdicts() -> int:
    import diskcache
    import platformdirs

    folder = Path(platformdirs.user_cache_dir("dice")) / "verdicts"
    if not folder.is_dir():
        return 0
    with diskcache.Cache(str(folder), disk=diskcache.JSONDisk, disk_compress_level=1) as cache:
        return cache.clear()

"""``dice serve --on HOST``: the engine of another machine at this machine's socket, over SSH.

There it is that user's socket behind SSH's own checks; here a socket of mode 0600 in a folder of mode 0700. Nothing
listens on a network. The frames hold texts, so that neither machine reads the other's files.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys

from dice_engine.client import EngineClient
from dice_engine.runtime import (
    UNIX_SOCKETS,
    EngineError,
    host_path,
    lock,
    prepare_dir,
    socket_dir,
    socket_path,
)

_SSH = (
    *("-o", "ExitOnForwardFailure=yes"),
    *("-o", "ServerAliveInterval=15"),
    *("-o", "StreamLocalBindMask=0177"),
    *("-o", "StreamLocalBindUnlink=yes"),
)
_TUNNEL_SECONDS = 60.0


def address() -> int:
    """Start this machine's engine where none runs, and print its socket: what the other end asks for."""
    if not UNIX_SOCKETS:
        raise EngineError("an engine can be reached from elsewhere only on systems with Unix sockets")

    async def started() -> None:
        await (await EngineClient.connect()).close()

    asyncio.run(started())
    print(socket_path().absolute())
    return 0


def serve_on(host: str, dice: str) -> int:
    """Forward the engine of ``host`` (whatever ssh calls it), whose command is ``dice``, until Ctrl-C or its end."""
    if not UNIX_SOCKETS:
        raise EngineError("forwarding needs Unix sockets; run the editor on the other machine instead")
    prepare_dir()
    with lock("engine.lock", wait=False) as held:  # which no engine of this machine can have meanwhile
        if not held:
            raise EngineError(f"an engine runs already in {socket_dir()}; end it with: dice serve --stop")
        host_path().write_text(host, encoding="utf-8")
        try:
            return asyncio.run(_forward(host, dice))
        finally:
            host_path().unlink(missing_ok=True)
            socket_path().unlink(missing_ok=True)


async def _forward(host: str, dice: str) -> int:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    theirs = await _their_address(host, dice)
    ssh = await asyncio.create_subprocess_exec(
        "ssh", "-N", *_SSH, "-L", f"{socket_path()}:{theirs}", host, stdin=asyncio.subprocess.DEVNULL
    )
    try:
        client = await _connected(ssh, host)
        status = await client.status()
        print(
            f"the engine of {host} ({status.device}) answers here, pid {status.pid}; Ctrl-C ends the line",
            flush=True,
        )
        # This connection also says that somebody is there: that engine does not end for want of work.
        waiting = [asyncio.ensure_future(client.lost()), asyncio.ensure_future(ssh.wait())]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        print(f"the line to {host} or its engine has ended", file=sys.stderr)
        return 1
    except asyncio.CancelledError:
        return 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            ssh.terminate()
        await ssh.wait()


async def _their_address(host: str, dice: str) -> str:
    try:
        asked = await asyncio.create_subprocess_exec(
            "ssh", host, f"{dice} serve --address", stdout=asyncio.subprocess.PIPE
        )
    except OSError as error:
        raise EngineError(f"ssh cannot be run: {error.strerror}") from None
    said, _ = await asked.communicate()
    lines = said.decode(errors="replace").split("\n")
    found = next((line.strip() for line in reversed(lines) if line.startswith("/")), "")
    if asked.returncode or not found:
        raise EngineError(
            f"{host} gives no engine: is `{dice}` there what starts one? --remote-dice names another command"
        )
    return found


async def _connected(ssh: asyncio.subprocess.Process, host: str) -> EngineClient:
    until = asyncio.get_running_loop().time() + _TUNNEL_SECONDS
    while asyncio.get_running_loop().time() < until and ssh.returncode is None:
        with contextlib.suppress(EngineError):
            return await EngineClient.connect(start=False)
        await asyncio.sleep(0.1)
    raise EngineError(
        f"the line to {host} does not come up{'' if ssh.returncode is None else ': see ssh above'}"
    )

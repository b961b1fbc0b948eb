"""``dice serve``: the engine process that a user's editors share; it owns the models and the GPU memory."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import signal
import sys
from dataclasses import asdict

from dice_engine import remote
from dice_engine.arguments import Arguments
from dice_engine.client import EngineClient
from dice_engine.runtime import EngineError, host_path, lock, prepare_dir, share_cores, socket_dir
from dice_engine.serving import Service

IDLE_SECONDS = 900.0


def main(argv: list[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    try:
        if options.status or options.stop:
            return asyncio.run(_ask(options))
        if options.address:
            return remote.address()
        if options.on:
            return remote.serve_on(options.on, options.remote_dice)
        return _serve(options)
    except EngineError as error:
        print(f"dice serve: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _serve(options: argparse.Namespace) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    share_cores()
    prepare_dir()
    with lock("engine.lock", wait=False) as held:
        if not held:
            print(f"an engine runs already in {socket_dir()}", file=sys.stderr)
            return 0
        host_path().unlink(missing_ok=True)  # left by a line that was killed
        asyncio.run(_run(options))
    return 0


async def _run(options: argparse.Namespace) -> None:
    service = Service(options.idle_seconds, options.exit_when_idle, options.gpu_memory)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(number, service.stop)
    await service.run()


async def _ask(options: argparse.Namespace) -> int:
    try:
        client = await EngineClient.connect(start=False)
    except EngineError as error:
        if options.json and options.status:
            print(json.dumps({"running": False}))
        else:
            print(f"dice serve: {error}", file=sys.stderr)
        return 1
    if options.stop:
        await client.shutdown()
        print(json.dumps({"running": False}) if options.json else f"the engine (pid {client.pid}) has ended")
        return 0
    try:
        status = await client.status()
    finally:
        await client.close()
    if options.json:
        print(json.dumps({"running": True, **asdict(status)}))
    else:
        models = ", ".join(status.models) or "none loaded"
        print(f"engine: pid {status.pid}, dice-ls {status.version}, up {status.uptime_seconds:.0f} s")
        memory = f", {status.gpu_bytes / 1e9:.1f} GB of its memory held" if status.gpu_bytes else ""
        print(f"device: {status.device}{memory}")
        print(f"models: {models}")
        print(f"requests: {status.active} running, {status.waiting} waiting; clients: {status.clients}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Arguments(prog="dice serve", description="Run the engine that a user's editors share.")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--status", action="store_true", help="say what the running engine does")
    what.add_argument("--stop", action="store_true", help="end the running engine")
    what.add_argument(
        "--on", metavar="HOST", help="use the engine of another machine: forward it here by ssh, until Ctrl-C"
    )
    what.add_argument("--address", action="store_true", help="start an engine if none runs; print its socket")
    parser.add_argument(
        "--remote-dice", metavar="COMMAND", default="dice", help="how HOST calls dice (dice): ~/venv/bin/dice"
    )
    parser.add_argument(
        "--idle-seconds",
        type=_seconds,
        default=IDLE_SECONDS,
        help="unload models after this time without work (900)",
    )
    parser.add_argument(
        "--exit-when-idle", action="store_true", help="end after that time too, when no editor is connected"
    )
    parser.add_argument(
        "--gpu-memory",
        type=_share,
        metavar="SHARE",
        help="of the GPU's memory, 0.05 to 0.95, weights included (weights and moderate room beside them)",
    )
    parser.add_argument("--json", action="store_true", help="print the answer of --status or --stop as JSON")
    return parser


def _share(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0.05 <= number <= 0.95:
        raise argparse.ArgumentTypeError(f"expected a share from 0.05 to 0.95, not {text!r}")
    return number


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not number > 0:
        raise argparse.ArgumentTypeError(f"expected a number of seconds above 0, not {text!r}")
    return number


if __name__ == "__main__":
    sys.exit(main())

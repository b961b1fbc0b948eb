"""``dice verify-pool``: machines that judge candidates, by Ray's own tools; ends with Ctrl-C and leaves nothing."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
from typing import Any, NoReturn

from dice_training.pool import TOKEN, PoolError

PORT, CLIENT_PORT = 6379, 10001


def main(argv: list[str]) -> int:
    args = _parser().parse_args(argv)
    try:
        return args.run(args)
    except PoolError as error:
        print(f"dice verify-pool: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _start(args: argparse.Namespace) -> NoReturn:
    place = f"ray://{args.host}:{args.client_port}"
    print(f"the pool is at {place}: give it to dice train rl, cuke build or eval as --pool {place}")
    print(f"further machines: dice verify-pool join {args.host}:{args.port}", flush=True)
    _ray(
        [
            "start",
            "--head",
            "--disable-usage-stats",
            "--include-dashboard=false",
            f"--node-ip-address={args.host}",
            f"--port={args.port}",
            f"--ray-client-server-port={args.client_port}",
            *_resources(args),
        ],
        makes_token=True,
    )


def _join(args: argparse.Namespace) -> NoReturn:
    _ray(["start", f"--address={args.address}", *_resources(args)], makes_token=False)


def _ray(command: list[str], makes_token: bool) -> NoReturn:
    """Become Ray, in the foreground. Whoever may connect to it may run code on all nodes, so it always asks for a token
    (``~/.ray/auth_token``, made by the first node)."""
    try:
        import ray  # noqa: F401
    except ImportError as error:
        raise PoolError("a pool needs Ray: pip install 'dice-ls[scale]'") from error
    environment = {"RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0", **os.environ}
    program = [sys.executable, "-m", "ray.scripts.scripts"]
    if makes_token and environment["RAY_AUTH_MODE"] == "token":
        made = subprocess.run(
            [*program, "get-auth-token", "--generate"], env=environment, capture_output=True, check=False
        )
        if made.returncode:
            raise PoolError(f"Ray makes no token: {made.stderr.decode(errors='replace').strip()[-200:]}")
        TOKEN.chmod(0o600)  # Ray leaves it to the umask
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # its advice is about other ways to use it
    os.execve(sys.executable, [*program, *command, "--block"], environment)


def _resources(args: argparse.Namespace) -> list[str]:
    given = (("--num-cpus", args.cpus), ("--num-gpus", args.gpus))
    return [f"{name}={value}" for name, value in given if value is not None]


def _status(args: argparse.Namespace) -> int:
    from dice_training.pool.connection import connect

    ray, _ = connect(args.place)
    nodes = [_described(node) for node in ray.nodes() if node["Alive"]]
    free = ray.available_resources()
    summary = {"nodes": nodes, "free": {"cpus": free.get("CPU", 0.0), "gpus": free.get("GPU", 0.0)}}
    ray.shutdown()
    if args.json:
        print(json.dumps(summary))
        return 0
    for node in nodes:
        kinds = f" ({', '.join(node['kinds'])})" if node["kinds"] else ""
        print(f"{node['address']:24}{node['cpus']:4.0f} cores{node['gpus']:4.0f} GPUs{kinds}")
    print(f"free: {summary['free']['cpus']:.0f} cores, {summary['free']['gpus']:.0f} GPUs")
    return 0


def _described(node: dict[str, Any]) -> dict[str, Any]:
    resources: dict[str, float] = node["Resources"]
    return {
        "address": node["NodeManagerAddress"],
        "cpus": resources.get("CPU", 0.0),
        "gpus": resources.get("GPU", 0.0),
        "kinds": [name.split(":", 1)[1] for name in resources if name.startswith("accelerator_type:")],
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dice verify-pool", description="Machines that judge candidates together (Ray)."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser("start", help="the first machine of a pool; runs until Ctrl-C")
    start.add_argument("--host", default=_address(), help="this machine's address for the others")
    start.add_argument("--port", type=int, default=PORT, help=f"for machines that join ({PORT})")
    start.add_argument(
        "--client-port", type=int, default=CLIENT_PORT, help=f"for commands with --pool ({CLIENT_PORT})"
    )
    start.set_defaults(run=_start)
    join = commands.add_parser("join", help="a further machine; runs until Ctrl-C")
    join.add_argument("address", help="HOST:PORT of the first one")
    join.set_defaults(run=_join)
    for command in (start, join):
        command.add_argument("--cpus", type=int, help="cores that judge (all)")
        command.add_argument("--gpus", type=int, help="GPUs that judge (all): 0 where they train")
    status = commands.add_parser("status", help="the machines of a pool")
    status.add_argument("place", nargs="?", default="ray", help="ray://HOST:PORT (this machine's pool)")
    status.add_argument("--json", action="store_true")
    status.set_defaults(run=_status)
    return parser


def _address() -> str:
    """The address from which this machine would reach others; its own where there is no network."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # nothing is sent
        return str(probe.getsockname()[0])
    return "127.0.0.1"

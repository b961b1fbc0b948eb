"""``dice``: the command line. Light subcommands run here; those that need torch run as ``python -m`` of their part.

Exit codes: 0 done, 1 the answer is no, 2 bad use or input. An error is one clear line on standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from threading import Thread

from dice_engine.arguments import Arguments
from dice_engine.streams import with_output

from dice_ls import __version__

_MODULES = {
    "verify": ("dice_engine.verify", [], "judge a candidate against its reference"),
    "generate": ("dice_engine.generate", [], "decode candidates without checking them"),
    "serve": ("dice_engine.service", [], "run the engine that editors share"),
    "cuke": ("dice_training", ["cuke"], "build, import and describe training data"),
    "train": ("dice_training", ["train"], "train a checkpoint from a recipe"),
    "eval": ("dice_training", ["eval"], "score a checkpoint on benchmarks"),
    "verify-pool": ("dice_training", ["verify-pool"], "machines that judge candidates together"),
}
_END_THEMSELVES = {"dice_engine.service", "dice_training"}
"""Parts that save or stop something at the first Ctrl-C and do not wait at the second."""
_BENCHES = {"decode": "dice_engine.bench.decode", "verify": "dice_engine.bench.verify"}


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    try:
        return with_output(" ".join(["dice", *arguments[:1]]), lambda: _dispatch(arguments))
    except KeyboardInterrupt:
        return 130


def _dispatch(arguments: list[str]) -> int:
    parser = _parser()
    if not arguments:
        parser.print_help()
        return 2
    command, rest = arguments[0], arguments[1:]
    if command == "holes":
        from dice_engine.source.__main__ import main as holes

        return int(holes(rest) or 0)
    if command == "suggest":
        from dice_ls.suggest import main as suggest

        return suggest(rest)
    if command == "report":
        from dice_ls.report.command import main as report

        return report(rest)
    if command == "doctor":
        from dice_ls.doctor import main as doctor

        return doctor(rest)
    if command == "record":
        from dice_engine.recording.__main__ import main as record

        return record(rest)
    if command == "bench":
        return _bench(rest)
    if command in _MODULES:
        module, prefix, _ = _MODULES[command]
        return _run(command, module, prefix + rest)
    parser.parse_args(arguments)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = Arguments(
        prog="dice", description="Verified rewrites of CUDA kernels, decoded by a model on this machine."
    )
    parser.add_argument("--version", action="version", version=f"dice {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    commands.add_parser("doctor", help="what works on this machine and what to do about the rest")
    commands.add_parser("holes", help="what could be rewritten in a file, and how it would be run")
    commands.add_parser("suggest", help="decode rewrites of a kernel or module and check each one")
    commands.add_parser("record", help="run your program and record the shapes and times of what it computes")
    commands.add_parser("report", help="the same, with the evidence as one HTML file")
    for name, (_, _, text) in _MODULES.items():
        commands.add_parser(name, help=text)
    commands.add_parser("bench", help="measure decoding, verification or the language server")
    return parser


def _bench(rest: list[str]) -> int:
    parser = Arguments(prog="dice bench", description="What things cost on this machine.")
    benches = parser.add_subparsers(metavar="BENCH", required=True)
    benches.add_parser("decode", help="milliseconds per forward and tokens per second of a checkpoint")
    benches.add_parser("verify", help="seconds per verdict")
    benches.add_parser("lsp", help="how long the language server lets an editor wait")
    if not rest or rest[0] not in (*_BENCHES, "lsp"):
        parser.parse_args(rest)
        return 2
    if rest[0] == "lsp":
        from dice_ls.bench import main as lsp

        return lsp(rest[1:])
    return _run(f"bench {rest[0]}", _BENCHES[rest[0]], rest[1:])


def _run(command: str, module: str, arguments: list[str]) -> int:
    """Run ``python -m module`` with our standard streams and pass its exit code on."""
    if find_spec(module) is None:
        return _bad(f"dice {command}: {module} is not part of this installation")
    if find_spec("torch") is None:
        return _bad(f"dice {command} needs the engine: pip install 'dice-ls[engine]'")
    line = [sys.executable, "-m", "dice_engine.start", module, *arguments]
    if module in _END_THEMSELVES and os.name == "posix":
        os.execv(sys.executable, line)  # nothing stands between these and who sends them a signal
    # Ignored until the child has its own way with it: no Python starts up with a traceback.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    process = subprocess.Popen(line)
    # A handler that raises could lose the exit status that is being read.
    signal.signal(signal.SIGINT, lambda *_: Thread(target=_end, args=(process,), daemon=True).start())
    code = process.wait()
    return code if code >= 0 else 128 - code


def _end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt a child, unless a terminal has done so already and it ends by itself."""
    for _ in range(12):
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
            return
        process.send_signal(signal.SIGINT)
    process.kill()


def _bad(message: str) -> int:
    print(message, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())

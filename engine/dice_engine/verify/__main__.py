"""``python -m dice_engine.verify REFERENCE CANDIDATE``: one verdict, for people or as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import NoReturn

from dice_engine.verify.zygote import Zygote


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"dice verify: {message}", file=sys.stderr)
        raise SystemExit(2)


def main(argv: list[str] | None = None) -> int:
    """Exit status 0: correct; 1: rejected; 2: bad use or input."""
    parser = _Parser(
        prog="dice verify", description="Check a rewritten kernel or module against its original."
    )
    parser.add_argument("reference", type=Path, help="REFERENCE.py with class Model, or ORIGINAL.cu")
    parser.add_argument("candidate", type=Path, help="CANDIDATE.py with class ModelNew, or CANDIDATE.cu")
    parser.add_argument(
        "--kernel", metavar="NAME", help="the kernel of a .cu file (default: the only one that differs)"
    )
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument(
        "--baseline", choices=("eager", "compile", "both"), default="eager", help="what to time against"
    )
    parser.add_argument("--no-cache", action="store_true", help="judge again, whatever is known")
    parser.add_argument("--json", action="store_true", help="print the verdict as one JSON object")
    options = parser.parse_args(argv)
    reference, candidate = _read(parser, options.reference), _read(parser, options.candidate)
    if options.reference.suffix != options.candidate.suffix:
        parser.error("the two files must be of one kind: two .py or two .cu")
    # The zygote imports torch while this process does.
    zygote = Zygote.shared()
    from rich.console import Console

    from dice_engine.source.fixture import with_fixture
    from dice_engine.source.holes import find_holes
    from dice_engine.source.plans import kernel_plan
    from dice_engine.source.project import project_around
    from dice_engine.verify.cache import VerdictCache
    from dice_engine.verify.interrupt import ends_at_once
    from dice_engine.verify.report import show
    from dice_engine.verify.session import VerifySession
    from dice_engine.verify.verdict import CORRECT
    from dice_engine.verify.worker import Failed

    # On standard error, and only in a terminal.
    waiting = Console(stderr=True).status(f"{options.candidate.name}: being built, compared and timed")
    try:
        cache = None if options.no_cache else VerdictCache()
        session = VerifySession(options.device, cache=cache, baseline=options.baseline)
        with ends_at_once(session.abandon), waiting, session:
            if options.reference.suffix == ".py":
                verdict = session.verify_module(reference, candidate)
            else:
                kernel = options.kernel or _changed_kernel(parser, reference, candidate)
                here, project = str(options.reference.absolute()), project_around(str(options.reference))
                known = {hole.name: hole.plan for hole in find_holes(reference, here, project)}
                plan = with_fixture(known.get(kernel) or kernel_plan(reference, kernel), here)
                original, edited = (project.whole(one, here, plan.through) for one in (reference, candidate))
                verdict = session.verify_kernel(original, edited, kernel, plan)
    except Failed as failure:
        parser.error(failure.reason)
    finally:
        zygote.close()
    if options.json:
        print(json.dumps(verdict.to_json()))
    else:
        show(verdict, options.candidate.name)
    return 0 if verdict.verdict in CORRECT else 1


def _read(parser: _Parser, path: Path) -> str:
    if path.suffix not in (".py", ".cu", ".cuh"):
        parser.error(f"{path}: expected a .py or .cu file")
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError:
        parser.error(f"{path} is not UTF-8 text")
    except OSError as error:
        parser.error(f"cannot read {path}: {error.strerror}")


def _changed_kernel(parser: _Parser, original: str, candidate: str) -> str:
    from dice_engine.source.cuda import find_kernels

    before = {span.name: original.encode()[span.start : span.end] for span in find_kernels(original)}
    after = {span.name: candidate.encode()[span.start : span.end] for span in find_kernels(candidate)}
    if not before:
        parser.error("the original has no kernel")
    changed = [name for name in before if after.get(name) != before[name]] or list(before)
    if len(changed) > 1:
        parser.error(f"several kernels could be meant: give --kernel {' or '.join(changed)}")
    return changed[0]


if __name__ == "__main__":
    sys.exit(main())

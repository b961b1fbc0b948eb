"""``python -m dice_engine.verify REFERENCE CANDIDATE``: one verdict, for people or as JSON."""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from dice_engine.source.fixture import with_fixture
from dice_engine.source.holes import find_holes
from dice_engine.source.plans import kernel_plan
from dice_engine.source.project import project_around
from dice_engine.source.pytorch import module_classes, parse
from dice_engine.streams import read_text
from dice_engine.verify.judge import static
from dice_engine.verify.report import WORDS, show
from dice_engine.verify.verdict import CORRECT, Verdict

if TYPE_CHECKING:
    from dice_engine.verify.session import VerifySession


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"dice verify: {message}", file=sys.stderr)
        raise SystemExit(2)


def main(argv: list[str] | None = None) -> int:
    """Exit status 0: correct; 1: rejected; 2: bad use or input, or nothing could be said about the candidate."""
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
    if options.reference.suffix == ".py":
        verdict = _module(parser, options, reference, candidate)
    else:
        verdict = _kernel(parser, options, reference, candidate)
    if options.json:
        print(json.dumps(verdict.to_json()))
    else:
        show(verdict, options.candidate.name)
    if verdict.verdict in ("no_plan", "infra_error"):
        print(f"dice verify: {WORDS[verdict.verdict]}: {verdict.reason}", file=sys.stderr)
        return 2
    return 0 if verdict.verdict in CORRECT else 1


def _module(parser: _Parser, options: argparse.Namespace, reference: str, candidate: str) -> Verdict:
    name = _reference_class(parser, options.reference, reference)
    finding = static.check_python(candidate, reference, "ModelNew", name)
    if finding is not None:
        return Verdict(finding.verdict, rule=finding.rule, reason=finding.reason)
    return _judged(
        parser, options, lambda session: session.verify_module(reference, candidate, reference_class=name)
    )


def _kernel(parser: _Parser, options: argparse.Namespace, reference: str, candidate: str) -> Verdict:
    kernel = options.kernel or _changed_kernel(parser, reference, candidate)
    here, project = str(options.reference.absolute()), project_around(str(options.reference))
    known = {hole.name: hole.plan for hole in find_holes(reference, here, project)}
    plan = with_fixture(known.get(kernel) or kernel_plan(reference, kernel), here)
    if not plan.runnable:
        return Verdict("no_plan", reason=plan.reason or "no plan")
    original, edited = (project.whole(one, here, plan.through) for one in (reference, candidate))
    finding = static.check_kernel(edited, original, kernel)
    if finding is not None:
        return Verdict(finding.verdict, rule=finding.rule, reason=finding.reason)
    return _judged(parser, options, lambda session: session.verify_kernel(original, edited, kernel, plan))


def _judged(
    parser: _Parser, options: argparse.Namespace, judge: Callable[[VerifySession], Verdict]
) -> Verdict:
    """What must be run to be known. Torch is imported here and in the zygote, at the same time."""
    from dice_engine.verify.zygote import Zygote

    zygote = Zygote.shared()
    from rich.console import Console

    from dice_engine.verify.cache import VerdictCache
    from dice_engine.verify.interrupt import ends_at_once
    from dice_engine.verify.session import VerifySession
    from dice_engine.verify.worker import Failed

    # On standard error, and only in a terminal.
    waiting = Console(stderr=True).status(f"{options.candidate.name}: being built, compared and timed")
    try:
        cache = None if options.no_cache else VerdictCache()
        session = VerifySession(options.device, cache=cache, baseline=options.baseline)
        with ends_at_once(session.abandon), waiting, session:
            return judge(session)
    except Failed as failure:
        parser.error(failure.reason)
    finally:
        zygote.close()


def _reference_class(parser: _Parser, path: Path, text: str) -> str:
    """``Model``, or the one module class of a file that has no such name."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        parser.error(f"{path}: line {getattr(error, 'lineno', None) or 1}: {getattr(error, 'msg', error)}")
    bound = {name for node in ast.walk(tree) for name in _bound(node)}
    if bound & {"Model", "*"}:
        return "Model"
    if "ModelNew" in bound:
        return "ModelNew"
    names = [found.name for found in module_classes(parse(text.encode())) if not found.used_by]
    if len(names) != 1:
        others = f"; it has {' and '.join(names)}" if names else ""
        parser.error(f"{path} has no class Model derived from nn.Module{others}")
    return names[0]


def _bound(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return [node.name]
    if isinstance(node, ast.alias):
        return [node.asname or node.name]
    return [node.id] if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else []


def _read(parser: _Parser, path: Path) -> str:
    if path.suffix not in (".py", ".cu", ".cuh"):
        parser.error(f"{path}: expected a .py or .cu file")
    try:
        return read_text(path)
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
    if not before.keys() & after.keys():
        parser.error(f"the candidate has no kernel {' or '.join(before)}")
    changed = [name for name in before if after.get(name) != before[name]] or list(before)
    if len(changed) > 1:
        parser.error(f"several kernels could be meant: give --kernel {' or '.join(changed)}")
    return changed[0]


if __name__ == "__main__":
    sys.exit(main())

"""Who computes the answer? Kernels that do nothing, or fail, must leave the candidate without it.

What torch holds at that moment is looked at too: an answer that kernels only copy, cast, scale or shift is torch's.
Operators of the reference that a module keeps are no answer, however close to it they come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from dice_engine.verify import compare
from dice_engine.verify.judge.findings import deceptive
from dice_engine.verify.judge.pieces import put_together
from dice_engine.verify.judge.reference import Case, Reference
from dice_engine.verify.program import RunOptions
from dice_engine.verify.worker import NEEDS_HOST, Failed, Worker

# Operators so common around kernels that keeping them says nothing about who does the work.
_LIGHT = frozenset(
    ("add", "sub", "mul", "div", "neg", "rsub", "sqrt", "rsqrt", "reciprocal", "sum", "ne", "eq", "gt", "lt")
)
_SAME_SHARE = 1e-6
"""Of the answer's variance: what may be left where one tensor is a multiple of another, plus a constant."""
_LOOKED_AT = 1 << 16
Run = Callable[[Case, RunOptions], dict[str, Any]]


def keeps_all(reference: Reference, kept: dict[str, int]) -> None:
    """Raise where every operator of the reference still runs as often."""
    replaced = any(kept.get(op, 0) < times for op, times in reference.ops.items())
    heavy = set(reference.ops) - _LIGHT
    if heavy and not replaced and not reference.has_kernels:
        raise deceptive("torch_fallback", f"torch still computes all of it: {', '.join(sorted(kept))}")


def with_idle_kernels(run: Run, worker: Worker, reference: Reference, case: Case) -> None:
    """With kernels that do nothing, nothing in the candidate may hold the answer."""
    try:
        result = run(case, RunOptions(launches="skip", poison=1, keep_results=True))
    except Failed as failure:
        if failure.rule == NEEDS_HOST:
            raise
        if worker.dead:
            raise Failed("crash", f"with kernels that do nothing: {failure.reason}") from failure
        return
    if compare.compare(case.expected, result["outputs"], case.limits).ok:
        if not result["launches"]:
            raise deceptive(
                "caching", "a second call with the same inputs launches nothing and returns the answer"
            )
        raise deceptive("torch_fallback", "the output is right even when its kernels do nothing")
    held = result["results"] + [tensor for _, tensor in compare.tensors(result["outputs"])]
    wanted = [expected for _, expected in compare.tensors(case.expected)]
    kept = ", ".join(sorted(result["ops"]))
    if all(_holds(held, *pair) for pair in zip(wanted, case.limits, strict=True)):
        raise deceptive("torch_fallback", f"torch computes the answer ({kept}); its kernels only pass it on")
    _refuse_pieces(result["results"] + result["pieces"], wanted, reference, case, kept)
    if result["results"] and not reference.has_kernels:
        _refuse_scaled(result["results"], wanted, reference, case, kept)


def with_failing_kernels(run: Run, worker: Worker, case: Case) -> None:
    """With kernels that fail, the candidate must fail too and not quietly do without them."""
    try:
        result = run(case, RunOptions(launches="fail", poison=1))
    except Failed as failure:
        if worker.dead or failure.rule in ("inherits_reference", NEEDS_HOST):
            raise
        return
    if compare.compare(case.expected, result["outputs"], case.limits).ok:
        rule = "exception_fallback" if result["launches"] else "caching"
        raise deceptive(rule, "when its kernels fail it still returns the right answer, from elsewhere")


def _refuse_pieces(
    held: list[torch.Tensor], wanted: list[torch.Tensor], reference: Reference, case: Case, kept: str
) -> None:
    """Raise where the answer lies in pieces in what torch computed, unless the inputs or the reference's own way have
    them too."""
    if not held or reference.has_kernels:
        return
    given = [tensor for _, tensor in compare.tensors(case.inputs) if tensor.dtype.is_floating_point]
    if not put_together(wanted, case.limits, held, given):
        return
    ways = [
        tensor
        for tensor in reference.results(case, pieces=True)
        if not any(_holds([tensor], *pair) for pair in zip(wanted, case.limits, strict=True))
    ]
    if put_together(wanted, case.limits, held, [*given, *ways]):
        reason = f"torch computes the answer in pieces ({kept}); its kernels only put them together"
        raise deceptive("torch_fallback", reason)


def _refuse_scaled(
    held: list[torch.Tensor], wanted: list[torch.Tensor], reference: Reference, case: Case, kept: str
) -> None:
    """Raise where torch holds each answer times a number plus another, unless the reference's own way there does.

    An input made contiguous or cast is no work of torch's, also where the answer is a multiple of it.
    """
    given = [tensor for _, tensor in compare.tensors(case.inputs)]
    held = [tensor for tensor in held if not any(_same_numbers(tensor, own) for own in given)]
    if not all(_multiple_of(held, expected) for expected in wanted):
        return
    ways = [tensor for tensor in reference.results(case) if not _holds([tensor], wanted[0], case.limits[0])]
    if not any(_multiple_of(ways, expected) for expected in wanted):
        reason = (
            f"torch computes the answer but for a factor and a constant ({kept}); its kernels only undo those"
        )
        raise deceptive("torch_fallback", reason)


def _holds(held: Iterable[torch.Tensor], expected: torch.Tensor, limit: compare.Bounds) -> bool:
    return any(
        tensor.numel() == expected.numel()
        and tensor.dtype.is_floating_point == expected.dtype.is_floating_point
        and tensor.dtype.is_complex == expected.dtype.is_complex
        and compare.compare_tensor(expected, tensor.reshape(expected.shape).to(expected.dtype), limit).ok
        for tensor in held
    )


def _same_numbers(tensor: torch.Tensor, own: torch.Tensor) -> bool:
    """Whether one is the other, or a cast of it."""
    if tensor.numel() != own.numel() or tensor.dtype.is_complex != own.dtype.is_complex:
        return False
    ours, theirs = (compare.as_float64(part.flatten()[:_LOOKED_AT]) for part in (tensor, own))
    return torch.allclose(ours, theirs, rtol=1e-2, atol=1e-6)


def _multiple_of(held: Iterable[torch.Tensor], expected: torch.Tensor) -> bool:
    """Whether ``expected`` is a multiple of one of ``held`` plus a constant."""
    if not expected.dtype.is_floating_point or expected.numel() < 16:
        return False
    answer = expected.flatten()[:_LOOKED_AT].double()
    answer = answer - answer.mean()
    for tensor in held:
        if tensor.numel() != expected.numel() or not tensor.dtype.is_floating_point:
            continue
        found = tensor.flatten()[:_LOOKED_AT].double()
        found = found - found.mean()
        product = answer.norm() * found.norm()
        if bool(torch.isfinite(product)) and float(product) > 0:
            alike = float(answer @ found / product)
            if 1 - alike * alike < _SAME_SHARE:
                return True
    return False

"""The evidence of a hole: how its candidates were tested, what became of each, and the numbers."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dice_engine.source.hole import Hole
from dice_engine.source.plan import Plan
from dice_engine.verify.verdict import Verdict

from dice_ls.suggestions import wording
from dice_ls.suggestions.store import Candidate, HoleId, Record, ranked

if TYPE_CHECKING:
    from dice_ls.contract import CandidateEvidence, Evidence, HowTested, PlanEvidence


def evidence(
    uri: str, hole_id: HoleId, hole: Hole, record: Record | None, stale: bool, device: str
) -> Evidence:
    """Everything that is known about ``hole``; ``record`` may belong to an earlier text of it (``stale``)."""
    plan = record.plan if record is not None and record.plan is not None else hole.plan
    candidates = ordered(record)
    known = next((item.verdict.device for item in candidates if item.verdict and item.verdict.device), device)
    found: Evidence = {
        "uri": uri,
        "hole": str(hole_id),
        "kind": hole.kind,
        "name": hole.name,
        "state": record.state if record is not None else "none",
        "stale": stale,
        "summary": _summary(hole, record, stale),
        "plan": plan_evidence(plan),
        "candidates": [_candidate(item) for item in candidates],
        "device": known,
        "checkpoint": Path(record.checkpoint).name if record is not None and record.checkpoint else "nano",
        "when": record.when if record is not None else "",
        "markdown": "",
    }
    found["markdown"] = _markdown(found, candidates)
    return found


def ordered(record: Record | None) -> list[Candidate]:
    """All candidates: those that are offered, best first, then the others in their order."""
    if record is None:
        return []
    offers = ranked(record.candidates.values())
    return offers + [item for _, item in sorted(record.candidates.items()) if item not in offers]


def plan_evidence(plan: Plan) -> PlanEvidence:
    from dice_engine.source.plan_view import explain
    from dice_engine.source.plans import checking_sizes, measuring_sizes

    how: list[HowTested] = [
        {"what": part.what, "value": part.value, "origin": part.origin} for part in explain(plan)
    ]
    return {
        "source": plan.source,
        "reason": plan.reason,
        "how": how,
        "sizes": list(checking_sizes(plan)),
        "measured_at": measuring_sizes(plan),
        "tolerance": asdict(plan.tolerance) if plan.tolerance is not None else None,
    }


def _candidate(item: Candidate) -> CandidateEvidence:
    return {
        "index": item.index,
        "core": item.core,
        "offerable": item.verdict is not None and item.verdict.offerable,
        "verdict": item.verdict.to_json() if item.verdict is not None else None,
        "seconds": round(item.seconds, 3),
        "tokens": len(item.trace.tokens) if item.trace else 0,
        "has_trace": item.trace is not None and bool(item.trace.steps),
    }


def _summary(hole: Hole, record: Record | None, stale: bool) -> str:
    if not hole.editable:
        return f"`{hole.name}` cannot be rewritten: {hole.reason}"
    if record is None:
        return f"`{hole.name}`: " + (hole.plan.reason or "nothing was asked for it yet")
    said = wording.progress(record) if record.active else record.message
    return said + ("; the code was edited since: shown, not applied" if stale else "")


def _markdown(found: Evidence, candidates: list[Candidate]) -> str:
    parts = [f"**DICE** {found['summary']}"]
    best = next((item.verdict for item in candidates if item.verdict and item.verdict.offerable), None)
    if best is not None:
        parts.append(f"Best: {wording.offer_title(best)}  \n" + "  \n".join(measurements(best)))
    refused = [item for item in candidates if item.verdict is not None and not item.verdict.offerable]
    if refused:
        lines = [
            f"- candidate {item.index}: {wording.rejection(item.verdict)}" for item in refused if item.verdict
        ]
        parts.append("Not offered:\n" + "\n".join(lines))
    parts.append(plan_markdown(found["plan"]))
    checked = [f"decoded by {found['checkpoint']}"] if candidates else []
    checked += [found["device"]] if found["device"] else []
    checked += [found["when"]] if found["when"] else []
    if checked:
        parts.append("*" + ", ".join(checked) + "*")
    return "\n\n".join(parts)


def plan_markdown(plan: PlanEvidence) -> str:
    """ "How this was tested", with where each part came from."""
    if plan["source"] == "no_plan":
        return f"No plan: {plan['reason']}"
    lines = [f"How it is tested (plan: {plan['source']}):"]
    for part in plan["how"]:
        value = part["value"] if "\n" not in part["value"] else part["value"].strip().splitlines()[0] + " ..."
        origin = f" ({part['origin']})" if part["origin"] else ""
        lines.append(f"- {part['what']}: `{value}`{origin}")
    return "\n".join(lines)


_NUMBERS: tuple[tuple[str, str, float], ...] = (
    ("bytes_per_second", "{:.0f} GB/s", 1e-9),
    ("roofline", "{:.0f} % of the roofline", 100),
    ("registers", "{:.0f} registers a thread", 1),
    ("spills", "{:.0f} bytes spilled", 1),
    ("shared_bytes", "{:.0f} shared bytes", 1),
    ("occupancy", "occupancy {:.0f} %", 100),
)


def measurements(verdict: Verdict) -> list[str]:
    """The numbers of a verdict, one idea a line."""
    lines = []
    if verdict.reference_ms is not None and verdict.candidate_ms is not None:
        low, high = verdict.speedup_low, verdict.speedup_high
        interval = (
            f", ratio between {low:.2f} and {high:.2f} (95 %)" if low is not None and high is not None else ""
        )
        lines.append(f"{verdict.reference_ms:.4g} ms before, {verdict.candidate_ms:.4g} ms after{interval}")
    known: dict[str, Any] = verdict.to_json()
    numbers = [form.format(known[key] * scale) for key, form, scale in _NUMBERS if known.get(key) is not None]
    if numbers:
        lines.append(", ".join(numbers))
    errors = [
        f"largest {name} error {value:.3g}"
        for name, value in (("absolute", verdict.max_abs_err), ("relative", verdict.max_rel_err))
        if value is not None
    ]
    lines.append(", ".join([f"{wording.plural(verdict.trials, 'input')} compared", *errors]))
    if verdict.gpu is not None:
        clocks = f", {verdict.gpu.sm_mhz} MHz" if verdict.gpu.sm_mhz else ""
        held = f", held back by {', '.join(verdict.gpu.throttle)}" if verdict.gpu.throttle else ""
        lines.append(f"{verdict.gpu.name}, driver {verdict.gpu.driver}{clocks}{held}")
    if verdict.build.backend:
        lines.append(f"built by {verdict.build.backend} in {verdict.build.seconds:.2g} s")
    return lines

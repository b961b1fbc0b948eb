"""How findings and failures become a verdict."""

from __future__ import annotations

from dice_engine.verify.judge.findings import Findings
from dice_engine.verify.judge.static import Finding
from dice_engine.verify.verdict import Verdict
from dice_engine.verify.worker import Failed


def reference_failed(failure: Failed) -> Failed:
    """A reference that cannot be run is a missing plan, not a fault of the candidate; other failures as they are."""
    if not failure.by_reference or failure.verdict in ("no_plan", "infra_error"):
        return failure
    reason = f"the reference does not run: {failure.reason}"
    return Failed("no_plan", reason, log=failure.log, doubtful=failure.doubtful)


def refused(finding: Finding) -> Verdict:
    return Verdict(finding.verdict, rule=finding.rule, reason=finding.reason)


def failed(failure: Failed, findings: Findings) -> Verdict:
    verdict = correct(findings, failure.reason)
    verdict.verdict, verdict.rule = failure.verdict, failure.rule
    if failure.log and not verdict.build.log:
        verdict.build.log = failure.log
    return verdict


def correct(findings: Findings, reason: str) -> Verdict:
    compared = findings.trials > 0 or findings.max_abs > 0
    return Verdict(
        "correct_unmeasured",
        reason=reason,
        max_abs_err=findings.max_abs if compared else None,
        max_rel_err=findings.max_rel if compared else None,
        trials=findings.trials,
        build=findings.build,
    )

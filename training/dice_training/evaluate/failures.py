"""What went wrong, in few classes that say what to work on next."""

from __future__ import annotations

import re

from dice_engine.verify.verdict import CORRECT, Verdict

_BUILD = (
    ("not Python", r"not valid Python"),
    ("no such header", r"No such file|cannot open source file|could not open source"),
    ("unknown name", r"not declared|undeclared|is undefined|has not been declared|no member|not a member"),
    ("wrong call", r"no matching function|too (few|many) arguments|no instance of|cannot call"),
    ("wrong type", r"cannot convert|invalid conversion|incompatible|invalid operands|no suitable conversion"),
    ("no such class or function", r"there is no class|no function|not defined in"),
    ("syntax", r"expected|unterminated|missing|stray|unmatched"),
)
"""Label and pattern, tried in this order on the reason and the log's start."""
_LOG_CHARS = 2000


def failure_class(verdict: Verdict) -> str | None:
    """One label for a candidate that is not correct, None for one that is."""
    if verdict.verdict in CORRECT:
        return None
    if verdict.verdict == "build_error":
        text = f"{verdict.reason}\n{verdict.build.log[:_LOG_CHARS]}"
        label = next((label for label, pattern in _BUILD if re.search(pattern, text)), "other")
        return f"does not build: {label}"
    if verdict.verdict == "mismatch":
        return f"wrong result: {verdict.rule or _mismatch(verdict.reason)}"
    if verdict.verdict == "crash":
        return f"crash: {verdict.rule or _exception(verdict.reason)}"
    return f"{verdict.verdict}: {verdict.rule}" if verdict.rule else verdict.verdict


def _mismatch(reason: str) -> str:
    if re.search(r"shape|dtype|strides", reason):
        return "shape or type"
    if "never written" in reason:
        return "part not written"
    return "values"


def _exception(reason: str) -> str:
    found = re.search(r"\b([A-Z]\w*(?:Error|Exception))\b", reason)
    return found[1] if found else "process ended"

"""What is said about results, in one place: titles, evidence, lenses and the summary of a request."""

from __future__ import annotations

from collections import Counter

from dice_engine.verify.verdict import Verdict

from dice_ls.suggestions.store import Record


def plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def offer_title(verdict: Verdict) -> str:
    """``2.31x faster on NVIDIA H200, verified on 5 inputs``; without a GPU no speed is claimed."""
    if verdict.verdict == "verified" and verdict.speedup is not None:
        return (
            f"{verdict.speedup:.2f}x faster on {verdict.device or 'this GPU'}, "
            f"verified on {plural(verdict.trials, 'input')}"
        )
    return f"correct on the CPU backend, not timed (checked on {plural(verdict.trials, 'input')})"


def evidence(verdict: Verdict, times: bool = True) -> str:
    """One line of measurements for the person who decides."""
    parts = []
    if times and verdict.reference_ms is not None and verdict.candidate_ms is not None:
        parts.append(f"{verdict.reference_ms:.4g} ms -> {verdict.candidate_ms:.4g} ms")
    if verdict.speedup_low is not None and verdict.speedup_high is not None:
        parts.append(f"ratio between {verdict.speedup_low:.2f} and {verdict.speedup_high:.2f}")
    if verdict.max_abs_err is not None:
        parts.append(f"largest error {verdict.max_abs_err:.3g}")
    parts.append(f"{plural(verdict.trials, 'input')} compared")
    if verdict.device:
        parts.append(verdict.device)
    if verdict.build.backend:
        parts.append(f"built by {verdict.build.backend}")
    return "; ".join(parts)


def progress(record: Record) -> str:
    """``decoding 3/8 candidates, 570 tokens``, then ``checking 5/8: 2 correct``."""
    checked = f"checking {record.judged}/{len(record.candidates)}: {record.correct} correct"
    if record.state == "queued":
        return "waiting for its turn"
    if record.state == "starting":
        return "starting the engine"
    if record.state == "decoding":
        if not record.tokens:
            return "reading the code" if record.loaded else "loading the model"
        tokens = plural(sum(record.tokens.values()), "token")
        decoding = f"decoding {record.decoded}/{record.expected} candidates, {tokens}"
        return decoding if not record.candidates else f"{decoding}; {checked}"
    return checked


def waiting_for(record: Record) -> str:
    """What a request that runs waits for, when that is not its own work."""
    if record.state == "starting":
        return "the engine to start"
    if record.state == "decoding" and not record.tokens and not record.loaded:
        return "the model to load"
    return ""


def measured(record: Record) -> str:
    """``0.0864 ms, 1940 GB/s``: what the code as it stands takes; empty where nothing was timed."""
    for item in record.candidates.values():
        verdict = item.verdict
        if verdict is not None and verdict.reference_ms is not None:
            words = f"{verdict.reference_ms:.4g} ms"
            if verdict.bytes:
                words += f", {verdict.bytes / verdict.reference_ms / 1e6:.0f} GB/s"
            return words
    return ""


def hint_tooltip(record: Record) -> str:
    """Where the numbers of a hint come from."""
    device = next((item.verdict.device for item in record.candidates.values() if item.verdict), "")
    return f"Measured by DICE on {device or 'this machine'}, at the sizes that the plan times"


def lens_title(record: Record, paused: bool = False) -> str:
    """The code lens of a hole with a request that runs or has ended."""
    if record.state == "queued":
        return "DICE: paused" if paused else "DICE: queued"
    if record.state == "starting":
        return "DICE: starting the engine"
    if record.active:
        if not record.candidates:
            return "DICE: decoding"
        return f"DICE: checking {record.judged}/{record.expected}"
    offers = record.offers()
    if not offers or offers[0].verdict is None:
        return "DICE: find faster" if record.state == "cancelled" else "DICE: no verified rewrite, try again"
    verdict = offers[0].verdict
    if verdict.verdict == "verified" and verdict.speedup is not None:
        return f"DICE: {verdict.speedup:.2f}x verified"
    return "DICE: correct on the CPU backend, not timed"


def summary(record: Record) -> str:
    """The outcome of a request in one sentence."""
    candidates = list(record.candidates.values())
    name, count = record.hole.name, len(candidates)
    verdicts = [item.verdict for item in candidates if item.verdict is not None]
    offers = [verdict for verdict in verdicts if verdict.offerable]
    verified = [verdict for verdict in offers if verdict.verdict == "verified"]
    if verified:
        best = max(verified, key=lambda verdict: verdict.speedup or 0.0)
        return (
            f"`{name}`: {len(verified)} of {plural(count, 'candidate')} verified; "
            f"best {best.speedup or 0:.2f}x on {best.device or 'this GPU'}"
        )
    if offers:
        return (
            f"`{name}`: {len(offers)} of {plural(count, 'candidate')} correct on the CPU backend, not timed"
        )
    if not verdicts:
        return f"`{name}`: no verified rewrite: no candidate was decoded"
    kinds = Counter(verdict.verdict for verdict in verdicts)
    if set(kinds) == {"infra_error"}:
        return f"`{name}`: nothing could be checked: {rejection(verdicts[0]).removeprefix('infra_error: ')}"
    return f"`{name}`: no verified rewrite: " + ", ".join(f"{n} {kind}" for kind, n in kinds.most_common())


def reasons(record: Record) -> list[str]:
    """Why candidates were not offered: one line for each different reason, the most frequent first."""
    lines: Counter[str] = Counter()
    for item in record.candidates.values():
        if item.verdict is not None and not item.verdict.offerable:
            lines[rejection(item.verdict)] += 1
    return [f"{count} x {line}" for line, count in lines.most_common()]


def rejection(verdict: Verdict) -> str:
    """``mismatch (rule): first line of the reason``."""
    rule = f" ({verdict.rule})" if verdict.rule else ""
    reason = verdict.reason.strip().splitlines()
    return f"{verdict.verdict}{rule}" + (f": {reason[0]}" if reason else "")

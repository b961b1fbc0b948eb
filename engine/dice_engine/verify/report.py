"""A verdict for people."""

from __future__ import annotations

from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from dice_engine.verify.verdict import CORRECT, Verdict

WORDS = {
    "verified": "correct and faster",
    "no_gain": "correct, no faster",
    "correct_unmeasured": "correct, not timed",
    "mismatch": "wrong result",
    "build_error": "does not compile",
    "deceptive": "not an honest rewrite",
    "unsafe": "not run: reaches for the system",
    "timeout": "took too long",
    "crash": "crashed",
    "no_plan": "cannot be checked",
    "infra_error": "this machine failed, not the candidate",
}


def show(verdict: Verdict, name: str, console: Console | None = None) -> None:
    """Print one panel with what matters of ``verdict``."""
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim")
    rows.add_column(overflow="fold")
    if verdict.rule:
        rows.add_row("rule", verdict.rule)
    if verdict.reason:
        rows.add_row("reason", verdict.reason)
    if verdict.speedup is not None:
        interval = f"{verdict.speedup_low:.2f} to {verdict.speedup_high:.2f}" if verdict.speedup_low else ""
        rows.add_row("speedup", f"{verdict.speedup:.2f}x ({interval})")
        rows.add_row("times", f"{verdict.reference_ms:.4f} ms before, {verdict.candidate_ms:.4f} ms after")
    if verdict.bytes_per_second is not None:
        share = f", {verdict.roofline:.0%} of this GPU's copy" if verdict.roofline is not None else ""
        rows.add_row("memory", f"{verdict.bytes_per_second / 1e9:.0f} GB/s{share}")
    for kernel in verdict.kernels:
        occupancy = f", occupancy {kernel.occupancy:.0%}" if kernel.occupancy is not None else ""
        spilled = f", {kernel.spills} bytes spilled" if kernel.spills else ""
        rows.add_row(
            kernel.name,
            f"{kernel.registers} registers, {kernel.shared_bytes} bytes shared{spilled}{occupancy}",
        )
    if verdict.trials:
        rows.add_row("compared", f"{verdict.trials} runs, largest relative error {verdict.max_rel_err:.2g}")
    held = f", held back by {', '.join(verdict.gpu.throttle)}" if verdict.gpu and verdict.gpu.throttle else ""
    clock = f" at {verdict.gpu.sm_mhz} MHz" if verdict.gpu and verdict.gpu.sm_mhz else ""
    if verdict.device:
        rows.add_row("device", f"{verdict.device}{clock}{held}")
    if verdict.build.backend:
        rows.add_row("build", f"{verdict.build.backend}, {verdict.build.seconds:.2f} s")
    rows.add_row("took", f"{verdict.seconds:.2f} s")
    if verdict.verdict == "build_error" and verdict.build.log:
        rows.add_row("log", "\n".join(verdict.build.log.splitlines()[:20]))
    good = verdict.verdict in CORRECT
    title = f"{name}: {verdict.verdict} ({WORDS[verdict.verdict]})"
    (console or Console()).print(
        Panel(rows, title=title, title_align="left", border_style="green" if good else "red", expand=False)
    )

"""Results follow the exact text of a hole: moved by edits elsewhere, stale at once by edits inside."""

from __future__ import annotations

from dice_engine.source.hole import Hole
from dice_engine.source.plan import Plan
from dice_engine.verify.verdict import Verdict

from dice_ls.suggestions import wording
from dice_ls.suggestions.store import Candidate, Record, Store, context_digest, identify, ranked


def kernels(text: str) -> list[Hole]:
    """One hole for each ``name{core}`` of ``text``."""
    holes, at = [], 0
    while (opening := text.find("{", at)) != -1:
        closing = text.index("}", opening)
        start = text.rfind(" ", 0, opening) + 1
        holes.append(
            Hole(
                kind="kernel_body",
                name=text[start:opening],
                data=text.encode(),
                start_byte=opening + 1,
                end_byte=closing,
                anchor=(start, closing + 1),
                editable=True,
                reason=None,
                plan=Plan("launch"),
            )
        )
        at = closing
    return holes


def checked(verdict: Verdict, index: int = 0) -> Candidate:
    return Candidate(index, f"core{index}", verdict)


def stored(store: Store, text: str, which: int = 0) -> Record:
    hole_id, hole = identify(kernels(text))[which]
    record = Record(hole_id, context_digest(text, hole), "done")
    record.candidates[0] = checked(Verdict("verified", speedup=2.0, trials=5, device="GPU"))
    return store.put("file:///a.cu", record)


def test_an_edit_elsewhere_moves_results() -> None:
    store = Store()
    record = stored(store, " one{x} two{y}")
    hole_id, hole = identify(kernels(" new{z} one{x} two{yy}"))[1]
    assert store.get("file:///a.cu", hole_id) is record
    assert record.context != context_digest(" new{z} one{x} two{yy}", hole)


def test_an_edit_inside_makes_results_stale_and_undoing_it_revives_them() -> None:
    store = Store()
    record = stored(store, " one{x}")
    edited = identify(kernels(" one{x2}"))[0][0]
    assert store.get("file:///a.cu", edited) is None
    assert store.stale("file:///a.cu", edited)
    again = identify(kernels(" one{x}"))[0][0]
    assert store.get("file:///a.cu", again) is record
    assert not store.stale("file:///a.cu", again)


def test_textual_twins_are_told_apart() -> None:
    (first, _), (second, _) = identify(kernels(" one{x} one{x}"))
    assert first != second


def test_uris_are_the_same_however_the_client_writes_them() -> None:
    store = Store()
    text = " one{x}"
    hole_id, hole = identify(kernels(text))[0]
    record = store.put("file:///c%3A/a.cu", Record(hole_id, context_digest(text, hole)))
    assert store.get("file:///c:/a.cu", hole_id) is record


def test_running_records_are_never_forgotten() -> None:
    store = Store()
    text = " one{x}"
    hole_id, hole = identify(kernels(text))[0]
    running = store.put("file:///first.cu", Record(hole_id, context_digest(text, hole), "decoding"))
    for number in range(600):
        store.put(f"file:///{number}.cu", Record(hole_id, "", "done"))
    assert store.get("file:///first.cu", hole_id) is running
    assert store.get("file:///0.cu", hole_id) is None


def test_only_offerable_candidates_are_ranked_fastest_first() -> None:
    verdicts = [
        Verdict("mismatch"),
        Verdict("verified", speedup=1.2),
        Verdict("no_gain", speedup=1.0),
        Verdict("verified", speedup=3.0),
        Verdict("correct_unmeasured"),
    ]
    order = ranked([checked(verdict, index) for index, verdict in enumerate(verdicts)])
    assert [item.index for item in order] == [3, 1, 4]


def test_wording_claims_no_speed_without_a_measurement() -> None:
    measured = Verdict("verified", speedup=2.314, trials=5, device="NVIDIA H200")
    assert wording.offer_title(measured) == "2.31x faster on NVIDIA H200, verified on 5 inputs"
    unmeasured = wording.offer_title(Verdict("correct_unmeasured", trials=1, device="CPU backend"))
    assert unmeasured.startswith("correct on the CPU backend, not timed")
    assert "x faster" not in unmeasured


def test_the_summary_says_why_nothing_is_offered() -> None:
    record = Record(identify(kernels(" one{x}"))[0][0], "", "done")
    names = ["mismatch", "build_error", "mismatch"]
    for index, name in enumerate(names):
        verdict = Verdict(name, reason=f"{name} here\nmore")  # type: ignore[arg-type]
        record.candidates[index] = Candidate(index, "", verdict)
    assert wording.summary(record) == "`one`: no verified rewrite: 2 mismatch, 1 build_error"
    broken = Record(record.hole, "", "done")
    broken.candidates[0] = Candidate(0, "", Verdict("infra_error", reason="g++ was not found"))
    assert wording.summary(broken) == "`one`: nothing could be checked: g++ was not found"
    assert wording.reasons(record) == ["2 x mismatch: mismatch here", "1 x build_error: build_error here"]

"""The verify child of the engine process: reads requests on stdin, writes verdicts to stdout, one at a time.

It lives in a process of its own, so that whatever happens in a verification the engine can end it and go on. Frames
are those of ``dice_engine.wire``.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING, BinaryIO

from dice_engine import wire
from dice_engine.verify.verdict import Verdict

if TYPE_CHECKING:
    from dice_engine.verify.session import VerifySession


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="dice_engine.verify_worker", description=__doc__)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    options = parser.parse_args(argv)

    # Our own end of the pipe: what libraries print to stdout must not land between the frames.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(0)  # through the session's exit, which ends its own children

    signal.signal(signal.SIGTERM, end)
    from dice_engine.verify.session import VerifySession

    # A broken pipe: the engine process is gone, and nobody waits for this answer.
    with contextlib.suppress(BrokenPipeError), VerifySession(options.device) as session:
        while (request := _read(sys.stdin.buffer)) is not None:
            answers.write(wire.encode(wire.VerdictEvent(request.id, judge(session, request))))
            answers.flush()
    return 0


def judge(session: VerifySession, request: wire.VerifyRequest) -> Verdict:
    """The verdict on a request; an exception of the verifier itself is ``infra_error``, never the candidate's fault."""
    try:
        if request.kernel is not None:
            return session.verify_kernel(
                request.original, request.candidate, request.kernel, request.plan, measure=request.measure
            )
        return session.verify_module(
            request.original,
            request.candidate,
            request.reference_class,
            request.candidate_class,
            measure=request.measure,
            tolerance=request.plan.tolerance if request.plan is not None else None,
            keep_state=request.keep_state,
        )
    except Exception as error:
        return Verdict("infra_error", reason=f"the verifier failed: {type(error).__name__}: {error}")


def _read(stream: BinaryIO) -> wire.VerifyRequest | None:
    header = stream.read(wire.HEADER.size)
    if len(header) < wire.HEADER.size:
        return None
    message = wire.decode(stream.read(wire.body_length(header)))
    assert isinstance(message, wire.VerifyRequest)  # the other end is this package's own
    return message


if __name__ == "__main__":
    sys.exit(main())

"""What the first answers cost, in CPU time of the server's process: other load on the machine must not matter."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest

from dice_ls.bench_session import Session

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
URI = "file:///dice-start/a.cu"
KERNEL = """__global__ void k(float* x, int n) {
  int i = threadIdx.x;
  if (i < n) x[i] = 1;
}
void run(float* x, int n) { k<<<1, 256>>>(x, n); }
"""


def test_the_first_request_of_a_kind_is_as_cheap_as_the_next() -> None:
    at = {"line": 2, "character": 4}
    document: dict[str, Any] = {"textDocument": {"uri": URI}}
    asked = {
        "textDocument/codeAction": {"range": {"start": at, "end": at}, "context": {"diagnostics": []}},
        "textDocument/codeLens": {},
        "textDocument/hover": {"position": {"line": 0, "character": 17}},
    }
    with Session(engine=False) as session:
        session.open(URI, KERNEL)
        session.wait_settled()
        _rested(session)
        spent = {method: _cost(session, method, {**document, **more}) for method, more in asked.items()}
    assert all(cost <= 12 for cost in spent.values()), spent


def _rested(session: Session) -> None:
    """Wait until the server has nothing left to do."""
    before = -1.0
    while (now := session.cpu_ms() or 0.0) != before:
        before = now
        time.sleep(0.3)


def _cost(session: Session, method: str, params: dict[str, Any]) -> float:
    before = session.cpu_ms()
    session.request(method, params)
    after = session.cpu_ms()
    assert before is not None and after is not None
    return round(after - before, 1)

"""The part of ``dice bench lsp`` that waits for the model: ghost text, and searches until their first action."""

from __future__ import annotations

import time
from typing import Any

from dice_ls.bench_session import Session, command, share, summary

_GHOST_URI = "file:///dice-bench/ghost.cu"
_GHOST = """__global__ void scale(float a, const float* x, float* y, int n) {
  int i =
}

void run_scale(float a, const float* x, float* y, int n) { scale<<<(n + 255) / 256, 256>>>(a, x, y, n); }
"""
_SEARCHED = """#define BLOCK 256

__global__ void lengths_{0}(const float* x, float* out, int rows, int cols) {{
  __shared__ float parts[BLOCK];
  int r = blockIdx.x;
  int t = threadIdx.x;
  float sum = 0.0f;
  for (int c = t; c < cols; c += blockDim.x) {{
    float v = x[r * cols + c];
    sum += powf(v, 2.0f);
  }}
  parts[t] = sum;
  __syncthreads();
  for (int s = blockDim.x / 2; s > 0; s >>= 1) {{
    if (t < s) {{
      parts[t] += parts[t + s];
    }}
    __syncthreads();
  }}
  if (t == 0) out[r] = sqrt(parts[0]);
}}

void run_lengths_{0}(const float* x, float* out, int rows, int cols, cudaStream_t stream) {{
  lengths_{0}<<<rows, BLOCK, 0, stream>>>(x, out, rows, cols);
}}
"""
_POLL_S = 0.02
_PATIENCE_S = 120.0


def first_actions(session: Session, count: int) -> list[dict[str, Any]]:
    """``count`` searches one after another: milliseconds from the request to the first verdict and the first action
    with a rewrite. The first one starts the engine."""
    found = []
    for number in range(count):
        found.append(
            {"engine": "engine started" if not number else "engine running", **_search(session, number)}
        )
    return found


def _search(session: Session, number: int) -> dict[str, Any]:
    uri = f"file:///dice-bench/searched_{number}.cu"
    session.open(uri, _SEARCHED.format(number))
    at = {"line": 5, "character": 2}
    began = time.perf_counter()
    verdict = action = None
    session.request("workspace/executeCommand", command("dice.findFaster", uri=uri, position=at))
    while action is None and time.perf_counter() - began < _PATIENCE_S:
        time.sleep(_POLL_S)
        _, seen = session.request(
            "workspace/executeCommand", command("dice.showEvidence", uri=uri, position=at)
        )
        now = 1000 * (time.perf_counter() - began)
        if verdict is None and any(candidate["verdict"] for candidate in seen["candidates"]):
            verdict = round(now, 1)
        if any(candidate["offerable"] for candidate in seen["candidates"]):
            action = round(now, 1)
        elif seen["state"] in ("done", "failed", "cancelled"):
            break
    session.request("workspace/executeCommand", {"command": "dice.cancel"})
    session.wait_idle()
    return {"verdict_ms": verdict, "action_ms": action}


def ghost_text(session: Session, count: int) -> dict[str, Any]:
    """Ghost text at one place of a small file, each time after another key."""
    session.open(_GHOST_URI, _GHOST)
    document, times, shown = {"textDocument": {"uri": _GHOST_URI}}, [], 0
    at = {"line": 1, "character": len("  int i =")}
    for step in range(count + 1):
        change = {
            "range": {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 0}},
            "text": "\n",
        }
        at["line"] += 1
        session.notify(
            "textDocument/didChange",
            {"textDocument": {"uri": _GHOST_URI, "version": step + 2}, "contentChanges": [change]},
        )
        asked = {**document, "position": at, "context": {"triggerKind": 1}}
        took, items = session.request("textDocument/inlineCompletion", asked)
        if step:  # the first one waits for the model
            times.append(took)
            shown += bool(items)
    times.sort()
    return {
        "asked": count,
        "shown": shown,
        "times": {**summary(times), "p95_ms": round(share(times, 0.95), 2)},
    }

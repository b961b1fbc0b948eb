"""``dice bench lsp``: how long the language server lets an editor wait, on a generated file, while searches run."""

from __future__ import annotations

import json
import random
import sys
import time
from importlib.util import find_spec
from typing import Any

from dice_engine.arguments import Arguments, whole

from dice_ls.bench_session import ServerError, Session

_KERNEL = """
// Kernel {0} of a generated file. 很好 😀
__device__ __forceinline__ float shift_{0}(float v) {{
  return v + {0}.0f;
}}

__global__ void kernel_{0}(const float* x, float* y, float a, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {{
    float v = x[i];
    for (int k = 0; k < 4; ++k) {{
      v = a * v + shift_{0}(v);
    }}
    y[i] = v;  // 😀
  }}
}}

void run_{0}(const float* x, float* y, float a, int n, cudaStream_t stream) {{
  const int threads = 256;
  kernel_{0}<<<(n + threads - 1) / threads, threads, 0, stream>>>(x, y, a, n);
}}
"""
_BODY = _KERNEL.format(0).split("\n").index("  int i = blockIdx.x * blockDim.x + threadIdx.x;")
_HOST = _KERNEL.format(0).split("\n").index("  const int threads = 256;")
_NAME = _BODY - 1
_URI = "file:///dice-bench/kernels.cu"
_GHOST_URI = "file:///dice-bench/ghost.cu"
_GHOST = """__global__ void scale(float a, const float* x, float* y, int n) {
  int i =
}

void run_scale(float a, const float* x, float* y, int n) { scale<<<(n + 255) / 256, 256>>>(a, x, y, n); }
"""


def main(argv: list[str]) -> int:
    parser = Arguments(
        prog="dice bench lsp",
        description="How long the language server lets an editor wait, on a generated file of CUDA kernels, while "
        "searches run in an engine of its own. The file's code is compiled and run by these searches.",
    )
    parser.add_argument("--kernels", type=whole(1, 2000), default=200, help="kernels in the file (200)")
    parser.add_argument("--lines", type=whole(1), default=10_000, help="lines of the file, at least (10000)")
    parser.add_argument("--requests", type=whole(1), default=200, help="requests of each kind (200)")
    parser.add_argument("--jobs", type=whole(0, 200), default=8, help="searches that run meanwhile (8)")
    parser.add_argument("--ghosts", type=whole(0), default=20, help="ghost texts to ask for (20)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args(argv)
    engine = find_spec("torch") is not None
    jobs, ghosts = (min(options.jobs, options.kernels), options.ghosts) if engine else (0, 0)
    try:
        report = measure(options.kernels, options.lines, options.requests, jobs, ghosts)
    except ServerError as error:
        print(f"dice bench lsp: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(report))
    else:
        _show(report)
    return 0


def _show(report: dict[str, Any]) -> None:
    print(
        f"a file of {report['kernels']} kernels, {report['lines']} lines; {report['jobs']} searches run meanwhile"
    )
    print(f"start to initialized       {report['initialize_ms']:8.1f} ms")
    print(f"first answer for the file  {report['open_ms']:8.1f} ms")
    for name, times in report["requests"].items():
        print(
            f"{name:26} {times['median_ms']:8.1f} ms median {times['p99_ms']:8.1f} p99 {times['max_ms']:8.1f} longest"
        )
    if report["cancel_ms"] is not None:
        print(f"cancel reaches the engine  {report['cancel_ms']:8.1f} ms")
    if (ghost := report["ghost_text"]) is not None:
        times = ghost["times"]
        print(
            f"ghost text, {ghost['asked']} asked, {ghost['shown']} shown "
            f"{times['median_ms']:8.1f} ms median {times['p95_ms']:8.1f} p95 {times['max_ms']:8.1f} longest"
        )
    if report["memory_mb"] is not None:
        print(f"memory of dice-ls          {report['memory_mb']:8.1f} MB")


def text_of(kernels: int, lines: int) -> str:
    """A file of ``kernels`` kernels and at least ``lines`` lines; the rest are constants between the functions."""
    per_kernel = _KERNEL.count("\n")
    filler = max(0, -(-(lines - 1) // kernels) - per_kernel)
    parts = ["#include <cuda_runtime.h>\n"]
    for index in range(kernels):
        parts.append(_KERNEL.format(index))
        parts += [
            f"// {index}: line {line} of what real files have between functions\n" for line in range(filler)
        ]
    return "".join(parts)


def measure(kernels: int, lines: int, requests: int, jobs: int, ghosts: int) -> dict[str, Any]:
    """Times of one session. ``didChange`` is the time from a key to holes that are right for it."""
    text = text_of(kernels, lines)
    height = (text.count("\n") - 1) // kernels
    draw = random.Random(0)
    with Session(engine=bool(jobs or ghosts)) as session:
        document = {"textDocument": {"uri": _URI}}
        opened = session.open(_URI, text)
        first, lenses = session.request("textDocument/codeLens", document)
        if len(lenses or []) != kernels:
            raise ServerError(f"{len(lenses or [])} code lenses for {kernels} kernels")
        session.wait_settled()
        for index in range(jobs):
            at = {"line": 1 + index * height + _BODY, "character": 2}
            session.request("workspace/executeCommand", _command("dice.findFaster", uri=_URI, position=at))
        kinds: dict[str, list[float]] = {
            name: [] for name in ("codeAction", "codeLens", "hover", "didChange", "ping")
        }
        version = 1
        for step in range(requests):
            kernel = draw.randrange(jobs, kernels) if kernels > jobs else 0
            top = 1 + kernel * height
            at = {"line": top + _BODY, "character": 2}
            spot = {**document, "range": {"start": at, "end": at}, "context": {"diagnostics": []}}
            kinds["codeAction"].append(session.request("textDocument/codeAction", spot)[0])
            kinds["codeLens"].append(session.request("textDocument/codeLens", document)[0])
            name = {"line": top + _NAME, "character": len("__global__ void k")}
            kinds["hover"].append(session.request("textDocument/hover", {**document, "position": name})[0])
            kinds["ping"].append(session.request("workspace/executeCommand", {"command": "dice.status"})[0])
            # Keys: three in a kernel's body, a new line among them, for each one in host code.
            where = {"line": top + (_HOST if step % 4 == 3 else _BODY), "character": 2}
            change = {"range": {"start": where, "end": where}, "text": " " if step % 4 != 2 else "\t"}
            version += 1
            started = time.perf_counter()
            session.notify(
                "textDocument/didChange",
                {"textDocument": {"uri": _URI, "version": version}, "contentChanges": [change]},
            )
            session.request("textDocument/codeAction", spot)
            kinds["didChange"].append(1000 * (time.perf_counter() - started))
        cancel = session.cancel_time() if jobs else None
        ghost = _ghost_text(session, ghosts) if ghosts else None
        memory = session.memory_mb()
    return {
        "kernels": kernels,
        "lines": text.count("\n"),
        "jobs": jobs,
        "initialize_ms": round(session.initialize_ms, 2),
        "open_ms": round(opened + first, 2),
        "requests": {name: _summary(times) for name, times in kinds.items()},
        "cancel_ms": cancel,
        "ghost_text": ghost,
        "memory_mb": memory,
    }


def _ghost_text(session: Session, count: int) -> dict[str, Any]:
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
        "times": {**_summary(times), "p95_ms": round(_share(times, 0.95), 2)},
    }


def _command(name: str, **argument: Any) -> dict[str, Any]:
    return {"command": name, "arguments": [argument]}


def _share(times: list[float], share: float) -> float:
    return times[min(len(times) - 1, int(share * len(times)))]


def _summary(times: list[float]) -> dict[str, float]:
    times = sorted(times)
    return {
        "median_ms": round(times[len(times) // 2], 2),
        "p99_ms": round(_share(times, 0.99), 2),
        "max_ms": round(times[-1], 2),
    }

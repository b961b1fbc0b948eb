"""``dice bench lsp``: how long the language server lets an editor wait, on a generated file, while searches run."""

from __future__ import annotations

import json
import random
import sys
import time
from importlib.util import find_spec
from typing import Any

from dice_engine.arguments import Arguments, whole

from dice_ls.bench_engine import first_actions, ghost_text
from dice_ls.bench_session import ServerError, Session, command, summary

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
    parser.add_argument(
        "--actions", type=whole(0), default=3, help="searches to time until their first verified action (3)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args(argv)
    engine = find_spec("torch") is not None
    jobs = min(options.jobs, options.kernels) if engine else 0
    waits = (options.ghosts, options.actions) if engine else (0, 0)
    try:
        report = measure(options.kernels, options.lines, options.requests, jobs, *waits)
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
        cpu = f", {times['cpu_p99_ms']:.1f} p99 of CPU" if times["cpu_p99_ms"] is not None else ""
        _times(name, times, f" {times['p99_ms']:8.1f} p99 {times['max_ms']:8.1f} longest{cpu}")
    if report["cancel_ms"] is not None:
        print(f"cancel reaches the engine  {report['cancel_ms']:8.1f} ms")
    if (ghost := report["ghost_text"]) is not None:
        times = ghost["times"]
        words = f" {times['p95_ms']:8.1f} p95, {ghost['shown']} of {ghost['asked']} shown"
        _times("ghost text", times, words)
    for action in report["first_actions"]:
        words = [
            f"{name.replace('_', ' ')} {1e-3 * action[key]:.1f} s"
            if action[key] is not None
            else f"no {name}"
            for name, key in (("first verdict", "verdict_ms"), ("first verified action", "action_ms"))
        ]
        print(f"request, {action['engine']:18}  {', '.join(words)}")
    if report["memory_mb"] is not None:
        print(f"memory of dice-ls          {report['memory_mb']:8.1f} MB")


def _times(name: str, times: dict[str, Any], rest: str) -> None:
    print(f"{name:26} {times['median_ms']:8.1f} ms median{rest}")


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


def measure(kernels: int, lines: int, requests: int, jobs: int, ghosts: int, actions: int) -> dict[str, Any]:
    """Times of one session. ``didChange`` is the time from a key to holes that are right for it."""
    text = text_of(kernels, lines)
    height = (text.count("\n") - 1) // kernels
    draw = random.Random(0)
    with Session(engine=bool(jobs or ghosts or actions)) as session:
        document = {"textDocument": {"uri": _URI}}
        found = first_actions(session, actions) if actions else []
        opened = session.open(_URI, text)
        first, lenses = session.request("textDocument/codeLens", document)
        if len(lenses or []) != kernels:
            raise ServerError(f"{len(lenses or [])} code lenses for {kernels} kernels")
        session.wait_settled()
        for index in range(jobs):
            at = {"line": 1 + index * height + _BODY, "character": 2}
            session.request("workspace/executeCommand", command("dice.findFaster", uri=_URI, position=at))
        kinds: dict[str, list[tuple[float, float | None]]] = {
            name: [] for name in ("codeAction", "codeLens", "hover", "didChange", "ping")
        }

        def timed(
            kind: str, method: str, params: Any, since: tuple[float, float | None] | None = None
        ) -> None:
            began, cpu = since or (time.perf_counter(), session.cpu_ms())
            session.request(method, params)
            took, spent = 1000 * (time.perf_counter() - began), session.cpu_ms()
            kinds[kind].append((took, spent - cpu if spent is not None and cpu is not None else None))

        version = 1
        for step in range(requests):
            kernel = draw.randrange(jobs, kernels) if kernels > jobs else 0
            top = 1 + kernel * height
            at = {"line": top + _BODY, "character": 2}
            spot = {**document, "range": {"start": at, "end": at}, "context": {"diagnostics": []}}
            timed("codeAction", "textDocument/codeAction", spot)
            timed("codeLens", "textDocument/codeLens", document)
            name = {"line": top + _NAME, "character": len("__global__ void k")}
            timed("hover", "textDocument/hover", {**document, "position": name})
            timed("ping", "workspace/executeCommand", {"command": "dice.status"})
            # Keys: three in a kernel's body, a new line among them, for each one in host code.
            where = {"line": top + (_HOST if step % 4 == 3 else _BODY), "character": 2}
            change = {"range": {"start": where, "end": where}, "text": " " if step % 4 != 2 else "\t"}
            version += 1
            since = time.perf_counter(), session.cpu_ms()
            session.notify(
                "textDocument/didChange",
                {"textDocument": {"uri": _URI, "version": version}, "contentChanges": [change]},
            )
            timed("didChange", "textDocument/codeAction", spot, since)
        cancel = session.cancel_time() if jobs else None
        ghost = ghost_text(session, ghosts) if ghosts else None
        memory = session.memory_mb()
    return {
        "kernels": kernels,
        "lines": text.count("\n"),
        "jobs": jobs,
        "initialize_ms": round(session.initialize_ms, 2),
        "open_ms": round(opened + first, 2),
        "requests": {name: _request(times) for name, times in kinds.items()},
        "cancel_ms": cancel,
        "ghost_text": ghost,
        "first_actions": found,
        "memory_mb": memory,
    }


def _request(times: list[tuple[float, float | None]]) -> dict[str, Any]:
    spent = [cpu for _, cpu in times if cpu is not None]
    cpu = summary(spent)["p99_ms"] if spent else None
    return {**summary([took for took, _ in times]), "cpu_p99_ms": cpu}

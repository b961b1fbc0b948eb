"""``dice bench lsp``: how long the language server lets an editor wait, on a generated file."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from typing import Any

from dice_engine.arguments import Arguments, whole

_KERNEL = """
__global__ void kernel_{0}(const float* x, float* y, float a, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {{
    y[i] = a * x[i] + {0}.0f;  // 😀
  }}
}}

void run_{0}(const float* x, float* y, float a, int n, cudaStream_t stream) {{
  const int threads = 256;
  kernel_{0}<<<(n + threads - 1) / threads, threads, 0, stream>>>(x, y, a, n);
}}
"""
_LINES = _KERNEL.count("\n")
_URI = "file:///dice-bench/kernels.cu"


class ServerError(Exception):
    """The server did not answer as it should; one line."""


def main(argv: list[str]) -> int:
    parser = Arguments(
        prog="dice bench lsp",
        description="How long the language server lets an editor wait. Needs no engine.",
    )
    parser.add_argument("--kernels", type=whole(1, 2000), default=100, help="kernels in the file (100)")
    parser.add_argument("--requests", type=whole(1), default=200, help="requests of each kind (200)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args(argv)
    try:
        report = measure(options.kernels, options.requests)
    except ServerError as error:
        print(f"dice bench lsp: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(report))
        return 0
    print(f"a file of {options.kernels} kernels, {report['lines']} lines; milliseconds")
    print(f"start to initialized   {report['initialize_ms']:8.1f}")
    print(f"first answer           {report['open_ms']:8.1f}")
    for name, times in report["requests"].items():
        print(
            f"{name:22} {times['median_ms']:8.1f} median {times['p99_ms']:8.1f} p99 {times['max_ms']:8.1f} longest"
        )
    return 0


def measure(kernels: int, requests: int) -> dict[str, Any]:
    """Times of one session; ``codeLens after a key`` includes reading the changed file anew."""
    text = "#include <cuda_runtime.h>\n" + "".join(_KERNEL.format(index) for index in range(kernels))
    draw = random.Random(0)
    with _Session() as session:
        document = {"textDocument": {"uri": _URI}}
        item = {"uri": _URI, "languageId": "cuda", "version": 1, "text": text}
        session.notify("textDocument/didOpen", {"textDocument": item})
        opened, lenses = session.request("textDocument/codeLens", document)
        if len(lenses or []) != kernels:
            raise ServerError(f"{len(lenses or [])} code lenses for {kernels} kernels")
        actions, lens, keys = [], [], []
        for _ in range(requests):
            at = {"line": draw.randrange(1, kernels * _LINES), "character": 2}
            where = {**document, "range": {"start": at, "end": at}, "context": {"diagnostics": []}}
            actions.append(session.request("textDocument/codeAction", where)[0])
            lens.append(session.request("textDocument/codeLens", document)[0])
        for version in range(2, 2 + min(requests, 20)):
            at = {"line": 4 + _LINES * draw.randrange(kernels), "character": 0}
            change = {"range": {"start": at, "end": at}, "text": " "}
            changed = {"textDocument": {"uri": _URI, "version": version}, "contentChanges": [change]}
            session.notify("textDocument/didChange", changed)
            keys.append(session.request("textDocument/codeLens", document)[0])
    return {
        "kernels": kernels,
        "lines": text.count("\n"),
        "initialize_ms": round(session.initialize_ms, 2),
        "open_ms": round(opened, 2),
        "requests": {
            "codeAction": _summary(actions),
            "codeLens": _summary(lens),
            "codeLens after a key": _summary(keys),
        },
    }


def _summary(times: list[float]) -> dict[str, float]:
    times = sorted(times)
    p99 = times[min(len(times) - 1, int(0.99 * len(times)))]
    return {
        "median_ms": round(times[len(times) // 2], 2),
        "p99_ms": round(p99, 2),
        "max_ms": round(times[-1], 2),
    }


class _Session:
    """A language client of few words: one request at a time over the server's standard streams."""

    def __enter__(self) -> _Session:
        # An empty runtime folder: no engine answers there, and none is started.
        self._folder = tempfile.TemporaryDirectory(prefix="dice-bench-")
        start = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dice_ls.server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "DICE_RUNTIME_DIR": self._folder.name, "PYTHONSAFEPATH": "1"},
        )
        self._next = 0
        try:
            self.request("initialize", {"processId": os.getpid(), "rootUri": None, "capabilities": {}})
        except BaseException:
            self.__exit__()
            raise
        self.initialize_ms = 1000 * (time.perf_counter() - start)
        self.notify("initialized", {})
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()

    def request(self, method: str, params: Any) -> tuple[float, Any]:
        """Milliseconds until the answer, and its result."""
        self._next += 1
        start = time.perf_counter()
        self._send({"id": self._next, "method": method, "params": params})
        while True:
            message = self._read()
            if message.get("id") == self._next and "method" not in message:
                if "error" in message:
                    raise ServerError(f"{method}: {message['error']['message']}")
                return 1000 * (time.perf_counter() - start), message.get("result")

    def notify(self, method: str, params: Any) -> None:
        self._send({"method": method, "params": params})

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._process.stdin.flush()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        length = 0
        while header := self._process.stdout.readline().strip():
            name, _, value = header.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        if not length:
            raise ServerError(f"the server ended (exit {self._process.wait()})")
        return json.loads(self._process.stdout.read(length))

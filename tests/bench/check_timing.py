"""Do the times of a verdict agree with CUDA events put around the same kernels by hand?

Compiles both versions of examples/row_magnitude.cu with torch's own kernel compiler and launches them as its host
function does, on the plan's measuring size. Nothing of dice_engine.verify is used for the hand-written times.
Needs an NVIDIA GPU. Exit 1 beyond 10 %.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from dice_engine.source.plans import kernel_plan

EXAMPLE = Path(__file__).parents[2] / "examples" / "row_magnitude.cu"
FASTER = """
    __shared__ float sdata[32];
    int row = blockIdx.x;
    int t = threadIdx.x;
    const float* values = act + (size_t)row * cols;
    float acc = 0.0f;
    for (int c = t; c < cols; c += blockDim.x) {
        float v = values[c] / (1.0f + expf(-values[c]));
        acc += v * v;
    }
    for (int o = 16; o > 0; o >>= 1) acc += __shfl_xor_sync(0xffffffff, acc, o);
    if ((t & 31) == 0) sdata[t >> 5] = acc;
    __syncthreads();
    acc = t < (blockDim.x >> 5) ? sdata[t] : 0.0f;
    if (t < 32) {
        for (int o = 16; o > 0; o >>= 1) acc += __shfl_xor_sync(0xffffffff, acc, o);
        if (t == 0) mag[row] = sqrtf(acc);
    }
"""


def milliseconds(source: str, sizes: dict[str, int]) -> float:
    """Median time of the kernel, cold L2, in milliseconds."""
    device_only = source[: source.index("void row_magnitude_cuda")]
    device_only = "\n".join(line for line in device_only.splitlines() if not line.startswith("#include"))
    kernel = torch.cuda._compile_kernel(
        device_only.replace("__global__", 'extern "C" __global__'), "row_magnitude"
    )
    rows, cols = sizes["rows"], sizes["cols"]
    act = torch.randn(rows * cols, device="cuda")
    out = torch.empty(rows, device="cuda")
    # Long enough to keep the GPU busy until the launch is queued: else the time would be the host's.
    flush = torch.empty(2 << 30, dtype=torch.int8, device="cuda")
    times = []
    for call in range(120):
        flush.zero_()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        kernel(grid=(rows, 1, 1), block=(256, 1, 1), args=(act, out, rows, cols))
        end.record()
        torch.cuda.synchronize()
        if call >= 20:
            times.append(begin.elapsed_time(end))
    return statistics.median(times)


def main() -> int:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    if not torch.cuda.is_available():
        print("SKIP: torch sees no CUDA GPU")
        return 0
    original = EXAMPLE.read_text()
    start, end = original.index("cols) {") + len("cols) {"), original.index("\n}\n\nvoid row_magnitude_cuda")
    candidate = original[:start] + FASTER + original[end + 1 :]
    sizes = kernel_plan(original, "row_magnitude").sizes[-1]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "candidate.cu"
        path.write_text(candidate)
        command = [sys.executable, "-m", "dice_engine.verify", str(EXAMPLE), str(path)]
        command += ["--kernel", "row_magnitude", "--device", "cuda", "--json", "--no-cache"]
        verdict = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    by_hand = {"reference": milliseconds(original, sizes), "candidate": milliseconds(candidate, sizes)}
    print(f"{verdict['verdict']} on {verdict['device']} at {sizes}: {verdict['speedup']}")
    worst = 0.0
    for name, ms in by_hand.items():
        ours = verdict[f"{name}_ms"]
        worst = max(worst, abs(ours / ms - 1))
        print(f"{name}: verdict {ours:.4f} ms, by hand {ms:.4f} ms, {100 * (ours / ms - 1):+.1f} %")
    return int(worst > 0.1)


if __name__ == "__main__":
    sys.exit(main())

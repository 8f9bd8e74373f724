"""Records what kopt's builds take: cold compiles of one kernel, and 16 one by one and at a time.

python benchmarks/build_times.py -o benchmarks/results/NAME.json [--target sm_90] [--at-a-time 16]

Every build is an order to a candidate process, as in a run, of a source that was never built
before. Processes have imported what they need by an earlier build; a run starts them ahead too.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kopt.model.candidate import Candidate
from kopt.model.kernel_file import parse_kernel
from kopt.model.values import CallSpec, NamedValue, TensorRef
from kopt.testing import records
from kopt.testing.problems import function_problem
from kopt.worker.limits import adopt_orphans, allow_many_files
from kopt.worker.pool import ProcessRecipe
from kopt.worker.process import CandidateProcess
from kopt.worker.settings import PluginRef

_SECONDS = 120.0
_REPEATS = 5
_KERNELS = 16
_CUDA = """\
// /// kopt
// entry = "{entry}"
// grid = 1
// block = 256
// arguments = ["x", "out"]
// ///
#include <cuda_fp16.h>

"""
_CUDA_PART = """\
template <int N>
__device__ __forceinline__ float fold{i}(const float (&values)[N], float by) {{
    float sum = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) sum += values[i] * by;
    return sum;
}}

extern "C" __global__ void __launch_bounds__(256) part{i}(const float *__restrict__ x, float *__restrict__ out) {{
    __shared__ float parts[256 / 32];
    const float4 *row = reinterpret_cast<const float4 *>(x);
    float values[8];
#pragma unroll
    for (int j = 0; j < 2; ++j) {{
        const float4 four = row[threadIdx.x + 256 * j];
        values[4 * j] = four.x;
        values[4 * j + 1] = four.y;
        values[4 * j + 2] = four.z;
        values[4 * j + 3] = four.w;
    }}
    float sum = fold{i}(values, 0.5f + {i});
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0;
    for (int warp = 0; warp < 8; ++warp) sum += parts[warp];
    const __half2 packed = __floats2half2_rn(sum, __expf(sum - {i}));
    out[threadIdx.x] = __low2float(packed) + __high2float(packed);
}}

"""
_TRITON = """\
# /// kopt
# entry = "norm"
# language = "triton"
# ///
import torch
import triton
import triton.language as tl


@triton.jit
def _norm(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=0.0)
    scale = tl.rsqrt(tl.sum(values * values, 0) / columns + {epsilon})
    tl.store(out + row * columns + at, values * scale, mask=at < columns)


def norm(x):
    out = torch.empty_like(x)
    _norm[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out
"""


def cuda_kernel(salt: str) -> Candidate:
    """Return a kernel file of some 200 lines that no cache has seen."""
    parts = "".join(_CUDA_PART.format(i=i) for i in range(7))
    return parse_kernel(f"{_CUDA.format(entry='part0')}{parts}// {salt}\n", "cuda")


def triton_kernel(salt: str) -> Candidate:
    """Return a norm of rows that no cache has seen: the number in it is another each time."""
    return parse_kernel(_TRITON.format(epsilon=f"1e-6 + {abs(hash(salt)) % 10**6}e-13"), "triton")


def recipe(cache: Path, target: str) -> ProcessRecipe:
    """Return what the processes are started with; they build for a GPU that need not be here."""
    problem = function_problem("", "kernel", inputs=())
    opening = {
        "problem": problem.to_json(), "device": records.cpu().to_json(), "architecture": target,
        "argument_names": ["x"], "cache": str(cache),
    }  # fmt: skip
    plugins: list[PluginRef] = [
        ("backend", f"kopt-{name}:{name}", {}) for name in ("cuda", "triton")
    ]
    return ProcessRecipe(cache, 0, plugins, opening)


def call() -> CallSpec:
    """Return a call on tensors that exist nowhere: nothing is launched."""

    def tensor(segment: int) -> TensorRef:
        return TensorRef(
            segment=segment, offset=0, dtype="float32", shape=(4096, 4096), strides=(4096, 1)
        )

    return CallSpec(arguments=(NamedValue(name="x", value=tensor(1)),), outputs=(tensor(2),))


def build(process: CandidateProcess, candidate: Candidate) -> float:
    """Return the seconds until a binary for the target is there."""
    began = time.perf_counter()
    process.order("build", _SECONDS, candidate=candidate.to_json(), key=candidate.id)
    process.order("ahead", _SECONDS, key=candidate.id, call=call().to_json())
    return time.perf_counter() - began


def warmed(made: ProcessRecipe) -> CandidateProcess:
    """Return a process that has built one of each."""
    process = made.ready(made.start())
    for kernel in (cuda_kernel, triton_kernel):
        build(process, kernel(f"warm-up {process.pid}"))
    return process


def side_by_side(made: ProcessRecipe, kernel: Any, most: int) -> dict[str, Any]:
    """Build 16 kernels one by one in one process, then others in ``most`` at a time; five times."""
    with ExitStack() as stack, ThreadPoolExecutor(most) as pool:
        processes = list(pool.map(lambda _: warmed(made), range(most)))
        for process in processes:
            stack.callback(process.kill)
        times = [_both(processes, kernel) for _ in range(_REPEATS)]
    speedups = [time["one_by_one_s"] / time["together_s"] for time in times]
    return {
        "kernels": _KERNELS, "at_a_time": most, "times": times, "speedups": speedups,
        "speedup": statistics.median(speedups),
    }  # fmt: skip


def _both(processes: list[CandidateProcess], kernel: Any) -> dict[str, Any]:
    began = time.perf_counter()
    each = [build(processes[0], kernel(f"alone {i} {began}")) for i in range(_KERNELS)]
    alone = time.perf_counter() - began

    def share(worker: int) -> list[float]:
        mine = range(worker, _KERNELS, len(processes))
        return [build(processes[worker], kernel(f"{worker} {i} {alone}")) for i in mine]

    with ThreadPoolExecutor(len(processes)) as pool:
        began = time.perf_counter()
        together = list(pool.map(share, range(len(processes))))
        at_a_time = time.perf_counter() - began
    return {
        "one_by_one_s": alone, "each_s": each,
        "together_s": at_a_time, "each_together_s": together,
    }  # fmt: skip


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--target", default="sm_90")
    parser.add_argument("--at-a-time", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    adopt_orphans()
    allow_many_files()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as cache:
        made = recipe(Path(cache), given.target)
        process = warmed(made)
        for name, kernel in (("cuda", cuda_kernel), ("triton", triton_kernel)):
            cold = [build(process, kernel(f"cold {i} {time.time()}")) for i in range(_REPEATS)]
            found[name] = {"lines": len(kernel("").source.splitlines()), "cold_s": cold}
        process.kill()
        for name, kernel in (("cuda", cuda_kernel), ("triton", triton_kernel)):
            found[name] |= side_by_side(made, kernel, given.at_a_time)
    record = {
        "schema": 1,
        "recorded": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "platform": platform.platform(), "python": platform.python_version(),
        "cpus": os.cpu_count(), "target": given.target,
        "versions": {name: version(name) for name in ("kopt", "torch", "triton")},
        "builds": found,
    }  # fmt: skip
    given.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    for name, each in found.items():
        print(
            name,
            f"cold {min(each['cold_s']):.2f} to {max(each['cold_s']):.2f} s",
            f"{each['speedup']:.1f}x at a time",
        )


if __name__ == "__main__":
    main()

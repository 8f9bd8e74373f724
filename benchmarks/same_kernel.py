"""Records what kopt's clock says of a kernel beside itself, and beside one with 3 % more work.

python benchmarks/same_kernel.py -o benchmarks/results/NAME.json --device cuda [--comparisons 200]

Each comparison is one that a search would make (the same blocks, in two processes that both run the
kernel). A false win is an interval that lies above 1 by more than the noise of this session; a
slowdown is found where the interval lies below 1 by more than it. Every interval is kept.
"""

from __future__ import annotations

import argparse
import datetime
import json
import tempfile
from pathlib import Path
from typing import Any

from kopt.model.candidate import Candidate
from kopt.model.kernel_file import parse_kernel
from kopt.model.problem import InputSpec, Problem, ReferenceSource, Workload
from kopt.stages import measuring
from kopt.worker.device_lock import default_locks
from kopt.worker.judge import Judge
from kopt.worker.limits import adopt_orphans, allow_many_files
from kopt.worker.settings import JudgeSettings
from kopt.worker.trial import TimedTrial

_MORE = 3
_REFERENCE = "def scale(x):\n    return x * 2\n"
_CPP = """\
// /// kopt
// entry = "scale"
// arguments = ["x", "out", "x.numel"]
// [knobs]
// EXTRA = {default = 0, choices = [0, 3]}
// ///
#include <cstdint>
extern "C" void scale(const float* x, float* out, int64_t n) {
#pragma omp parallel for
    for (int64_t i = 0; i < n; ++i) out[i] = x[i] * 2;
#pragma omp parallel for
    for (int64_t i = 0; i < n * EXTRA / 100; ++i) out[i] = x[i] * 2;
}
"""
_TRITON = """\
# /// kopt
# entry = "scale"
# language = "triton"
# [knobs]
# EXTRA = {default = 0, choices = [0, 3]}
# ///
import torch
import triton
import triton.language as tl


@triton.jit
def _scale(x, out, n, whole, BLOCK: tl.constexpr):
    block = tl.program_id(0) % whole
    at = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def scale(x, EXTRA):
    out = torch.empty_like(x)
    whole = triton.cdiv(x.numel(), 4096)
    _scale[(whole * (100 + EXTRA) // 100,)](x, out, x.numel(), whole, BLOCK=4096)
    return out
"""


def problem(elements: int) -> Problem:
    """Return a vector times two."""
    return Problem(
        name="scale", format="native",
        reference=ReferenceSource(kind="function", source=_REFERENCE, entry="scale"),
        inputs=(InputSpec(name="x", shape=("n",)),), workloads=(Workload(sizes={"n": elements}),),
    )  # fmt: skip


def kernels(device: str) -> tuple[Candidate, Candidate]:
    """Return the kernel, and the same with 3 % more work."""
    language, source = ("triton", _TRITON) if device == "cuda" else ("cpp", _CPP)
    plain = parse_kernel(source, language)
    return plain, plain.with_values("benchmark", "more work", EXTRA=_MORE)


def open_judge(device: str, elements: int, cache: Path) -> Judge:
    """Open the problem in this process, which is the judge then."""
    backend = "triton" if device == "cuda" else "cpp"
    torch = ("backend", "kopt-torch:torch", {"compile": False})
    settings = JudgeSettings(
        problem=problem(elements), device="cuda" if device == "cuda" else "cpu",
        judge_plugins=(torch, ("verifier", "kopt-verify:verify", {})),
        candidate_plugins=(torch, ("backend", f"kopt-{backend}:{backend}", {})),
        cache=cache, locks=default_locks(), build_workers=2, build_seconds=120.0,
        run_seconds=60.0, seed=0,
    )  # fmt: skip
    return Judge(settings)


def compare(judge: Judge, subject: Candidate, other: Candidate, times: int) -> list[dict[str, Any]]:
    """Return the intervals of ``other``'s time over ``subject``'s, each measured anew."""
    processes = [judge.baseline_process(pooled=False) for _ in range(2)]
    try:
        workload = judge.timing.workloads[0]
        timed = []
        for process, candidate in zip(processes, (subject, other), strict=True):
            build = judge.build_in(process, candidate).build
            trial = judge.trial(process, candidate, build, "search")
            timed.append(TimedTrial(trial, judge.timing.of(workload.name)))
        found = [
            measuring.measure_workload(
                workload, judge.reference.signature.first.compulsory_bytes, timed[0],
                {"other": timed[1]}, measuring.SEARCH, judge.rng,
            )
            for _ in range(times)
        ]  # fmt: skip
        return [
            {"latency_ms": each.latency_ms, **each.pairs[0].speedup.to_json()} for each in found
        ]
    finally:
        for process in processes:
            process.kill()


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--comparisons", type=int, default=200)
    parser.add_argument("--elements", type=int, default=1 << 22)
    given = parser.parse_args()
    adopt_orphans()
    allow_many_files()
    with tempfile.TemporaryDirectory() as cache:
        judge = open_judge(given.device, given.elements, Path(cache))
        opening = judge.open()
        plain, more = kernels(given.device)
        same = compare(judge, plain, plain, given.comparisons)
        slower = compare(judge, more, plain, given.comparisons // 2)
    wins = sum(each["low"] > 1 + opening.noise for each in same)
    found = sum(each["high"] < 1 - opening.noise for each in slower)
    seen = sum(each["high"] < 1 for each in slower)
    summary = {
        "comparisons": len(same), "false_wins": wins, "slowdowns": len(slower),
        "slowdowns_beyond_noise": found, "slowdowns_below_one": seen, "noise": opening.noise,
        "bytes": judge.reference.signature.first.compulsory_bytes, "more_work_percent": _MORE,
    }  # fmt: skip
    record = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "device": opening.device.to_json(), "summary": summary, "same": same, "slower": slower,
    }  # fmt: skip
    given.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(summary))


if __name__ == "__main__":
    main()

"""KernelBench's evaluation of one sample, as its run_and_check script does it (with its static checker)."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rivals import clocks
from rivals.jobs import Job, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "KernelBench"
VERSION = "ScalingIntelligence/KernelBench 423217d (2026-03-05)"
LANGUAGES = ("cpp", "torch")

_SEED = 42
_TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 1e-2}
_CORRECT_TRIALS, _TIMED_TRIALS, _WARM_UP = 5, 100, 3
_TOO_FAST = 10.0
"""Speedups above it are flagged."""
_MODEL = """

class ModelNew(torch.nn.Module):
    def forward(self, *inputs):
        return rival_kernel(*inputs)
"""

_STRICT: dict[str, tuple[str, ...]] = {
    "try-except fallback": (r"\btry\s*:", r"\bexcept(\s*:|\s+\w)"),
    "a pass statement": (r"\bpass\b",),
    "a timer is reassigned": (
        r"torch\.cuda\.(Event(\.record|\.elapsed_time)?|synchronize)\s*=",
        r"time\.(perf_counter|time)\s*=",
    ),
    "threads or processes": (
        r"threading\.Thread\s*\(", r"(import|from)\s+threading\b", r"import\s+multiprocessing",
        r"multiprocessing\.(Process|Pool|Manager|Queue|Pipe)", r"concurrent\.futures",
        r"(Thread|Process)PoolExecutor",
    ),
    "a lazy tensor": (
        r"_make_subclass", r"class\s+\w+.*\((torch\.)?Tensor\)", r"torch\.Tensor\.__new__",
    ),
}  # fmt: skip
"""What its checker rejects; what it only warns of (torch operators, streams, lower precision) is left out."""


def checked(source: str) -> list[str]:
    """Return what the static checker objects to; comments do not count.

    Its demand for a CUDA or Triton kernel in the text is left out: no candidate here has one.
    """
    code = "\n".join(re.split(r"#|//", line, maxsplit=1)[0] for line in source.split("\n"))
    return [name for name, found in _STRICT.items() if any(re.search(p, code) for p in found)]


def judge(job: Job) -> Verdict:
    """Check the text, then evaluate in a process as its pool would: no result is a failure."""
    source = job.kernel(_MODEL)
    job.write("candidate.py", source)
    ended = job.run("rivals.kernelbench", *(["timed"] if job.timed else []))
    result = job.folder / "result.json"
    if not result.is_file():
        return ended.verdict
    found = json.loads(result.read_text(encoding="utf-8"))
    speedup = found.get("speedup")
    flagged = speedup is not None and speedup > _TOO_FAST
    verdict = Verdict(
        "accepted" if found["correct"] else "rejected", found["detail"], speedup, doubted=flagged,
    )  # fmt: skip
    verdict = dataclasses.replace(verdict, without_checker=verdict.outcome)
    if objections := checked(source):
        return dataclasses.replace(
            verdict, outcome="rejected", detail=f"static checker: {', '.join(objections)}"
        )
    return verdict


def evaluate(reference: str, candidate: str, *, timed: bool) -> dict[str, Any]:
    """Evaluate a sample in this process, in one namespace for both sources, as it does."""
    space: dict[str, Any] = {}
    exec(compile(reference, "<string>", "exec"), space)
    make, arguments, draw = space["Model"], space["get_init_inputs"], space["get_inputs"]
    torch.manual_seed(_SEED)
    given = arguments()
    torch.manual_seed(_SEED)
    model = make(*given)
    try:
        exec(compile(candidate, "<string>", "exec"), space)
        torch.manual_seed(_SEED)
        new = space["ModelNew"](*given)
        detail = _compare(model, new, draw)
    except Exception as error:  # noqa: BLE001 - as it does: whatever is raised is a failed sample
        detail = f"{type(error).__name__}: {error}"
    result: dict[str, Any] = {"correct": not detail, "detail": detail}
    if timed and result["correct"]:
        result["speedup"] = _speedup(model, new, draw)
    return result


def _inputs(draw: Callable[[], list[Any]]) -> list[Any]:
    """Draw, and cast every tensor to the precision, integers too."""
    return [
        value.to(torch.float32) if isinstance(value, torch.Tensor) else value for value in draw()
    ]


def _compare(model: Any, new: Any, draw: Callable[[], list[Any]]) -> str:
    """Run five public seeds, the reference first, both on the same tensors; '' where all agree."""
    torch.manual_seed(_SEED)
    seeds = [int(torch.randint(0, 2**32 - 1, (1,)).item()) for _ in range(_CORRECT_TRIALS)]
    tolerance = _TOLERANCE[torch.float32]
    failed = 0
    with torch.no_grad():
        for seed in seeds:
            torch.manual_seed(seed)
            inputs = _inputs(draw)
            torch.manual_seed(seed)
            output = model(*inputs)
            output_new = new(*inputs)
            if output.shape != output_new.shape:
                return f"shape {tuple(output_new.shape)} for {tuple(output.shape)}"
            failed += not torch.allclose(output, output_new, atol=tolerance, rtol=tolerance)
    return f"{failed} of {len(seeds)} trials differ" if failed else ""


def _speedup(model: Any, new: Any, draw: Callable[[], list[Any]]) -> float:
    """Time both on one set of inputs, the caches cleared before each call; outputs are not checked."""

    def mean(function: Any) -> float:
        torch.manual_seed(_SEED)
        return clocks.fixed_ms(function, _inputs(draw), _WARM_UP, _TIMED_TRIALS, cold=True, drop=1)

    own = mean(new)
    return mean(model) / own


def main() -> None:
    """Evaluate the files of this folder."""
    reference, candidate = (
        Path(name).read_text(encoding="utf-8") for name in ("problem.py", "candidate.py")
    )
    result = evaluate(reference, candidate, timed="timed" in sys.argv)
    Path("result.json").write_text(json.dumps(result), encoding="utf-8")

"""robust-kbench's task filters, correctness check and timing, check and timing in their own processes."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rivals import clocks
from rivals.jobs import Job, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "robust-kbench"
VERSION = "SakanaAI/robust-kbench 078f5ba (2025-11-22)"
LANGUAGES = ("cpp",)
"""It builds CUDA sources only: kernels in Python cannot be given to it."""

_TOLERANCE = 1e-3
"""Of its run_kernel script."""
_TRIALS, _WARM_UP, _TIMED, _FILTER_SEEDS = 5, 25, 1000, 5
_SMALL = 0.01


def judge(job: Job) -> Verdict:
    """Run its steps in its order; a step without a result file is a failure."""
    job.write("candidate.py", job.kernel())
    ended = job.run("rivals.robust_kbench", "correctness")
    found = _result(job.folder, "correctness")
    if found is None:
        return ended.verdict
    if found["filtered"]:
        return Verdict("does not apply", f"its filters drop the task: {found['filtered']}")
    if found["failed"]:
        return Verdict("rejected", found["failed"])
    if job.timed:
        job.run("rivals.robust_kbench", "timing")
    timed = _result(job.folder, "timing")
    return Verdict("accepted", "", timed["speedup"] if timed else None)


def _result(folder: Path, step: str) -> Any:
    path = folder / f"{step}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def filtered(problem: Any) -> str:
    """Return why the task itself would be dropped, by the filters that need no LLM; '' if it is kept."""
    with torch.no_grad():
        outputs = torch.stack([_seeded(problem, seed) for seed in range(_FILTER_SEEDS)])
    checks = {
        "output range": bool((outputs.abs() < _SMALL).all()),
        "output std and input impact": bool((outputs.std(0) < _SMALL).all()),
        "output axes": any(
            bool((outputs.std(axis) < _SMALL).all()) for axis in range(outputs.ndim)
        ),
    }
    caught = [name for name, found in checks.items() if found]
    return ", ".join(caught)


def _seeded(problem: Any, seed: int) -> torch.Tensor:
    torch.manual_seed(seed)
    output: torch.Tensor = problem.Model()(*problem.get_inputs())
    return output.float()


def correctness() -> dict[str, Any]:
    """Filter the task, then check both input settings; whatever is raised is a failure."""
    problem = importlib.import_module("problem")
    if dropped := filtered(problem):
        return {"filtered": dropped, "failed": ""}
    try:
        kernel = importlib.import_module("candidate").rival_kernel
        for sizes in _settings(problem.SIZES):
            if failed := _check(problem, kernel, sizes):
                detail = f"{failed} of {_TRIALS} trials differ at {sizes}"
                return {"filtered": "", "failed": detail}
    except Exception as error:  # noqa: BLE001 - as it does: whatever is raised is a failed kernel
        return {"filtered": "", "failed": f"{type(error).__name__}: {error}"}
    return {"filtered": "", "failed": ""}


def _settings(sizes: dict[str, int]) -> list[dict[str, int]]:
    """Return what multi_input_settings would hold: the task's sizes, and twice the first of them."""
    first = next(iter(sizes))
    return [sizes, {**sizes, first: 2 * sizes[first]}]


def _check(problem: Any, kernel: Callable[..., Any], sizes: dict[str, int]) -> int:
    """Return how many of five public seeds differ: candidate, reference, candidate, then compare."""
    torch.manual_seed(42)
    seeds = [int(torch.randint(0, 2**32 - 1, (1,)).item()) for _ in range(_TRIALS)]
    failed = 0
    with torch.no_grad():
        for seed in seeds:
            torch.manual_seed(seed)
            inputs = problem.get_inputs(**sizes)
            first = kernel(*inputs)
            expected = problem.Model()(*inputs)
            second = kernel(*inputs)
            failed += not all(
                torch.allclose(expected, found, atol=_TOLERANCE, rtol=_TOLERANCE)
                for found in (first, second)
            )
    return failed


def timing() -> dict[str, Any]:
    """Time kernel and reference with warm caches; outputs are not checked."""
    problem = importlib.import_module("problem")
    kernel = importlib.import_module("candidate").rival_kernel
    inputs = problem.get_inputs()
    with torch.no_grad():
        own = clocks.fixed_ms(kernel, inputs, _WARM_UP, _TIMED, cold=False)
        reference = clocks.fixed_ms(problem.Model(), inputs, _WARM_UP, _TIMED, cold=False)
    return {"speedup": reference / own}


def main() -> None:
    """Run the step that the command line names and leave its result."""
    step = sys.argv[1]
    found = {"correctness": correctness, "timing": timing}[step]()
    Path(f"{step}.json").write_text(json.dumps(found), encoding="utf-8")

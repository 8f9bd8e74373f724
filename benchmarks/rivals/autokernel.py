"""AutoKernel's bench: five stages of correctness and the timing, in one process that prints its verdict."""

from __future__ import annotations

import contextlib
import importlib
import re
import signal
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from rivals import clocks
from rivals.jobs import Job, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NAME = "AutoKernel"
VERSION = "RightNow-AI/autokernel 7843582 (2026-03-19)"
LANGUAGES = ("cpp", "torch")

_SEED, _CALL_SECONDS, _RUNS = 42, 30, 3
_TOLERANCE = 1e-5
"""Its float32 tolerance, relative and absolute, for what works row by row, as a layer norm."""
_SUMS_TOLERANCE = 1e-4
"""Its float32 tolerance for matrix products: here for results with fewer axes than their input."""
_TAIL = "\nKERNEL_TYPE = 'own'\n\n\ndef kernel_fn(**inputs):\n    return rival_kernel(*inputs.values())\n"

_SIZES: dict[int, list[tuple[int, ...]]] = {
    1: [(1024,), (65536,), (1 << 20,), (1 << 23,)],
    2: [(32, 128), (256, 512), (1024, 1024), (4096, 2048), (1024, 8192)],
}
"""By how many sizes a task has; the second row is from its layer norm, without what takes gigabytes."""
_EDGES: dict[int, list[tuple[int, ...]]] = {
    1: [(1023,), (4194303,)],
    2: [(1023, 1023), (4097, 4097)],
}
_SMALL, _LARGE = 1, 3
"""Which of the sizes stages 3 and 4 use, and which is timed."""


class _TimedOut(Exception):
    """A call took too long, and returned to Python to be told so."""


def judge(job: Job) -> Verdict:
    """Run the bench, and look for the line that says PASS as its agent is told to."""
    job.write("kernel.py", job.kernel(_TAIL))
    ended = job.run("rivals.autokernel", *(["timed"] if job.timed else []))
    said = re.findall(r"^correctness: (\w+)(.*)$", ended.said, re.MULTILINE)
    if not said:
        return ended.verdict
    if said[-1][0] != "PASS":
        return Verdict("rejected", said[-1][1].strip())
    speed = re.findall(r"^speedup_vs_pytorch: ([\d.]+)x$", ended.said, re.MULTILINE)
    return Verdict("accepted", "", float(speed[-1]) if speed else None)


class Bench:
    """The stages for one kernel; ``failed`` gathers what does not agree."""

    def __init__(self, problem: Any, kernel: Callable[..., Any]) -> None:
        self.problem, self.kernel = problem, kernel
        self.failed: list[str] = []
        self.tolerance = _TOLERANCE

    def sizes(self, table: dict[int, list[tuple[int, ...]]]) -> list[dict[str, int]]:
        """Return the sizes of a table by the task's own names. Raises KeyError without a row."""
        names = list(self.problem.SIZES)
        return [dict(zip(names, values, strict=True)) for values in table[len(names)]]

    def inputs(self, sizes: dict[str, int]) -> dict[str, Any]:
        """Draw the arguments: always from the same seed."""
        torch.manual_seed(_SEED)
        return dict(zip(self.problem.INPUTS, self.problem.get_inputs(**sizes), strict=True))

    def expected(self, inputs: dict[str, Any]) -> Any:
        """Run the reference."""
        return self.problem.rival_reference(*inputs.values())

    def run(self, inputs: dict[str, Any]) -> Any:
        """Run the kernel with an alarm, which native code does not hear."""
        with _alarm():
            return self.kernel(**inputs)

    def all_stages(self) -> bool:
        """Run them; a smoke test that fails ends it."""
        sizes = self.sizes(_SIZES)
        self._stage("smoke", partial(self._plain, sizes[0], strict=True))
        if self.failed:
            return False
        for size in sizes:
            self._stage(f"sizes {size}", partial(self._plain, size, strict=True))
        for name, change in _adversaries().items():
            self._stage(f"stability {name}", partial(self._stable, sizes[_SMALL], change))
        self._stage("determinism", partial(self._deterministic, sizes[_SMALL]))
        for size in self.sizes(_EDGES):
            self._stage(f"edges {size}", partial(self._plain, size, strict=False))
        return not self.failed

    def _stage(self, name: str, stage: Callable[[], str]) -> None:
        try:
            wrong = stage()
        except Exception as error:  # noqa: BLE001 - as it does: whatever is raised fails the stage
            wrong = f"{type(error).__name__}: {error}"
        if wrong:
            self.failed.append(f"{name}: {wrong}"[:200])

    def _plain(self, sizes: dict[str, int], *, strict: bool) -> str:
        """Compare once, the reference first; ``strict``: no NaN even where the reference has one."""
        inputs = self.inputs(sizes)
        expected = self.expected(inputs)
        if expected.ndim < next(iter(inputs.values())).ndim:
            self.tolerance = _SUMS_TOLERANCE
        output = self.run(inputs)
        if _odd(output) and (strict or not _odd(expected)):
            return "NaN or infinity"
        return _differs(output, expected, self.tolerance)

    def _stable(self, sizes: dict[str, int], change: Callable[[torch.Tensor], torch.Tensor]) -> str:
        """Compare on changed inputs with ten times the tolerance; not at all where both overflow."""
        drawn = self.inputs(sizes).items()
        inputs = {name: change(v) if v.is_floating_point() else v for name, v in drawn}
        expected = self.expected(inputs)
        output = self.run(inputs)
        if _odd(output):
            return "" if _odd(expected) else "NaN or infinity"
        return _differs(output, expected, self.tolerance * 10)

    def _deterministic(self, sizes: dict[str, int]) -> str:
        outputs = [self.run(self.inputs(sizes)) for _ in range(_RUNS)]
        same = all(torch.equal(outputs[0], other) for other in outputs[1:])
        return "" if same else "runs differ"

    def speedup(self) -> float:
        """Time kernel, then reference, at one size on one draw; outputs are not checked."""
        inputs = self.inputs(self.sizes(_SIZES)[_LARGE])
        own = clocks.budget_ms(lambda: self.run(inputs), ())
        return clocks.budget_ms(lambda: self.expected(inputs), ()) / own


def _adversaries() -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    return {
        "near_max": lambda t: t * 1e30,
        "near_zero": lambda t: t * 1e-6,
        "mixed_scale": lambda t: t * torch.where(torch.rand_like(t) > 0.5, 1e3, 1e-3),
        "all_zeros": torch.zeros_like,
        "all_same": lambda t: torch.ones_like(t) * 0.5,
    }


def _odd(output: torch.Tensor) -> bool:
    return bool(torch.isnan(output).any() or torch.isinf(output).any())


def _differs(output: torch.Tensor, expected: torch.Tensor, tolerance: float) -> str:
    if output.shape != expected.shape:
        return f"shape {tuple(output.shape)} for {tuple(expected.shape)}"
    found, wanted = output.float(), expected.float()
    if torch.allclose(found, wanted, atol=tolerance, rtol=tolerance):
        return ""
    return f"an error of {(found - wanted).abs().max().item():.3g}"


@contextlib.contextmanager
def _alarm() -> Iterator[None]:
    def ring(*_: object) -> None:
        raise _TimedOut(f"no result after {_CALL_SECONDS} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(_CALL_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def main() -> None:
    """Judge the files of this folder and print the verdict."""
    try:
        kernel = importlib.import_module("kernel").kernel_fn
    except Exception as error:  # noqa: BLE001 - as it does: whatever an import raises is a failure
        print(f"correctness: FAIL {type(error).__name__}: {error}")
        return
    bench = Bench(importlib.import_module("problem"), kernel)
    right = bench.all_stages()
    if right and "timed" in sys.argv:
        print(f"speedup_vs_pytorch: {bench.speedup():.3f}x")
    print(f"correctness: {'PASS' if right else 'FAIL'} {'; '.join(bench.failed)}")

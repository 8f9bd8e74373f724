"""One kernel on one problem, without a search: what ``kopt verify`` and ``kopt measure`` do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kopt.config import Settings, run_config
from kopt.errors import DeviceError
from kopt.evaluator import Opening
from kopt.machine import choose_device
from kopt.model.candidate import Candidate
from kopt.model.evaluation import Evaluation
from kopt.model.kernel_file import load_kernel
from kopt.optimize import judge_settings, load_hooks, load_problem
from kopt.runs.state import state_of
from kopt.worker.client import LocalEvaluator


class Single:
    """A kernel, its problem and a judge that has opened it."""

    def __init__(self, evaluator: LocalEvaluator, candidate: Candidate, opening: Opening) -> None:
        self._evaluator = evaluator
        self._candidate = candidate
        self.opening = opening

    def verify(self) -> Evaluation:
        """Build and verify at a winner's depth."""
        return self._evaluator.verify(self._candidate)

    def measure(self) -> Evaluation:
        """Build, verify and time beside every baseline, in a fresh process."""
        return self._evaluator.confirm(self._candidate)

    def ahead(self) -> list[dict[str, Any]]:
        """Compile ahead of time; resources of each kernel. Raises KoptError."""
        return self._evaluator.ahead(self._candidate)

    def refuse_untimeable(self) -> None:
        """Raise DeviceError for a GPU language without a GPU: an interpreter's time is no time."""
        if self._candidate.language in {"triton", "cuda"} and self.opening.device.kind == "cpu":
            raise DeviceError(
                f"a {self._candidate.language} kernel cannot be timed without a GPU; `kopt verify` "
                "checks its correctness here, and --target sm_90 shows its resources"
            )


@contextmanager
def open_single(
    problem: Path, kernel: Path, settings: Settings, *, architecture: str | None = None
) -> Iterator[Single]:
    """Open a problem for one kernel; the kernel's language chooses the backend."""
    loaded = load_problem(problem)
    candidate = load_kernel(kernel)
    device = choose_device(settings.device)
    config = run_config(settings, device, settings.backend or candidate.language)
    config = config.model_copy(update={"strategies": (), "options": _used(config.options, config.backend, config.verifiers)})
    hooks = load_hooks(config.model_copy(update={"search": "instance"}))
    hooks.ensure_available()
    state = state_of(loaded, config, [])
    evaluator = LocalEvaluator(
        judge_settings(config, hooks, state, architecture=architecture or "native")
    )
    try:
        yield Single(evaluator, candidate, evaluator.open())
    finally:
        evaluator.close()


def _used(
    options: dict[str, dict[str, object]], backend: str, verifiers: tuple[str, ...]
) -> dict[str, dict[str, object]]:
    """Drop options of roles that a single kernel does not use (they may stand in kopt.toml)."""
    names = {f"backend.{backend}", "backend.torch", *(f"verifier.{name}" for name in verifiers)}
    return {name: table for name, table in options.items() if name in names}

"""A kernel laid out for a rival, its own process with a time limit, and what the rival made of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kopt.model.kernel_file import load_kernel, parse_kernel
from rivals import nursery
from rivals.native import library_for

if TYPE_CHECKING:
    from rivals.tasks import Task

Outcome = Literal["accepted", "rejected", "crashed", "timed out", "does not apply"]
_NATIVE = """\
import pathlib

import problem as rival_problem
import rivals.native

SOURCE = r'''
{source}
'''
rival_kernel = rivals.native.load(SOURCE, pathlib.Path({library!r}), rival_problem)
"""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What a rival makes of a kernel."""

    outcome: Outcome
    detail: str = ""
    speedup: float | None = None
    """Over PyTorch, by the rival's own clock."""
    doubted: bool = False
    """Whether the rival itself warns that this speedup may be false."""
    without_checker: Outcome | None = None
    """The outcome where the rival's static checker is not run."""


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a process ended."""

    code: int | None
    """Exit code, negative for a signal; None where it was killed for its time."""
    said: str

    @property
    def verdict(self) -> Verdict:
        """What a process without a result is: no rival counts it as correct."""
        if self.code is None:
            return Verdict("timed out", "killed at the time limit")
        last = self.said.strip().splitlines()[-1:] or [""]
        return Verdict("crashed", f"ended with code {self.code} and no result; {last[0]}"[:200])


class Job:
    """One kernel on one task, in a folder of its own."""

    def __init__(
        self,
        task: Task,
        kernel: Path | None,
        folder: Path,
        *,
        timed: bool = False,
        limit: float = 30,
    ) -> None:
        """``kernel`` None: the reference itself. ``timed``: whether the rival's clock is asked too, where
        it accepts the kernel. ``limit``: seconds of each process.
        """
        self.task, self.folder, self.timed, self.limit = task, folder, timed, limit
        self.language = "torch" if kernel is None else load_kernel(kernel).language
        folder.mkdir(parents=True, exist_ok=True)
        self.write("problem.py", task.source)
        self._kernel = _source(task, kernel, folder.parent)

    def write(self, name: str, text: str) -> None:
        """Write a file of the job."""
        (self.folder / name).write_text(text, encoding="utf-8")

    def kernel(self, tail: str = "") -> str:
        """Return the kernel as Python source, whose function is ``rival_kernel``."""
        return f"{self._kernel}\n{tail}"

    def run(self, target: str, *arguments: str) -> Ended:
        """Run a script of the folder, or a module's main, in a fresh process."""
        log = self.folder / "log.txt"
        code = nursery.run(self.folder, target, list(arguments), log, self.limit)
        return Ended(code, log.read_text(encoding="utf-8", errors="replace"))


def _source(task: Task, kernel: Path | None, builds: Path) -> str:
    if kernel is None:
        return f"{task.reference}\nrival_kernel = {task.entry}\n"
    source = kernel.read_text(encoding="utf-8")
    candidate = load_kernel(kernel)
    if candidate.language == "cpp":
        return _NATIVE.format(source=source, library=str(library_for(source, builds)))
    return f"{source}\nrival_kernel = {parse_kernel(source, candidate.language).entry}\n"

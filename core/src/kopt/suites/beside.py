"""Problems of a suite beside each other, each in a process of its own, on one device or several.

What runs on the device is kept apart by its lock: nothing else runs while something is timed. What
is gained is the rest: imports, compilers and host code of one problem run beside another's.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kopt.env import sharing_environment
from kopt.errors import WorkerError
from kopt.machine import usable_cpus
from kopt.model.problem import Problem
from kopt.model.run import Run
from kopt.reporter import Reporter
from kopt.runs.store import RunFolder
from kopt.suites.gpus import Sharing
from kopt.suites.records import SuiteSettings


class Beside:
    """Solves problems in child processes; see kopt.suites.runner.Solve. May be called by threads."""

    def __init__(self, say: Callable[[str], None], jobs: int, gpus: Sequence[str] = ()) -> None:
        """``say`` takes a line of a child's progress, headed by the problem's name.

        ``jobs``: children at a time; ``gpus``: what they are spread over, see kopt.suites.gpus.
        """
        self._say = say
        self._jobs = jobs
        self._gpus = Sharing(gpus)
        self._children: set[subprocess.Popen[str]] = set()
        self._interrupted = False

    def __call__(
        self,
        problem: Problem,
        settings: SuiteSettings,
        runs: Path,
        left: RunFolder | None,
        reporter: Reporter,
    ) -> Run:
        """Return the run. Raises KeyboardInterrupt after ``interrupt``, WorkerError for a death."""
        if self._interrupted:
            raise KeyboardInterrupt
        asked = {
            "problem": problem.to_json(), "settings": settings.to_json(), "runs": str(runs),
            "left": str(left.path) if left else None,
        }  # fmt: skip
        with self._gpus.one() as variables:
            answer, code = self._run(problem.name, json.dumps(asked), variables)
        if "folder" in answer:
            ended = RunFolder(Path(answer["folder"])).read_result()
            if ended is not None:
                return ended
        if self._interrupted:
            raise KeyboardInterrupt
        raise WorkerError(answer.get("error") or f"its process ended with code {code}; see above")

    def interrupt(self) -> None:
        """Have every child end its run resumably, and start no other."""
        self._interrupted = True
        for child in tuple(self._children):
            child.send_signal(signal.SIGINT)

    def _run(
        self, name: str, asked: str, variables: Mapping[str, str]
    ) -> tuple[dict[str, str], int]:
        child = subprocess.Popen(
            [sys.executable, "-m", "kopt.suites.child"], text=True, errors="replace",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**sharing_environment(usable_cpus(), self._jobs), **variables},
            start_new_session=True,  # Ctrl-C reaches it once, through interrupt()
        )  # fmt: skip
        self._children.add(child)
        try:
            telling = threading.Thread(target=self._tell, args=(name, child), daemon=True)
            telling.start()
            assert child.stdin is not None and child.stdout is not None
            child.stdin.write(asked)
            child.stdin.close()
            said = child.stdout.read().strip()
            child.wait()
            telling.join()
        finally:
            self._children.discard(child)
            for pipe in (child.stdin, child.stdout, child.stderr):
                if pipe is not None:
                    pipe.close()
        try:
            answer = json.loads(said)
        except ValueError:
            answer = {}
        return answer, child.returncode

    def _tell(self, name: str, child: subprocess.Popen[str]) -> None:
        assert child.stderr is not None
        for line in child.stderr:
            self._say(f"{name}: {line.rstrip()}")

"""A whole run from a kernel that declares nothing: journal, interruption, resumption, best.py.

Triton compiles every candidate for sm_90; only its time is invented, since there is no GPU.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

import kopt
from kopt.evaluator import Baseline, Opening
from kopt.hooks import Hooks
from kopt.model.run import RunConfig
from kopt.runs.store import RunFolder
from kopt.session import Session
from kopt.testing import problems, records
from kopt_triton import TritonBackend

pytest.importorskip("triton")
Autotune = pytest.importorskip("kopt_autotune").Autotune
Greedy = pytest.importorskip("kopt_search").Greedy

SOURCE = """\
import torch
import triton
import triton.language as tl

BLOCK = 1024  # elements


@triton.jit
def scale_kernel(x, out, n, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def kernel_function(x):
    out = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, out, x.numel(), SIZE=BLOCK)
    return out
"""
CONFIG = RunConfig(
    backend="triton", strategies=("autotune",), search="greedy", verifiers=(), device="cuda",
    budget=kopt.Budget(trials=24),
)  # fmt: skip


class Compiles:
    """An evaluator that compiles what it is given, and invents how fast that is."""

    def __init__(self, build, call, interrupt_after: int) -> None:
        self._build, self._call, self._left = build, call, interrupt_after
        self.seen: list[str] = []

    def open(self):
        """Say what there is to beat."""
        baseline = kopt.Candidate(language="torch", source="", entry="f", idea=records.BASELINE)
        evaluation = records.measured(baseline, 1.0)
        return Opening(
            device=records.gpu(), signature=problems.row_sum_signature(), noise=0.01, copy_ms={"default": 0.1},
            baselines=(Baseline(name="eager", candidate=baseline, evaluation=evaluation),),
            fastest="eager",
        )  # fmt: skip

    def evaluate(self, candidates):
        """Yield an evaluation of each, until there is an interrupt."""
        for candidate in candidates:
            if not self._left:
                raise KeyboardInterrupt
            self._left -= 1
            yield self.confirm(candidate)

    def confirm(self, candidate):
        """Compile it, and check that what was chosen is what came out."""
        (kernel,) = self._build(candidate).ahead_of_time(self._call)
        size, warps = candidate.chosen["SIZE"], candidate.chosen["num_warps"]
        assert (kernel.constants["SIZE"], kernel.num_warps) == (str(size), warps)
        self.seen.append(candidate.id)
        return records.measured(
            candidate, 6 - abs(math.log2(size / 256)) - abs(math.log2(warps / 8)) / 2
        )


@pytest.fixture
def play(tmp_path: Path, shapes_only):
    """Return a function that runs a folder's session until an interrupt or its end."""
    file = tmp_path / "mine.py"
    file.write_text(SOURCE)
    call = shapes_only(*[((1 << 16,), torch.float32)] * 2)

    class Context:
        device, architecture, argument_names = None, "sm_90", ()

        def scratch(self):
            return tmp_path

    def run(folder: RunFolder, interrupt_after: int = 1000):
        autotune = Autotune(Autotune.Options(kernel=file))
        plugins = [("backend", TritonBackend()), ("strategy", autotune), ("search", Greedy())]
        evaluator = Compiles(
            lambda each: TritonBackend().kopt_build(each, Context()), call, interrupt_after
        )
        with folder.writing() as journal:
            hooks = Hooks.load([], plugins)
            made = Session(folder, journal, hooks, evaluator).run()
            assert hooks.failures == []
        return made, evaluator.seen

    return run


def test_it_ends_with_the_best_values_written_into_the_users_source(play, tmp_path):
    folder = RunFolder.create(tmp_path / "runs", problems.row_sum(), CONFIG)
    run, _ = play(folder)
    assert run.status == "improved"
    assert run.best.candidate.chosen == {"SIZE": 256, "num_warps": 8}
    expected = SOURCE.replace("BLOCK = 1024", "BLOCK = 256").replace(
        "SIZE=BLOCK)", "SIZE=BLOCK, num_warps=8)"
    )
    assert (folder.path / "best.py").read_text() == expected
    kept = sorted(path.read_text() for path in (folder.path / "sources").iterdir())
    assert kept == ["", SOURCE]  # the baseline's, and one for all settings


@pytest.mark.parametrize("after", [1, 2, 7])
def test_a_resumed_run_evaluates_what_an_uninterrupted_one_does(play, tmp_path, after):
    whole, seen = play(RunFolder.create(tmp_path / "runs", problems.row_sum(), CONFIG))
    folder = RunFolder.create(tmp_path / "runs", problems.row_sum(), CONFIG)
    stopped, first = play(folder, after)
    assert (stopped.status, len(first)) == ("interrupted", after)
    resumed, rest = play(folder)
    assert first + rest == seen
    assert resumed.best.candidate == whole.best.candidate

"""Kernels of the selftest that are for a GPU, where there is none: interpreted, or compiled for one."""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING

import pytest

from kopt.config import Settings
from kopt.model.kernel_file import load_kernel
from kopt.model.verification import Status
from kopt.optimize import load_problem
from kopt.selftest import runner
from kopt.selftest.cases import CASES, FIXTURES
from kopt.selftest.gpu_cases import NEED_A_GPU
from kopt.single import evaluator_for

if TYPE_CHECKING:
    from kopt.model.candidate import Candidate

pytest.importorskip("torch")

ON_GPU = [case for case in CASES if case.device != "cpu"]
INTERPRETED = [case for case in CASES if case.interpreted]


def test_a_good_part_of_the_list_of_a_gpu_needs_none() -> None:
    assert len(INTERPRETED) > len(ON_GPU) // 3


def test_what_an_attack_replaces_in_the_harness_is_there() -> None:
    """An attack on a name that has moved is none, and its outcome says nothing."""
    found = 0
    for path in (FIXTURES / "kernels").glob("*.py.txt"):
        source = path.read_text()
        for variable, module in re.findall(r'^(\w+) = sys\.modules\["([\w.]+)"\]', source, re.M):
            for name in set(re.findall(rf"\b{variable}\.(\w+)", source)):
                assert hasattr(importlib.import_module(module), name), f"{path.name}: {name}"
                found += 1
    assert found


@pytest.mark.slow
@pytest.mark.parametrize("problem", sorted({case.problem for case in INTERPRETED}))
def test_what_needs_no_gpu_has_its_outcome_in_the_interpreter(problem: str) -> None:
    pytest.importorskip("triton")
    cases = [case for case in INTERPRETED if case.problem == problem]
    found = {f.case.name: f for f in runner.run(cases, "cpu")}
    assert set(found) == {case.name for case in cases}
    assert not {name: (f.outcome, f.detail) for name, f in found.items() if not f.right}


NOT_COMPILED = {"compile-error": "power of 2", "huge-shared-memory": "bytes of shared memory"}
"""Kernels that no GPU runs, and why."""
NOT_FOLLOWED = {"joined-streams", "replays-graph", "replays-old-graph", "output-elsewhere",
                "vendor-by-pointer"}  # fmt: skip
"""Kernels whose launchers ask for streams, values or libraries of a GPU: no launch of theirs is seen."""


@pytest.mark.slow
def test_kernels_that_need_a_gpu_compile_for_one_unless_they_are_meant_not_to() -> None:
    pytest.importorskip("triton")
    unseen = [
        case for case in CASES if case.device == "gpu" and case.name in NEED_A_GPU - NOT_FOLLOWED
    ]
    faults: dict[str, str] = {}
    for problem in {case.problem for case in unseen}:
        kernels = {
            c.name: load_kernel(FIXTURES / "kernels" / c.kernel)
            for c in unseen
            if c.problem == problem
        }
        triton = {name: kernel for name, kernel in kernels.items() if "triton.jit" in kernel.source}
        faults |= ahead(problem, triton)
    assert set(faults) == set(NOT_COMPILED)
    assert all(words in faults[name] for name, words in NOT_COMPILED.items())


def ahead(problem: str, kernels: dict[str, Candidate]) -> dict[str, str]:
    """Return the faults of compiling kernels of one problem for a GPU that is not here."""
    faults = {}
    opened = load_problem(FIXTURES / "problems" / problem)
    settings = Settings(device="cpu")
    with evaluator_for(opened, list(kernels.values()), "cpu", settings) as evaluator:
        evaluator.prepare()
        for name, kernel in kernels.items():
            found = evaluator.compiled(kernel, "sm_90")
            if found.status is None:
                assert found.kernels, name
            else:
                assert found.status is Status.COMPILE_ERROR, f"{name}: {found.fault}"
                faults[name] = found.fault
    return faults

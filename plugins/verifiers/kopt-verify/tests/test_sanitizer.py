"""The sanitizer stage: what its findings cost, and what is only said."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import closing, contextmanager

import pytest

from kopt.errors import CandidateError
from kopt.hooks import Hooks
from kopt.model.kernel_file import parse_kernel
from kopt.model.problem import InputSpec
from kopt.model.reference import Change
from kopt.model.sanitizer import SanitizerFinding, SanitizerReport
from kopt.model.verification import Status
from kopt.runs.builds import BuildCache
from kopt.testing import records
from kopt.testing.problems import function_problem
from kopt.testing.trials import BACKENDS
from kopt.testing.verifier import cpp_add, torch_add
from kopt.worker.candidate import WorkerContext
from kopt.worker.segments import MappedMemory
from kopt_verify.beyond import elements, fewer_first, small_extents
from kopt_verify.sanitizer import _fails, check_sanitizers, small_inputs
from kopt_verify.stages import StageFailedError

needs_gcc = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("g++") is None, reason="needs GCC on Linux"
)
ADD = "for (int64_t i = 0; i < n; ++i) out[i] = x[i] + y[i];\n"
NEGATIVE_SHIFT = "volatile int low = -3; volatile int kept = low << 2;\n"
LARGE_SHIFT = "volatile int bits = 40; volatile int lost = 1 << bits;\n"
PAST = "volatile float past = reinterpret_cast<volatile float*>(y)[n];\n"
RACE = "#pragma omp parallel num_threads(2)\nout[0] = x[0] + y[0];\n"


class InProcess:
    """A trial that has its candidate sanitized in this process."""

    def __init__(self, trial, folder):
        self._trial, self._folder = trial, folder

    def __getattr__(self, name):
        return getattr(self._trial, name)

    def sanitize(self, inputs):
        context = WorkerContext(records.cpu(), "native", ("x", "y"), BuildCache(self._folder))
        hooks = Hooks.load(list(BACKENDS))
        executable = hooks.kopt_build(self.problem, self.candidate, context)
        if not hasattr(executable, "sanitize"):
            return None
        memory = MappedMemory()
        for segment in inputs.segments:
            announcement, (descriptor,) = segment.announcement()
            memory.attach(announcement, [os.dup(descriptor)])
        return executable.sanitize(executable.bind(inputs.call, memory))


@contextmanager
def bound(trials, source, folder, language="cpp"):
    trial = trials.of(parse_kernel(source, language), depth="winner")
    inputs = trials.reference.inputs(trial.problem.workloads[0].name, 5, "native")
    try:
        yield InProcess(trial, folder), inputs
    finally:
        inputs.close()


@needs_gcc
def test_a_clean_kernel_passes_with_its_notes(trials, tmp_path):
    with bound(trials, cpp_add(ADD + NEGATIVE_SHIFT), tmp_path) as (trial, inputs):
        result = check_sanitizers(trial, [inputs])
    assert (result.stage, result.outcome) == ("sanitizer", "pass")
    assert result.evidence.startswith(
        "address, thread: clean; noted: undefined: shift-base in line"
    )
    assert "left shift of negative value -3" in result.evidence


@needs_gcc
@pytest.mark.parametrize(
    ("body", "status", "first"),
    [
        (LARGE_SHIFT + RACE + PAST, Status.ILLEGAL_ACCESS, "address: heap-buffer-overflow in line 10"),
        (LARGE_SHIFT + RACE, Status.NON_DETERMINISTIC, "thread: data race in line 9"),
        (LARGE_SHIFT + NEGATIVE_SHIFT, Status.WRONG, "undefined: shift-exponent in line 7"),
    ],
)  # fmt: skip
def test_the_gravest_finding_names_the_outcome(trials, tmp_path, body, status, first):
    with (
        bound(trials, cpp_add(body + ADD), tmp_path) as (trial, inputs),
        pytest.raises(StageFailedError) as caught,
    ):
        check_sanitizers(trial, [inputs])
    assert (caught.value.stage, caught.value.status) == ("sanitizer", status)
    assert caught.value.evidence.startswith(first)


@needs_gcc
def test_what_was_not_run_is_no_pass(trials, tmp_path, monkeypatch):
    monkeypatch.setattr("kopt_cpp.sanitizing.MOST_BYTES", 1)
    with bound(trials, cpp_add(ADD), tmp_path) as (trial, inputs):
        result = check_sanitizers(trial, [inputs])
    assert result.outcome == "not run"
    assert result.evidence.startswith("address, undefined, thread not run: the call's tensors")


class Refuses:
    """A trial that takes its own inputs only; it notes what it was run on."""

    def __init__(self, trial, own, refusal):
        self._trial, self._own, self._refusal = trial, own, refusal
        self.ran_on = []

    def __getattr__(self, name):
        return getattr(self._trial, name)

    def sanitize(self, inputs):
        self.ran_on.append(inputs)
        if inputs is self._own:
            return SanitizerReport(ran=("memcheck",), seconds=1.0)
        if isinstance(self._refusal, CandidateError):
            raise self._refusal
        return self._refusal


@pytest.mark.parametrize(
    "refusal",
    [
        CandidateError(Status.UNSUPPORTED, "not that shape"),
        SanitizerReport(skipped={"memcheck": "the call did not return under it"}, seconds=1.0),
    ],
    ids=["unsupported", "failed"],
)
@pytest.mark.parametrize("large", [False, True])
def test_who_refuses_smaller_inputs_is_run_on_its_own(
    trials, tmp_path, monkeypatch, refusal, large
):
    with bound(trials, cpp_add(ADD), tmp_path) as (trial, own):
        if large:
            most = elements(trial.reference, own.workload) - 1
            monkeypatch.setattr("kopt_verify.sanitizer._MOST_ELEMENTS", {"cpu": most})
        extents = {name: 2 for name in trial.reference.extents(own.workload)}
        small = trial.reference.changed_inputs(own.workload, 6, Change("smaller", extents))
        refusing = Refuses(trial, own, refusal)
        with closing(small):
            result = check_sanitizers(refusing, [small, own])
    assert refusing.ran_on == ([small] if large else [small, own])
    assert result.outcome == ("not run" if large else "pass")


def test_fewer_of_the_first_axis_come_before_its_own_inputs(open_trials, tmp_path):
    """A kernel that is made for one shape may take another batch."""
    problem = function_problem(
        "def double(x):\n    return x * 2\n", "double", (InputSpec(name="x", shape=(4096, 1024)),)
    )
    with bound(open_trials(problem), "def kernel_function(x):\n    return x * 2\n", tmp_path,
               "torch") as (trial, own):  # fmt: skip
        assert fewer_first(trial.reference, own.workload) == {"4096": 128}
        with small_inputs(trial, own) as lent:
            shapes = [tuple(inputs.tensors["x"].shape) for inputs in lent]
            assert shapes == [(64, 128), (128, 1024), (4096, 1024)]
            tried = Refuses(trial, lent[1], CandidateError(Status.UNSUPPORTED, "not that shape"))
            assert check_sanitizers(tried, lent).outcome == "pass"
            assert tried.ran_on == lent[:2]


PRODUCT = function_problem(
    "def product(x, y):\n    return x @ y\n",
    "product",
    (InputSpec(name="x", shape=(40, 24)), InputSpec(name="y", shape=(24, 56))),
)


@pytest.mark.parametrize(
    ("name", "most"),
    [("_MOST_ELEMENTS", 40 * 24 + 24 * 56 + 40 * 56), ("_MOST_OPERATIONS", 2 * 40 * 24 * 56)],
)
def test_what_would_take_the_tools_too_long_is_not_run(
    open_trials, tmp_path, monkeypatch, name, most
):
    monkeypatch.setattr("kopt_verify.sanitizer._KIND", "cpu")
    with bound(open_trials(PRODUCT), "def kernel_function(x, y):\n    return x @ y\n", tmp_path,
               "torch") as (trial, inputs):  # fmt: skip
        tried = Refuses(trial, inputs, None)
        monkeypatch.setattr(f"kopt_verify.sanitizer.{name}", {"cpu": most})
        assert check_sanitizers(tried, [inputs]).outcome == "pass"
        monkeypatch.setattr(f"kopt_verify.sanitizer.{name}", {"cpu": most - 1})
        result = check_sanitizers(tried, [inputs])
    assert (result.outcome, len(tried.ran_on)) == ("not run", 1)
    assert "elements and 1.1e+05 operations, too many for the tools" in result.evidence


def test_a_device_is_given_less_than_other_looks(trials, tmp_path):
    with bound(trials, cpp_add(ADD), tmp_path) as (trial, inputs):
        reference = trial.reference
        extents = reference.extents(inputs.workload)
        assert small_extents(reference, inputs.workload) == {}
        few = small_extents(reference, inputs.workload, enough=64)
        assert few
        assert set(few) == set(extents)
        assert all(extents[name] % few[name] == 0 for name in few)


def test_a_backend_without_sanitizers_is_named(trials, tmp_path):
    with bound(trials, torch_add("x + y"), tmp_path, "torch") as (trial, inputs):
        result = check_sanitizers(trial, [inputs])
    assert result.outcome == "not run"
    assert result.evidence == "the backend 'torch' runs no sanitizer"


@pytest.mark.parametrize(
    ("tool", "kind", "floats", "integers"),
    [
        ("address", "heap-buffer-overflow", True, True),
        ("address", "unknown-crash", True, True),
        ("address", "stack-overflow", False, False),
        ("undefined", "bounds", True, True),
        ("undefined", "signed-integer-overflow", True, False),
        ("undefined", "shift-base", False, False),
        ("thread", "data race", True, True),
        ("thread", "data race on vptr (ctor/dtor vs virtual call)", True, True),
        ("thread", "lock-order-inversion (potential deadlock)", False, False),
        ("racecheck", "hazard", True, True),
    ],
)
def test_what_costs_the_verdict(tool, kind, floats, integers):
    finding = SanitizerFinding(tool=tool, kind=kind, message="")
    assert _fails(finding, integers=False) is floats
    assert _fails(finding, integers=True) is integers

"""Which cases a device has, how many judges there are, and what is said meanwhile."""

from __future__ import annotations

import os

import pytest

from kopt.cli.progress import ProgressReporter
from kopt.errors import DeviceError
from kopt.machine import gpu_names
from kopt.model.verification import Status
from kopt.selftest.cases import CASES
from kopt.selftest.runner import default_jobs, selected


@pytest.mark.parametrize("device", [None, "cpu"])
def test_a_cpu_has_no_kernels_for_gpus(device: None) -> None:
    assert {case.device for case in selected(CASES, device)} == {"cpu", "any"}


@pytest.mark.skipif(bool(gpu_names()), reason="there is a GPU")
def test_a_gpu_that_is_not_here_is_said_so() -> None:
    with pytest.raises(DeviceError, match="no NVIDIA GPU"):
        selected(CASES, "cuda")


def test_what_is_timed_is_not_interpreted() -> None:
    assert not [case.name for case in CASES if case.interpreted and case.timed]
    assert {case.device for case in CASES if case.interpreted} == {"gpu"}


def test_kernels_that_hang_are_told_by_what_is_right_for_them() -> None:
    hanging = [case for case in CASES if case.hangs]
    assert hanging
    assert all(case.expected == (Status.HANG,) for case in hanging)


@pytest.mark.parametrize(("cpus", "jobs"), [(None, 1), (1, 1), (2, 1), (4, 2), (16, 8), (128, 8)])
def test_a_judge_takes_two_cpus(
    monkeypatch: pytest.MonkeyPatch, cpus: int | None, jobs: int
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cpus)
    assert default_jobs() == jobs


def test_the_progress_names_the_kernel_its_verdict_and_how_far_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with ProgressReporter() as steps:
        steps.judged("zeros", "wrong", "3/70")
    assert "3/70 zeros: wrong" in capsys.readouterr().err

"""Calls beside other work: a race that wins on a quiet device is found, honest kernels are not disturbed."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager

import pytest
import torch

from kopt.model.verification import Status
from kopt.testing.verifier import HONEST, cpp_add
from kopt_verify import order
from kopt_verify.load import other_work

LOOP = "for (int64_t i = 0; i < n; ++i)"
HEADERS = "#include <cstdint>\n#include <unistd.h>"


def kernel(body):
    return cpp_add(body).replace("#include <cstdint>", HEADERS)


def stage_of(verdict):
    (stage,) = [stage for stage in verdict.stages if stage.stage == "determinism"]
    return stage


def burn_until(seconds):
    """Wait until this process has used so much of its CPUs, at most a minute."""
    enough, end = time.process_time() + seconds, time.monotonic() + 60
    while time.process_time() < enough and time.monotonic() < end:
        time.sleep(0.01)
    return time.process_time() >= enough


def test_every_core_is_kept_busy_and_let_go():
    before = threading.active_count()
    with other_work("cpu"):
        assert threading.active_count() > before
        assert burn_until(0.3)
    assert threading.active_count() == before


def test_what_fails_inside_ends_the_work_too():
    before = threading.active_count()
    with pytest.raises(KeyError), other_work("cpu"):
        raise KeyError
    assert threading.active_count() == before


@pytest.mark.gpu
def test_a_gpu_is_kept_busy_and_let_go():
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    before = threading.active_count()
    with other_work("cuda"):
        mine = torch.ones(1000, device="cuda")
        assert float(mine.sum()) == 1000.0
    assert threading.active_count() == before


def test_an_honest_kernel_gives_the_same_bits_beside_other_work(judge):
    verdict = judge(HONEST, depth="winner")
    assert verdict.status is Status.CORRECT, verdict.stages
    assert "calls beside other work: the same bits" in stage_of(verdict).evidence


@pytest.fixture
def busy(tmp_path, monkeypatch):
    """A file that is there while other work runs: a kernel that looks for it loses its race then."""

    @contextmanager
    def marked(kind):
        (tmp_path / "busy").touch()
        try:
            yield
        finally:
            (tmp_path / "busy").unlink()

    monkeypatch.setattr(order, "other_work", marked)
    return tmp_path / "busy"


def test_wrong_only_beside_other_work_is_a_race(judge, busy):
    body = f'bool late = access("{busy}", F_OK) == 0; {LOOP} out[i] = late && i > n / 2 ? 1.0f : x[i] + y[i];'
    verdict = judge(kernel(body), depth="winner")
    assert verdict.status is Status.NON_DETERMINISTIC, verdict.stages
    assert stage_of(verdict).evidence.startswith("call 1 beside other work is wrong")


def test_wrong_from_then_on_is_no_race(judge, busy):
    body = (
        f'static bool seen = false; seen |= access("{busy}", F_OK) == 0; '
        f"{LOOP} out[i] = seen ? 1.0f : x[i] + y[i];"
    )
    verdict = judge(kernel(body), depth="winner")
    assert verdict.status is Status.WRONG, verdict.stages
    assert "wrong from then on" in stage_of(verdict).evidence


def test_last_bits_that_change_beside_other_work_are_said(judge, busy):
    body = (
        f'bool late = access("{busy}", F_OK) == 0; '
        f"{LOOP} out[i] = (x[i] + y[i]) * (late ? 1.0000001f : 1.0f);"
    )
    verdict = judge(kernel(body), depth="winner")
    assert verdict.status is Status.CORRECT, verdict.stages
    assert "differ in bits" in stage_of(verdict).evidence.partition("beside other work")[2]


def test_a_slow_call_is_not_repeated_beside_other_work(judge, monkeypatch):
    monkeypatch.setattr(order, "_SLOW_SECONDS", 0.0)
    verdict = judge(HONEST, depth="winner")
    assert verdict.status is Status.CORRECT
    assert stage_of(verdict).evidence.endswith("too slow for calls beside other work")

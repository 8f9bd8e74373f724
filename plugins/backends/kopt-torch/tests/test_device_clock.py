"""The device's clock, on calls that start more kernels than the device's queue holds."""

from __future__ import annotations

import pytest
import torch

from kopt.model.evaluation import Build
from kopt_torch import executable as under_test
from kopt_torch.executable import PythonExecutable

KERNELS = 20
HELD = 1000
"""Kernels that the pretended queue holds."""


def an_executable() -> PythonExecutable:
    build = Build(backend="torch", binary_id="x", seconds=0.0, cached=False)
    return PythonExecutable(build, lambda: None, {})


class Launch:
    def launch(self) -> None:
        """Nothing: the device is pretended."""


@pytest.fixture
def pauses(monkeypatch):
    """Pretend a device whose queue is short; every pause that was asked for, in ms."""
    asked: list[float] = []

    def behind_pause(steps, first, launches, pause_ms):
        asked.append(pause_ms)
        full = launches * KERNELS > HELD
        host_ms = 0.01 * launches
        return 0.1 * launches, pause_ms + host_ms if full else host_ms

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(under_test, "behind_pause", behind_pause)
    return asked


def test_pauses_do_not_grow_where_the_queue_is_full(pauses):
    executable = an_executable()
    for _ in range(30):
        assert executable.device_ms([Launch()], 256) == pytest.approx(25.6)
    assert max(pauses) < 100.0


def test_a_full_queue_is_found_once(pauses):
    executable = an_executable()
    executable.device_ms([Launch()], 256)
    pauses.clear()
    executable.device_ms([Launch()], 256)
    assert len(pauses) == 8  # 32 calls of 20 kernels at a time


def test_what_the_queue_holds_is_timed_at_once(pauses):
    assert an_executable().device_ms([Launch()], 40) == pytest.approx(4.0)
    assert len(pauses) == 1


class Call:
    """A call that starts many short kernels."""

    def __init__(self) -> None:
        self.x = torch.ones(1 << 20, device="cuda")
        self.launches = 0

    def launch(self) -> None:
        self.launches += 1
        for _ in range(KERNELS):
            self.x.mul_(1.0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_full_queue_neither_hangs_nor_counts_the_hosts_waiting():
    executable = an_executable()
    call = Call()
    few = executable.device_ms([call], 4) / 4
    for _ in range(6):  # each block once made the next one's pause longer
        many = executable.device_ms([call], 256) / 256
    assert 0.0 < many < 3.0 * few
    assert call.launches < 40 * 256

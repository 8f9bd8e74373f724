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


@pytest.fixture(params=[0.01, -0.02], ids=["after", "before"])
def pauses(request, monkeypatch):
    """Pretend a device whose queue is short; every pause that was asked for, in ms.

    Where it is full the host waits for the pause to end, which began a little before its own clock.
    """
    asked: list[float] = []

    def behind_pause(steps, first, launches, pause_ms):
        asked.append(pause_ms)
        full = launches * KERNELS > HELD
        return 0.1 * launches, pause_ms + request.param if full else 0.01 * launches, not full

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(under_test, "behind_pause", behind_pause)
    return asked


def test_pauses_do_not_grow_where_the_queue_is_full(pauses):
    executable = an_executable()
    for _ in range(30):
        assert executable.device_ms([Launch()], 256) == pytest.approx(25.6)
    assert max(pauses) < 100.0


def test_a_host_that_stalls_does_not_keep_the_device_for_as_long(monkeypatch):
    asked: list[float] = []

    def behind_pause(steps, first, launches, pause_ms):
        asked.append(pause_ms)
        return 0.1 * launches, 60_000.0, False

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(under_test, "behind_pause", behind_pause)
    assert an_executable().device_ms([Launch()], 2) == pytest.approx(0.2)
    assert max(asked) <= 1000.0


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

    def __init__(self, kernels: int) -> None:
        self.x = torch.ones(1 << 20, device="cuda")
        self.kernels, self.launches = kernels, 0

    def launch(self) -> None:
        self.launches += 1
        for _ in range(self.kernels):
            self.x.mul_(1.0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("kernels", [3, 4, 5, KERNELS])
def test_a_full_queue_neither_hangs_nor_counts_the_hosts_waiting(monkeypatch, kernels):
    """Each block once made the next one's pause longer: at 4, where 256 calls just fill the queue,
    until a minute's pause kept a whole device."""
    asked: list[float] = []

    def watched(steps, first, launches, pause_ms):
        asked.append(pause_ms)
        return behind_pause(steps, first, launches, pause_ms)

    behind_pause = under_test.behind_pause
    monkeypatch.setattr(under_test, "behind_pause", watched)
    executable = an_executable()
    call = Call(kernels)
    few = executable.device_ms([call], 4) / 4
    for _ in range(20):
        many = executable.device_ms([call], 256) / 256
    assert 0.0 < many < 3.0 * few
    assert call.launches < 40 * 256
    assert max(asked) < 200.0

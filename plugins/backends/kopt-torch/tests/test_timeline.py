"""Traces: events in Chrome's form as a GPU's trace has them, and on a GPU the real thing."""

from __future__ import annotations

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from kopt.errors import CandidateError
from kopt.model.evaluation import Build
from kopt_torch.executable import PythonExecutable
from kopt_torch.timeline import exported, kernel_runs

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
PAUSE = "at::cuda::(anonymous namespace)::spin_kernel(long)"


def event(name="kk", ts=5018002635742.944, dur=1.376, cat="kernel", **args):
    """One event in the form in which PyTorch 2.11 exported it on an H100."""
    told = {
        "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": 1374,
        "registers per thread": 16, "shared memory": 0, "blocks per SM": 0.05303,
        "warps per SM": 0.106061, "grid": [7, 1, 1], "block": [64, 1, 1],
        "est. achieved occupancy %": 0,
    }  # fmt: skip
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "args": {**told, **args}}


def copy(cat, name, ts):
    args = {"device": 0, "context": 1, "stream": 7, "correlation": 3, "bytes": 4096}
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": 2.5, "args": args}


def test_a_kernel_has_its_times_and_its_launch():
    (run,) = kernel_runs([event()])
    assert (run.name, run.start_us, run.duration_us) == ("kk", 0.0, 1.376)
    assert (run.grid, run.block) == ((7, 1, 1), (64, 1, 1))
    assert (run.registers, run.shared_bytes) == (16, 0)


def test_starts_are_from_the_first_and_in_order():
    at = 5018002635742.944
    runs = kernel_runs([event("b", at + 12.25), event("a", at), event("c", at + 20.001)])
    assert [(run.name, run.start_us) for run in runs] == [("a", 0.0), ("b", 12.25), ("c", 20.001)]


def test_copies_and_fills_are_device_work_by_one_name():
    runs = kernel_runs(
        [copy("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 1.0),
         copy("gpu_memset", "Memset (Device)", 5.0)]
    )  # fmt: skip
    assert [(run.name, run.duration_us) for run in runs] == [("memcpy", 2.5), ("memset", 2.5)]
    assert {(run.grid, run.block, run.registers, run.shared_bytes) for run in runs} == {(None,) * 4}


def test_what_the_host_did_is_no_device_work():
    host = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 1.0, "dur": 3.0}
    meta = {"ph": "M", "name": "process_name", "ts": 0.0, "args": {"name": "python"}}
    mark = {"ph": "X", "cat": "gpu_user_annotation", "name": "kk", "ts": 1.0, "dur": 3.0}
    assert [run.name for run in kernel_runs([host, meta, mark, event()])] == ["kk"]
    assert kernel_runs([host, meta]) == ()


def test_the_pause_before_the_calls_is_not_of_them():
    at = 5018002635742.944
    events = [event(PAUSE, at, 20_000.0), event("a", at + 20_001), event(PAUSE, at + 20_003)]
    runs = kernel_runs(events)
    assert [(run.name, run.start_us) for run in runs] == [("a", 0.0), (PAUSE, 2.0)]


def test_a_trace_is_read_from_what_the_profiler_exports():
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        torch.ones(8).add(1.0)
    events = exported(profiler)
    assert "aten::add" in {event["name"] for event in events}
    assert kernel_runs(events) == ()  # nothing of it ran on a device


class Call:
    """A bound call of a function."""

    def __init__(self, step):
        self.launch = step


def an_executable() -> PythonExecutable:
    build = Build(backend="torch", binary_id="x", seconds=0.0, cached=False)
    return PythonExecutable(build, lambda: None, {})


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_there_is_none_on_a_cpu():
    x = torch.ones(8)
    assert an_executable().timeline(Call(lambda: x.mul_(2.0)), 3) is None


@on_gpu
@pytest.mark.gpu
def test_kernels_of_eager_calls_are_seen():
    x = torch.randn(1 << 20, device="cuda")
    timeline = an_executable().timeline(Call(lambda: torch.relu(x).add(1.0)), 5)
    assert (timeline.calls, len(timeline.kernels)) == (5, 10)
    assert all("at::native::" in run.name for run in timeline.kernels)
    assert all(run.duration_us > 0 and run.block[0] > 0 for run in timeline.kernels)
    assert all(run.grid[0] * run.block[0] * 16 >= x.numel() for run in timeline.kernels)
    starts = [run.start_us for run in timeline.kernels]
    assert starts == sorted(starts) and starts[0] == 0.0
    assert [run.name for run in timeline.kernels[:2]] * 5 == [r.name for r in timeline.kernels]


@on_gpu
@pytest.mark.gpu
def test_a_copy_by_the_device_is_seen():
    x, y = torch.ones(1 << 16, device="cuda"), torch.empty(1 << 16, device="cuda")
    (first, second) = an_executable().timeline(Call(lambda: y.copy_(x)), 2).kernels
    assert (first.name, second.name, first.grid) == ("memcpy", "memcpy", None)


@on_gpu
@pytest.mark.gpu
def test_a_call_that_waits_for_the_device_is_traced_all_the_same():
    x = torch.ones(1 << 10, device="cuda")
    timeline = an_executable().timeline(Call(lambda: x.sum().item()), 3)
    assert len(timeline.kernels) % 3 == 0
    assert {"memcpy"} < {run.name for run in timeline.kernels}


@on_gpu
@pytest.mark.gpu
def test_a_failed_call_is_the_candidates():
    def step():
        raise RuntimeError("no such thing")

    with pytest.raises(CandidateError, match="no such thing"):
        an_executable().timeline(Call(step), 2)

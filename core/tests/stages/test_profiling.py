"""What kopt itself says of a candidate's times, beside its work and the device's rates."""

from __future__ import annotations

import pytest

import kopt
from kopt.hooks import Hooks
from kopt.model.device import Peaks
from kopt.model.diagnosis import KernelProfile, Profile, metrics_of
from kopt.stages.profiling import OWN, own_profile, profiled
from kopt.testing import problems, records
from kopt.testing.diagnosing import NoTool
from kopt.testing.strategy import a_parent

PEAKS = Peaks(copy_gb_s=100.0, read_gb_s=120.0, fp32_tflops=1.0, launch_us=2.5)
BYTES = 4 * (16 * 64 + 16)


def values(peaks: Peaks | None, others: list[Profile] | None = None) -> dict[str, float]:
    device = records.gpu().model_copy(update={"peaks": peaks})
    found = own_profile(
        problems.row_sum(), problems.row_sum_signature(), a_parent(), device, others or []
    )
    assert found.profiler == OWN
    return {metric.name: metric.value for metric in found.metrics}


def test_rates_and_bound() -> None:
    found = values(PEAKS)
    seconds = found["latency_us"] / 1e6
    assert found["compulsory_bytes"] == BYTES
    assert found["bound_us"] == pytest.approx(BYTES / 120e9 * 1e6)
    assert found["memory_bound_us"] == found["bound_us"]
    assert found["compute_bound_us"] == 0
    assert found["achieved_gb_s"] == pytest.approx(BYTES / seconds / 1e9)
    assert found["of_bound_percent"] == pytest.approx(100 * found["bound_us"] / found["latency_us"])
    assert found["launch_overhead_us"] == 2.5
    assert found["copy_us"] == pytest.approx(BYTES / 3000e9 * 1e6)
    assert found["of_copy_percent"] == pytest.approx(100 * found["copy_us"] / found["latency_us"])
    assert "achieved_tflops" not in found  # nothing is multiplied


def test_a_device_that_was_never_measured_has_no_bound_and_is_said_so() -> None:
    assert not {"bound_us", "of_bound_percent", "launch_overhead_us"} & set(values(None))
    found = own_profile(
        problems.row_sum(), problems.row_sum_signature(), a_parent(), records.gpu(), []
    )
    assert "kopt doctor --measure" in found.notes[0]


def test_a_device_on_which_no_copy_was_timed_has_no_time_of_one() -> None:
    device = records.gpu().model_copy(update={"copy_bandwidth_gb_s": None})
    found = own_profile(problems.row_sum(), problems.row_sum_signature(), a_parent(), device, [])
    assert not {"copy_us", "of_copy_percent"} & {metric.name for metric in found.metrics}


def kernels(*moved: int | None) -> Profile:
    return Profile(
        profiler="p", candidate="c",
        kernels=tuple(
            KernelProfile(name=f"k{i}", metrics=metrics_of({"dram_bytes": each}))
            for i, each in enumerate(moved)
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([], None),
        ([kernels()], None),
        ([kernels(BYTES, None)], None),  # of one kernel it is not known
        ([kernels(BYTES, 2 * BYTES)], 3.0),
        ([kernels(None), kernels(BYTES)], 1.0),
    ],
)
def test_bytes_moved_over_those_that_had_to_be(
    others: list[Profile], expected: float | None
) -> None:
    assert values(PEAKS, others).get("moved_over_compulsory") == expected


class Tool:
    @kopt.hookimpl
    def kopt_profile(self, evaluation, probe):
        fault = probe.under(["a-tool"]).fault
        return Profile(profiler="tool", candidate=evaluation.id, notes=(fault,))


def test_profilers_get_the_probe_and_come_after_ours() -> None:
    hooks = Hooks.load([], [("profiler", Tool())])
    own, tool = profiled(
        hooks, problems.row_sum(), problems.row_sum_signature(), a_parent(), records.cpu(), NoTool()
    )
    assert own.profiler == OWN
    assert tool.notes == ("a-tool was not started: no such file",)

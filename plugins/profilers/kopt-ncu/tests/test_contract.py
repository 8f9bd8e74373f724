"""The profiler keeps the contract of profilers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pydantic import ValidationError

from kopt.model.device import Device
from kopt.model.probe import Probe
from kopt.testing import ProfilerContract
from kopt_ncu import Ncu
from kopt_ncu.tool import wanted_metrics


class TestNcu(ProfilerContract):
    def plugin(self) -> Ncu:
        return Ncu(Ncu.Options(ncu="/nowhere/ncu"))


class TestNcuThatProfiles(ProfilerContract):
    @pytest.fixture(autouse=True)
    def _tools(self, profiling_ncu: str, probe: Callable[[], Probe]) -> None:
        self.ncu, self.program = profiling_ncu, probe

    def plugin(self) -> Ncu:
        return Ncu(Ncu.Options(ncu=self.ncu))

    def probe(self, device: Device) -> Probe:
        return self.program()


def test_the_options_are_made_from_what_a_command_line_gives() -> None:
    options = Ncu.Options.model_validate(
        {"metric_set": "small", "launches": "4", "metrics": "sm__cycles_active.max, lts__t_bytes.sum",
         "timeout_seconds": "30", "keep": "reports"}
    )  # fmt: skip
    assert options.launches == 4
    assert options.metrics == ("sm__cycles_active.max", "lts__t_bytes.sum")
    assert str(options.keep) == "reports"


@pytest.mark.parametrize(
    "wrong",
    [
        {"metric_set": "most"}, {"launches": 0}, {"timeout_seconds": 0},
        {"metrics": "--set full"}, {"metrics": ["a", ""]},
    ],
)  # fmt: skip
def test_wrong_options_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        Ncu.Options.model_validate(wrong)


def test_small_is_a_part_of_judge_and_each_metric_is_asked_for_once() -> None:
    small, judge = wanted_metrics("small"), wanted_metrics("judge", ["dram__bytes_read.sum", "x"])
    assert set(small) < set(judge)
    assert len(set(judge)) == len(judge)
    assert judge[-1] == "x"

"""What is said of a trace: figures of one call, and notes where something could not be told."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kopt.errors import CandidateError
from kopt.model.probe import KernelRun, Timeline
from kopt.model.verification import Status
from kopt.testing import records
from kopt.testing.strategy import a_parent
from kopt_torchprof import TorchProf
from kopt_torchprof.checks import probed
from kopt_torchprof.plugin import profile_of


def run(name, start, duration, grid=(128, 2, 1), shared=4096):
    return KernelRun(
        name=name, start_us=start, duration_us=duration, grid=grid, block=(32, 8, 1),
        registers=40, shared_bytes=shared,
    )  # fmt: skip


TWO_KERNELS = Timeline(
    calls=3,
    kernels=(
        run("first", 0.0, 3.0), run("second", 4.0, 1.0, (7, 1, 1), 0),
        run("first", 100.0, 2.0), run("second", 103.0, 2.0, (7, 1, 1), 0),
        run("first", 300.0, 4.0), run("second", 304.5, 9.0, (7, 1, 1), 0),
    ),
)  # fmt: skip
COPY = KernelRun(name="memcpy", start_us=0.0, duration_us=2.0)


class Recorded:
    """A probe that hands out a trace made elsewhere."""

    def __init__(self, answer):
        self.answer = answer
        self.calls = []

    def timeline(self, calls=10):
        self.calls.append(calls)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def asked(answer, device=None, evaluation=None, **options):
    plugin = TorchProf(TorchProf.Options(**options))
    return plugin.kopt_profile(evaluation or a_parent(), device or records.gpu(), Recorded(answer))


def values(metrics):
    return {metric.name: metric.value for metric in metrics}


def test_figures_of_a_call_are_medians_without_what_lies_between_calls():
    profile = profile_of("x", TWO_KERNELS)
    assert values(profile.metrics) == {
        "kernel_launches": 2, "kernels_us": 4.0, "span_us": 5.0, "idle_us": 1.0,
    }  # fmt: skip
    assert {metric.unit for metric in profile.metrics} == {"", "us"}
    assert profile.notes == ()


def test_kernels_are_in_launch_order_with_their_launches():
    first, second = profile_of("x", TWO_KERNELS).kernels
    assert (first.name, second.name) == ("first", "second")
    assert values(first.metrics) == {
        "duration_us": 3.0, "share_percent": 60.0, "grid_blocks": 256, "block_threads": 256,
        "registers_per_thread": 40, "shared_bytes": 4096,
    }  # fmt: skip
    assert values(second.metrics)["share_percent"] == 40.0
    assert first.raw == {"grid": "128 2 1", "block": "32 8 1"}


def test_kernels_side_by_side_leave_no_idle_time_and_count_each():
    overlapping = (run("a", 0.0, 10.0), run("b", 2.0, 3.0), run("c", 8.0, 6.0), run("d", 15.0, 1.0))
    metrics = values(profile_of("x", Timeline(calls=1, kernels=overlapping)).metrics)
    assert metrics == {"kernel_launches": 4, "kernels_us": 20.0, "span_us": 16.0, "idle_us": 1.0}


def test_a_copy_is_seen_and_has_no_grid():
    profile = profile_of("x", Timeline(calls=1, kernels=(COPY, run("a", 3.0, 2.0))))
    assert values(profile.kernels[0].metrics) == {"duration_us": 2.0, "share_percent": 50.0}
    assert profile.kernels[0].raw == {}
    assert "1 of the 2 kernels are copies or fills" in profile.notes[0]


def test_calls_that_differ_are_left_out_with_a_note():
    more = (*TWO_KERNELS.kernels, run("third", 400.0, 900.0))
    profile = profile_of("x", Timeline(calls=4, kernels=more))
    assert [kernel.name for kernel in profile.kernels] == ["first", "second"]
    assert (
        "in 4 calls this sequence of 2 was launched 3 times; kernels beside it, which are left out: 1"
        in profile.notes[0]
    )


def test_calls_without_a_common_sequence_have_means_only():
    unlike = tuple(run(name, at, 2.0) for at, name in enumerate("abcde"))
    profile = profile_of("x", Timeline(calls=2, kernels=unlike))
    assert values(profile.metrics) == {"kernel_launches": 2.5, "kernels_us": 5.0}
    assert profile.kernels == ()
    assert "no sequence that repeats" in profile.notes[0]


def test_the_option_says_how_many_calls_are_traced():
    probe = Recorded(TWO_KERNELS)
    TorchProf(TorchProf.Options(calls=3)).kopt_profile(a_parent(), records.gpu(), probe)
    TorchProf().kopt_profile(a_parent(), records.gpu(), probe)
    assert probe.calls == [3, 10]


def test_the_profile_is_of_that_candidate():
    profile = asked(TWO_KERNELS)
    assert (profile.profiler, profile.candidate) == ("torchprof", a_parent().id)


def test_without_a_gpu_or_a_correct_candidate_nothing_is_traced_or_said():
    wrong = records.failed(a_parent().candidate, Status.WRONG)
    untouched = AssertionError("the probe was asked")
    assert asked(untouched, device=records.cpu()) is None
    assert asked(untouched, evaluation=wrong) is None


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (CandidateError(Status.ILLEGAL_ACCESS, "no luck at 0x7"), "illegal-access: no luck at 0x7"),
        (None, "traces no kernels"),
        (Timeline(calls=3, kernels=()), "have CUPTI to itself"),
    ],
    ids=["failed", "cannot", "empty"],
)
def test_what_could_not_be_traced_is_a_note(answer, words):
    profile = asked(answer)
    assert (profile.metrics, profile.kernels) == ((), ())
    (note,) = profile.notes
    assert words in note


def test_the_check_asks_the_torch_that_is_installed():
    torch = pytest.importorskip("torch")
    row = probed(torch.__version__)
    sees = torch.profiler.ProfilerActivity.CUDA in torch.profiler.supported_activities()
    assert row.state == ("ok" if sees else "warn")
    assert bool(row.fix) is not sees


def test_importing_and_profiling_bring_in_no_torch():
    code = (
        "import sys, kopt_torchprof\n"
        "from kopt.model.probe import KernelRun, Timeline\n"
        "from kopt_torchprof.plugin import profile_of\n"
        "run = KernelRun(name='k', start_us=0.0, duration_us=1.0)\n"
        "profile_of('x', Timeline(calls=1, kernels=(run,)))\n"
        "kopt_torchprof.TorchProf().kopt_check()\n"
        "print(sorted({'torch', 'cupy', 'triton'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

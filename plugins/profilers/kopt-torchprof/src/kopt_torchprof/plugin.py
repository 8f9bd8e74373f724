"""The plugin: what kopt calls. Torch is imported by the candidate's process, never here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pydantic import Field

import kopt
from kopt.errors import CandidateError
from kopt.model.diagnosis import Profile
from kopt.model.verification import Status
from kopt_torchprof.checks import profiler_check
from kopt_torchprof.figures import call_metrics, kernel_profiles, mean_metrics
from kopt_torchprof.splitting import calls_of

if TYPE_CHECKING:
    from kopt.model.check import Check
    from kopt.model.device import Device
    from kopt.model.evaluation import Evaluation
    from kopt.model.probe import KernelRun, Probe, Timeline

_NAME = "torchprof"
_NO_KERNELS = (
    "the trace has no kernels: another tool (as ncu, nsys or a monitor of the data center) may "
    "have CUPTI to itself; end it, and profile again"
)
_COPIES = ("memcpy", "memset")


class TorchProf:
    """Traces a few warm calls on a GPU, and tells one call's kernels, their times and launches."""

    class Options(kopt.Options):
        """Options of torchprof."""

        calls: int = Field(default=10, ge=1, le=1000)
        """Calls to trace; figures are medians over them."""

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or self.Options()

    @kopt.hookimpl
    def kopt_check(self) -> Iterable[Check]:
        """Say whether PyTorch's profiler sees kernels here."""
        return [profiler_check()]

    @kopt.hookimpl
    def kopt_profile(self, evaluation: Evaluation, device: Device, probe: Probe) -> Profile | None:
        """Return one call's kernels with their times; None without a GPU or a correct candidate."""
        if device.kind != "cuda" or evaluation.status is not Status.CORRECT:
            return None
        try:
            timeline = probe.timeline(calls=self.options.calls)
        except CandidateError as error:
            return _only(evaluation, _failed(error))
        if timeline is None:
            language = evaluation.candidate.language
            return _only(evaluation, f"the backend of {language} traces no kernels; try kopt-ncu")
        return profile_of(evaluation.id, timeline)


def profile_of(candidate: str, timeline: Timeline) -> Profile:
    """Return what a trace says of one call of a candidate."""
    if not timeline.kernels:
        return Profile(profiler=_NAME, candidate=candidate, notes=(_NO_KERNELS,))
    calls = calls_of(timeline)
    if not calls:
        return Profile(
            profiler=_NAME, candidate=candidate, metrics=mean_metrics(timeline),
            notes=(_unlike(timeline),),
        )  # fmt: skip
    return Profile(
        profiler=_NAME, candidate=candidate, metrics=call_metrics(calls),
        kernels=kernel_profiles(calls), notes=tuple(_remarks(calls, timeline)),
    )  # fmt: skip


def _only(evaluation: Evaluation, note: str) -> Profile:
    return Profile(profiler=_NAME, candidate=evaluation.id, notes=(note,))


def _failed(error: CandidateError) -> str:
    return (
        f"tracing ended with {error.status}: {error.detail[:500]}; where it runs without a "
        "profiler, profile it again, or with kopt-ncu"
    )


def _unlike(timeline: Timeline) -> str:
    return (
        f"{timeline.calls} calls launched {len(timeline.kernels)} kernels in no sequence that "
        "repeats: figures are means per call, and its kernels are not listed; trace fewer calls "
        "(-o profiler.torchprof.calls=1) to see those of one"
    )


def _remarks(calls: list[tuple[KernelRun, ...]], timeline: Timeline) -> Iterable[str]:
    left = len(timeline.kernels) - len(calls) * len(calls[0])
    if left or len(calls) != timeline.calls:
        yield (
            f"calls differ: in {timeline.calls} calls this sequence of {len(calls[0])} was launched "
            f"{len(calls)} times; kernels beside it, which are left out: {left}"
        )
    copies = sum(run.name in _COPIES for run in calls[0])
    if copies:
        yield f"{copies} of the {len(calls[0])} kernels are copies or fills by the device"

"""Stage sanitizer: whether an instrumented build of the candidate leaves its memory, races or is undefined."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import TYPE_CHECKING, Protocol

from kopt.errors import CandidateError, WorkerError
from kopt.model.reference import Change
from kopt.model.trial import Trial
from kopt.model.values import TensorRef
from kopt.model.verification import StageResult, Status
from kopt_verify.beyond import elements, fewer_first, small_extents
from kopt_verify.origin import elements_of
from kopt_verify.stages import StageFailedError
from kopt_verify.standing import workload_of

if TYPE_CHECKING:
    from kopt.model.reference import InputSet
    from kopt.model.sanitizer import SanitizerFinding, SanitizerReport

_STAGE = "sanitizer"
_STATUS = {
    "address": Status.ILLEGAL_ACCESS, "memcheck": Status.ILLEGAL_ACCESS,
    "thread": Status.NON_DETERMINISTIC, "racecheck": Status.NON_DETERMINISTIC,
    "synccheck": Status.NON_DETERMINISTIC,
    "undefined": Status.WRONG,
}  # fmt: skip
"""What each tool's findings mean; the first in this order that has one names the outcome.

What initcheck reports is a note: reading memory that nobody wrote is no fault where it has no effect,
and whether it has one is what the poison stage decides.
"""
_NOTES: dict[str, frozenset[str]] = {
    # The instrumented build needs more memory and more stack than the one that is judged.
    "address": frozenset({
        "stack-overflow", "out-of-memory", "allocation-size-too-big", "calloc-overflow", "other",
    }),
    # What compilers define in practice, C++20 in its text, or what is no access at all.
    "undefined": frozenset({"shift-base", "bool", "enum", "nonnull-attribute", "other"}),
}  # fmt: skip
_RACES = ("data race", "heap-use-after-free")
_SHOWN = 3
_ENOUGH_ELEMENTS = {"cuda": 1 << 20}
"""Of arguments and outputs, for a device whose tools slow a kernel down a thousandfold: still several
blocks, and long enough sums for whatever is in flight at once."""
_KIND = "cuda"
"""The device whose tools keep others from measuring for long, so that any call has a limit."""
_MOST_ELEMENTS = {"cpu": 1 << 22, "cuda": 1 << 26}
"""Of a call that is instrumented: some 10 s on a GPU, on which nobody measures meanwhile."""
_MOST_OPERATIONS = {"cpu": math.inf, "cuda": 1e11}
"""The same for the operations of its products and convolutions."""


class SanitizedTrial(Trial, Protocol):
    """A trial whose candidate can be run under sanitizers."""

    def sanitize(self, inputs: InputSet) -> SanitizerReport | None:
        """Run one call of an instrumented build; None where the backend has none."""
        ...


@contextmanager
def small_inputs(trial: Trial, inputs: InputSet) -> Iterator[list[InputSet]]:
    """Lend inputs that take a sanitizer less long, in the order to be tried.

    Smaller ones, then fewer of the first axis, then ``inputs`` themselves: a kernel may be made for
    one shape, and the reference may mean nothing in another.
    """
    reference = trial.reference
    enough = _ENOUGH_ELEMENTS.get(reference.device.kind, 0)
    workload = inputs.workload
    small = small_extents(reference, workload, enough=enough)
    wanted = [small, fewer_first(reference, workload)] if small else []
    with ExitStack() as stack:
        lent = []
        for extents in filter(None, wanted):
            made = reference.changed_inputs(workload, trial.seed, Change("smaller", extents))
            if made is not None:
                lent.append(stack.enter_context(closing(made)))
                stack.callback(_forget, trial, made)
        yield [*lent, inputs]


def _forget(trial: Trial, inputs: InputSet) -> None:
    with suppress(CandidateError, WorkerError):  # what is being raised says how it ended
        trial.release(inputs)


def check_sanitizers(trial: SanitizedTrial, lent: Sequence[InputSet]) -> StageResult:
    """Have the candidate run under the backend's sanitizers, and judge what they reported.

    ``lent``: input sets, the next one for a candidate that refuses the one before. Raises
    StageFailedError; CandidateError passes through.
    """
    refusal = ""
    found = StageResult(stage=_STAGE, outcome="not run")
    for number, inputs in enumerate(lent):
        # The tools of a CPU keep nobody waiting: what is first there has no limit.
        if (number or trial.reference.device.kind == _KIND) and (
            large := _too_large(trial, inputs)
        ):
            evidence = refusal or large
            return StageResult(stage=_STAGE, outcome="not run", evidence=evidence)
        try:
            report = trial.sanitize(inputs)
        except CandidateError as error:
            if error.status is not Status.UNSUPPORTED:
                raise
            refusal = f"it refuses the smaller shapes that this stage needs: {error.detail}"
            found = StageResult(stage=_STAGE, outcome="not run", evidence=refusal)
            continue
        if trial.problem.mutates:
            inputs.restore()
        found = _judged(trial, inputs, report)
        if found.outcome == "pass" or report is None:
            return found
        refusal = found.evidence
    return found


def _judged(trial: Trial, inputs: InputSet, report: SanitizerReport | None) -> StageResult:
    if report is None:
        evidence = f"the backend {trial.build.backend!r} runs no sanitizer"
        return StageResult(stage=_STAGE, outcome="not run", evidence=evidence)
    integers = _has_integers(inputs)
    failures = [finding for finding in report.findings if _fails(finding, integers=integers)]
    for tool, status in _STATUS.items():
        if any(finding.tool == tool for finding in failures):
            first = sorted(failures, key=lambda finding: finding.tool != tool)
            raise StageFailedError(_STAGE, status, _told(first))
    return StageResult(
        stage=_STAGE, outcome="pass" if report.ran else "not run", evidence=_evidence(report)
    )


def _too_large(trial: Trial, inputs: InputSet) -> str:
    """Say why a call takes the tools too long; empty where it does not."""
    kind = trial.reference.device.kind
    workload = workload_of(trial.reference, inputs)
    trace = trial.reference.signature.workloads[workload].trace
    without_state = inputs.call.model_copy(update={"state": {}})
    count, own = elements_of(without_state), elements(trial.reference, workload)
    operations = sum(call.flops for call in trace) * min(1.0, count / max(own, 1))
    if count <= _MOST_ELEMENTS.get(kind, 0) and operations <= _MOST_OPERATIONS.get(kind, 0):
        return ""
    many = f"{count:.2g} elements" + (f" and {operations:.2g} operations" if operations else "")
    return f"inputs that it takes have {many}, too many for the tools"


def _fails(finding: SanitizerFinding, *, integers: bool) -> bool:
    """Whether a finding costs the candidate its verdict; the others are notes."""
    if finding.tool == "thread":  # deadlocks that might be and threads left over are notes
        return finding.kind.startswith(_RACES)
    if finding.kind == "signed-integer-overflow":
        # In arithmetic on the problem's own integers the reference wraps too; elsewhere it is an
        # index that went wrong.
        return not integers
    return finding.tool in _STATUS and finding.kind not in _NOTES.get(finding.tool, ())


def _has_integers(inputs: InputSet) -> bool:
    call = inputs.call
    values = [*(item.value for item in call.arguments), *call.state.values(), *call.outputs]
    return any(isinstance(value, TensorRef) and "int" in value.dtype for value in values)


def _evidence(report: SanitizerReport) -> str:
    noted = {finding.tool for finding in report.findings}
    clean = [tool for tool in report.ran if tool not in noted]
    said = [f"{', '.join(clean)}: clean"] if clean else []
    if report.findings:
        said.append(f"noted: {_told(report.findings)}")
    said += [
        f"{', '.join(tools)} not run: {reason}" for reason, tools in _by_reason(report).items()
    ]
    return "; ".join(said) or "no tool was run"


def _by_reason(report: SanitizerReport) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = {}
    for tool, reason in report.skipped.items():
        reasons.setdefault(reason, []).append(tool)
    return reasons


def _told(findings: tuple[SanitizerFinding, ...] | list[SanitizerFinding]) -> str:
    told = [
        f"{finding.tool}: {finding.kind}"
        + (f" in line {finding.line}" if finding.line else "")
        + f" ({finding.message})"
        for finding in findings[:_SHOWN]
    ]
    more = len(findings) - _SHOWN
    return "; ".join(told) + (f" and {more} more" if more > 0 else "")

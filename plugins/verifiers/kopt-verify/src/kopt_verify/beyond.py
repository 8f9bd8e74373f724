"""One look at a candidate on inputs that its problem does not have: right, refused, or wrong."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from math import prod
from types import TracebackType
from typing import TYPE_CHECKING, Literal

from kopt.errors import CandidateError
from kopt.model.verification import Status
from kopt_verify.accuracy import compare
from kopt_verify.conditioning import lenient_yardsticks
from kopt_verify.infinities import settled
from kopt_verify.stages import StageFailedError, smoke
from kopt_verify.standing import fits, taken

if TYPE_CHECKING:
    from kopt.model.problem import WorkloadSignature
    from kopt.model.reference import Change, InputSet, Reference
    from kopt.model.trial import Trial

_GARBAGE = 0xFF
_LOUD = {
    Status.LAUNCH_FAILED, Status.UNSUPPORTED, Status.PARSE_ERROR, Status.COMPILE_ERROR,
    Status.CRASHED, Status.OOM,
}  # fmt: skip
"""Ends that nobody takes for a result: an exception, an abort, no memory."""
_CALM = {Status.LAUNCH_FAILED, Status.UNSUPPORTED, Status.PARSE_ERROR, Status.COMPILE_ERROR}
"""Those after which a process may well be sound: a kernel that refuses a shape raises an exception."""
_ASKED_AGAIN = 2
_MOST_ELEMENTS = {"cpu": 1 << 22, "cuda": 1 << 24}
_ENOUGH_ELEMENTS = 1 << 14
"""What a look at values is made with where the workload is large: long sums of strained values differ
by more than the rule allows for, from one honest order of summation to another."""
_FEWER_ELEMENTS = 1 << 18
"""About what inputs and outputs have where the first axis alone is made shorter."""
_MOST_FEWER = {"cpu": 1 << 22, "cuda": 1 << 26}
_SMALLEST = 32
_PRIMES = (17, 37, 67, 131, 257, 521, 1031, 2053, 4099)
_SMALLER = (2, 3, 5, 7, 11, 13, 19, 23, 29, 31, 43, 53, 89, 107, 173, 211, 347, 691)
"""What extents that would give too many elements are made instead, and the primes above."""


@dataclass(frozen=True)
class Look:
    """What a candidate did on changed inputs."""

    change: str
    kind: Literal["right", "refused", "wrong"]
    said: str = ""
    status: Status = Status.WRONG
    """Where it is wrong."""


class Beyond:
    """Looks at one candidate, in a process where a crash costs nothing. Use it as a context."""

    def __init__(self, trial: Trial, workload: str) -> None:
        self._trial, self.workload = trial, workload
        self._stack = ExitStack()
        self._twin: Trial | None = None
        self._refused = False
        """Whether the process that is alive refused an earlier look."""
        self._believed: list[Change] = []
        """What a process refused that had refused before."""

    def __enter__(self) -> Beyond:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def look(
        self,
        change: Change,
        seed: int,
        *,
        fault: Callable[[Trial, InputSet, Change], str] | None = None,
    ) -> Look | None:
        """Run on changed inputs and judge; None where the reference has no result for them.

        ``fault``: what finds fault with the results, instead of ``strained_fault``. A process that refused something is asked again. But what is wrong in it, or its own shape
        refused, is looked at again in a fresh one.
        """
        inputs = self._trial.reference.changed_inputs(self.workload, seed, change)
        if inputs is None:
            return None
        again, used = self._refused, self._twin is not None
        with closing(inputs):
            found = self._judged(inputs, change, fault or strained_fault)
        own = not change.extents
        if (again and found.kind == "wrong") or (used and own and found.kind == "refused"):
            self._end_twin()
            return self.look(change, seed, fault=fault)
        if again and found.kind == "refused" and change.layout == "contiguous":
            self._believed.append(change)
        return found

    def asked_again(self, seed: int) -> Iterator[Look]:
        """Yield looks in fresh processes at some of what was refused in one that refused before.

        Which ones is drawn from the secret ``seed``. Where an answer is another one, what a process
        refuses depends on what it was asked before: all are asked again then.
        """
        believed, self._believed = self._believed, []
        drawn = random.Random(f"{seed}, asked again").sample(believed, len(believed))
        depends = False
        for number, change in enumerate(drawn):
            if number >= _ASKED_AGAIN and not depends:
                return
            self._end_twin()
            found = self.look(change, seed)
            if found is not None:
                depends = depends or found.kind != "refused"
                yield found

    def _judged(
        self, inputs: InputSet, change: Change, find: Callable[[Trial, InputSet, Change], str]
    ) -> Look:
        name = change.name
        try:
            twin = self.twin()
            twin.prepare(inputs)
            inputs.poison(_GARBAGE)
            claim = twin.run(inputs)
            twin.release(inputs)  # what it left lies in the judge's memory
            smoke(claim, inputs)
        except StageFailedError as failure:
            return Look(name, "wrong", failure.evidence)
        except CandidateError as error:
            said = error.detail.strip().splitlines()[-1][:200] if error.detail.strip() else ""
            kind: Literal["refused", "wrong"] = "refused" if error.status in _LOUD else "wrong"
            self._refused = error.status in _CALM and self._twin is not None and twin.settle(inputs)
            if not self._refused:
                self._end_twin()
            return Look(name, kind, f"{error.status}: {said}", error.status)
        if hurt := inputs.canaries_hurt():
            said = f"it wrote outside of {', '.join(sorted(hurt))}"
            return Look(name, "wrong", said, Status.ILLEGAL_ACCESS)
        fault = find(self._trial, inputs, change)
        return Look(name, "wrong", fault) if fault else Look(name, "right")

    def twin(self, *, sound: bool = False) -> Trial:
        """Return the candidate in the other process, which is started where it is not alive.

        ``sound``: one that refused nothing before.
        """
        if sound and self._refused:
            self._end_twin()
        if self._twin is None:
            self._twin = self._stack.enter_context(self._trial.twin())
        return self._twin

    def _end_twin(self) -> None:
        self._stack.close()
        self._twin, self._refused = None, False


def strained_fault(trial: Trial, inputs: InputSet, change: Change) -> str:
    """Return what is wrong with what a call left for changed inputs, or an empty text.

    By the accuracy rule, with allowance for the inputs' own rounding. Inputs that were changed in
    place are restored.
    """
    reference, results = trial.reference, taken(trial, inputs)
    if change.content.startswith("infinite"):
        results = settled(reference, inputs, results)
    names = [name for name, _ in inputs.results]
    parts = lenient_yardsticks(reference, inputs)
    found = compare(names, results, parts, trial.problem.tolerance.factor)
    return "; ".join(each.evidence for each in found if not each.passed)


def best_distribution(reference: Reference) -> str:
    """Return the one of the first two distributions that tells more results apart."""
    return reference.distributions[:2][-1]


def most_elements(reference: Reference, workload: str) -> int:
    """Return how many elements of inputs and outputs a look may have."""
    most = _MOST_ELEMENTS.get(reference.device.kind, 1 << 20)
    return most if fits(reference, workload, 1) else most // 4


def elements(reference: Reference, workload: str) -> int:
    """Return how many elements the arguments and outputs of a workload have."""
    signature = reference.signature.workloads[workload]
    tensors = [a.tensor for a in signature.arguments if a.tensor and a.kind == "tensor"]
    return sum(tensor.elements for tensor in [*tensors, *signature.outputs])


def small_extents(reference: Reference, workload: str, *, enough: int = 0) -> dict[str, int]:
    """Return smaller extents for a look at values, or none where the workload's own are small.

    The largest is halved, again and again, as long as it is even: a kernel that is made for
    multiples of a vector or a block then still takes them. ``enough``: how many elements arguments
    and outputs may have, where it is another number than for values; where that is not reached,
    extents that are as small from the start (of batches, as a rule) are halved too, down to 2.
    """
    if elements(reference, workload) <= (enough or most_elements(reference, workload)):
        return {}
    signature = reference.signature.workloads[workload]
    now = changeable(reference, workload)
    extents = dict(now)
    for few, least in ((list(now), _SMALLEST), ([n for n in now if now[n] <= _SMALLEST], 2)):
        while elements_at(signature, now, extents) > (enough or _ENOUGH_ELEMENTS):
            even = [name for name in few if not extents[name] % 2 and extents[name] > least]
            if not even:
                break
            extents[max(even, key=lambda each: extents[each])] //= 2
        if not enough:
            break
    return extents


def fewer_first(reference: Reference, workload: str) -> dict[str, int]:
    """Return a smaller extent for the first axis alone, or none where that leaves too much.

    Many a kernel that is made for one shape takes another batch.
    """
    signature, kind = reference.signature.workloads[workload], reference.device.kind
    now = changeable(reference, workload)
    name, extent = next(iter(now.items()), ("", 0))
    total = elements(reference, workload)
    for few in (max(2, extent * _FEWER_ELEMENTS // max(total, 1)), 1):
        fits = few < extent and elements_at(signature, now, {name: few}) <= _MOST_FEWER[kind]
        if fits:
            return {name: few}
    return {}


def changeable(reference: Reference, workload: str) -> dict[str, int]:
    """Return the extents that may be others: not those that parameters and buffers have too.

    All of them where nothing else is left.
    """
    extents = reference.extents(workload)
    state = [
        a.tensor.shape for a in reference.signature.workloads[workload].arguments
        if a.tensor and a.kind == "state"
    ]  # fmt: skip
    fixed = {extent for shape in state for extent in shape}
    return {n: extent for n, extent in extents.items() if extent not in fixed} or dict(extents)


def elements_at(
    signature: WorkloadSignature, now: Mapping[str, int], changed: Mapping[str, int]
) -> int:
    """Return about how many elements arguments and outputs have at other extents than ``now``.

    Every axis as long as an extent is taken to be that one, and outputs to grow as arguments do.
    """
    longer = {now[name]: 0 for name in changed}
    for name, extent in changed.items():
        longer[now[name]] = max(longer[now[name]], extent)
    shapes = [a.tensor.shape for a in signature.arguments if a.tensor and a.kind == "tensor"]
    before = sum(map(prod, shapes))
    after = sum(prod(longer.get(extent, extent) for extent in shape) for shape in shapes)
    outputs = sum(tensor.elements for tensor in signature.outputs)
    return after + outputs * after // max(before, 1)


def room_for_primes(
    signature: WorkloadSignature, extents: Mapping[str, int], *, enough: int, total: int
) -> int:
    """Return how many elements looks at other extents may have: ``enough``, if primes fit there.

    Extents that stay as they are (those of parameters) may leave too much for that. Then it is as
    little more as does, at most ``total``, the workload's own.
    """
    most = enough
    while most < total:

        def fits(changed: dict[str, int], most: int = most) -> bool:
            return elements_at(signature, extents, changed) <= most

        if fits(primes(dict(extents), fits)):
            return most
        most *= 4
    return max(enough, total)


def primes(
    extents: dict[str, int], fits: Callable[[dict[str, int]], bool] = lambda changed: True
) -> dict[str, int]:
    """Return other extents, prime and in the same order; none is larger than 8 times the old.

    ``fits``: whether they may be so large; else the largest are made smaller, as far as that goes:
    an extent may be that of several axes.
    """
    order = sorted(extents, key=lambda name: (extents[name], name))
    found = {
        name: next((p for p in reversed(_PRIMES[: place + 3]) if p <= 8 * extents[name]), _PRIMES[0])
        for place, name in enumerate(order)
    }  # fmt: skip
    smaller = sorted({*_PRIMES, *_SMALLER})
    while not fits(found):
        largest = max(order, key=lambda name: (found[name], extents[name]))
        below = [p for p in smaller if p < found[largest] and p not in found.values()]
        if not below:
            break
        found[largest] = below[-1]
    return dict(zip(order, sorted(found.values()), strict=True))


def resizings(
    extents: dict[str, int],
    *,
    room: float,
    fits: Callable[[dict[str, int]], bool] = lambda changed: True,
) -> Iterator[dict[str, int]]:
    """Yield other extents that fit, the most telling first.

    ``room``: by what factor the elements may grow; where that is below 1, extents that are not the
    ones looked at become small primes.
    """
    yield from filter(fits, _resizings(extents, primes(extents, fits), room))


def _resizings(
    extents: dict[str, int], small: dict[str, int], room: float
) -> Iterator[dict[str, int]]:
    base = extents if room >= 1.2 else small
    if room >= 1.2:
        yield {name: extent - 1 for name, extent in extents.items()}
    yield small
    for name, extent in extents.items():
        if base is small:
            yield small | {name: extent - 1}
        yield small | {name: 1}
        yield small | {name: extent + 1}
        if room >= 1.6 or base is small:
            yield (small if base is small else extents) | {name: extent * 3 // 2 | 1}

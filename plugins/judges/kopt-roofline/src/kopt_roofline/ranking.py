"""From rules that hold to findings, what costs most first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kopt.model.diagnosis import Finding
from kopt.model.metrics import CALL_METRICS, KERNEL_METRICS
from kopt_roofline.merging import Merged, MergedKernel, over_kernels
from kopt_roofline.rules import Rule, Rulebook
from kopt_roofline.scope import Scope

MOST = 1000.0
"""No gain beyond this is predicted: estimates that large say no more than `much`."""


@dataclass(frozen=True)
class Ranked:
    """A finding and what orders it."""

    finding: Finding
    raw: float
    """The predicted factor before it was held to what the call's bound allows."""
    place: int
    """Of its rule in the table."""

    @property
    def order(self) -> tuple[float, float, int]:
        """Sorts the largest gain first; then what it would be without the bound; then the table."""
        gain = self.finding.gain
        return (-(gain or 0.0), -round(self.raw, 2), self.place)


@dataclass(frozen=True)
class Ranking:
    """What was found, and what could not be asked."""

    findings: tuple[Finding, ...]
    missing: tuple[str, ...]
    places: tuple[int, ...]
    """Of each finding's rule in the table."""


def rank(book: Rulebook, merged: Merged, facts: Mapping[str, float], device: str) -> Ranking:
    """Ask every rule of each kernel and of the call.

    :param device: ``cuda`` or ``cpu``.
    """
    call = Scope({**facts, **over_kernels(merged.kernels), **merged.call}, book.values)
    asked = list(_asked(book, merged, facts, device, call))
    missing: dict[str, None] = {}
    held: list[Ranked] = []
    for place, rule, kernel, scope in asked:
        verdict = rule.holds(scope)
        if verdict:
            held.append(_ranked(place, rule, kernel, scope, call))
        elif verdict is None and not rule.fallback:
            missing |= dict.fromkeys(rule.lacks(scope))
    kept = _kept(book, held)
    named = (name for name in missing if name in CALL_METRICS or name in KERNEL_METRICS)
    return Ranking(
        findings=tuple(each.finding for each in kept),
        missing=tuple(named),
        places=tuple(each.place for each in kept),
    )


def _asked(
    book: Rulebook, merged: Merged, facts: Mapping[str, float], device: str, call: Scope
) -> Iterator[tuple[int, Rule, MergedKernel | None, Scope]]:
    for place, rule in book.of(device, "call"):
        yield place, rule, None, call
    for kernel in merged.kernels or [MergedKernel("", {}, share=1.0)]:
        scope = Scope({**facts, **merged.call, **kernel.metrics}, book.values)
        for place, rule in book.of(device, "kernel"):
            yield place, rule, kernel, scope


def _kept(book: Rulebook, held: list[Ranked]) -> list[Ranked]:
    """Sort; of one bottleneck and kernel keep the largest; what stands alone, or falls back."""
    held = sorted(held, key=lambda each: each.order)
    if alone := [each for each in held if book.rules[each.place].alone]:
        return alone[:1]
    found = [each for each in held if not book.rules[each.place].fallback]
    first: dict[tuple[str, str], Ranked] = {}
    for each in found or sorted(held, key=lambda each: each.place)[:1]:
        first.setdefault((each.finding.bottleneck, each.finding.kernel), each)
    return list(first.values())


def _ranked(
    place: int, rule: Rule, kernel: MergedKernel | None, scope: Scope, call: Scope
) -> Ranked:
    own = scope.first(rule.gain)
    raw = None if own is None else _over_call(max(1.0, own), kernel, scope, call)
    finding = Finding(
        bottleneck=rule.name,
        kernel=kernel.name if kernel else "",
        evidence=evidence(rule, kernel, scope),
        explanation=explain(rule, scope),
        gain=None if raw is None else _held(raw, call),
        moves=rule.moves,
        risk=rule.risk,
        source=rule.source,
    )
    return Ranked(finding, raw or 0.0, place)


def _over_call(factor: float, kernel: MergedKernel | None, scope: Scope, call: Scope) -> float:
    """Return a kernel's factor as one on its call (Amdahl's law).

    A launch takes no less than an empty one, and time in which no kernel runs does not shrink.
    """
    if kernel is None:
        return factor
    floor, duration = scope.get("overhead_us"), kernel.metrics.get("duration_us")
    if floor and duration:
        factor = min(factor, max(1.0, duration / floor))
    share = min(1.0, kernel.share) * (1 - _idle(call))
    return 1 / (1 - share * (1 - 1 / factor))


def _idle(call: Scope) -> float:
    span = call.get("span_us", 0.0)
    return min(1.0, max(0.0, call.get("idle_us", 0.0) / span)) if span > 0 else 0.0


def _held(factor: float, call: Scope) -> float:
    """Return the factor held to what the bound on the call leaves, to three decimals."""
    headroom = call.get("headroom")
    if headroom is not None:
        factor = min(factor, headroom)
    return round(min(MOST, max(1.0, factor)), 3)


def evidence(rule: Rule, kernel: MergedKernel | None, scope: Scope) -> tuple[str, ...]:
    """Return a rule's metrics with their values, as far as they are known."""
    known = [f"{name} = {_quoted(name, scope[name])}" for name in rule.evidence if name in scope]
    if kernel is not None and kernel.launches > 1:
        known.append(f"{kernel.launches} launches alike")
    return tuple(known)


def explain(rule: Rule, scope: Scope) -> str:
    """Return a rule's explanation with its values filled in."""
    return rule.explanation.format_map(_Quotes(scope))


class _Quotes(dict[str, str]):
    def __init__(self, scope: Scope) -> None:
        super().__init__()
        self._scope = scope

    def __missing__(self, name: str) -> str:
        return number(self._scope[name]) if name in self._scope else "n/a"


def number(value: float) -> str:
    """Return a figure for people: whole numbers as such, others to three digits."""
    if abs(value) >= 1e15:
        return f"{value:.3g}"
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _quoted(name: str, value: float) -> str:
    info = CALL_METRICS.get(name) or KERNEL_METRICS.get(name)
    unit = info.unit if info else ""
    return f"{number(value)} {unit}".rstrip()

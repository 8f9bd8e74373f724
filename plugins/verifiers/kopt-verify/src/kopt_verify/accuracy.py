"""The accuracy rule: a candidate's error against float64, measured by the reference's own.

    rms(y - y64) <= max(k * rms(y_ref - y64), 16 u * rms(y64))
    max|y - y64| <= max(8 * max|y_ref - y64|, 64 u * max|y64|)

k = 2, or 3 for half types or fewer than 1000 elements; u is the unit roundoff of the output's type
(for half types the factors 16 and 64 become 2 and 8). See docs/explanation/verification.

On inputs that are ill-conditioned on purpose a kernel may also be as wrong as the exact result is
where the inputs are off by one rounding: 64 times that in rms (512 times for fewer than 1000
elements), and 4 times as much at most. The idea is mixed forward-backward stability (N. Higham,
Accuracy and Stability of Numerical Algorithms, 1.5); the factors are ours, large enough for a sum
of some hundred equal terms, or of some thousand that cancel, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from kopt_torch.tensors import all_finite

if TYPE_CHECKING:
    from kopt_verify.ties import Tie

_UNIT = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.float16: 2.0**-11,
         torch.bfloat16: 2.0**-8}  # fmt: skip
_CHUNK = {"cpu": 1 << 19, "cuda": 1 << 26}
"""Elements compared at a time: what stays in a CPU's cache, what fills a GPU."""
_SMALL = 1000
_SLACK = 64.0
_OVERFLOW = 0.998
"""Of a type's largest value: what is above may round to infinity."""


@dataclass(frozen=True)
class Comparison:
    """One result against the oracle."""

    passed: bool
    evidence: str
    ratio: float | None
    """rms error over the reference's rms error; None where the reference is exact."""


@dataclass(frozen=True)
class Errors:
    """How far values are from the oracle, over the elements that are finite in both."""

    square: float = 0.0
    """Sum of squared distances."""
    largest: float = 0.0
    count: int = 0

    @property
    def rms(self) -> float:
        """Root of the mean square."""
        return (self.square / self.count) ** 0.5 if self.count else 0.0

    def plus(self, other: Errors) -> Errors:
        """Return the errors over both sets of elements."""
        return Errors(
            self.square + other.square, max(self.largest, other.largest), self.count + other.count
        )


class Yardstick:
    """What (rows of) an output should be, and the reference's own distance from the oracle."""

    def __init__(
        self,
        reference: torch.Tensor,
        oracle: torch.Tensor,
        nearby: Sequence[torch.Tensor] = (),
        tie: Tie | None = None,
    ) -> None:
        """All of one shape; ``oracle`` is float64 where ``reference`` is floating.

        ``nearby``: what the oracle says of inputs that are off by one rounding, in several ways. ``tie``: what the
        elements point into, where they are positions.
        """
        self.dtype = reference.dtype
        self.oracle = oracle.flatten()
        self.exact = None if reference.dtype.is_floating_point else reference
        self.tie = tie
        self.special: torch.Tensor | None = None
        self.own = self.scale = self.slack = Errors()
        if self.exact is None:
            self._look(reference.flatten())
            for near in nearby:
                self.slack = self.slack.plus(errors(near.flatten(), self.oracle))

    def differing(self, result: torch.Tensor) -> int:
        """Count the elements of an exact result that are wrong."""
        assert self.exact is not None
        if self.tie is not None:
            return self.tie.differing(result, self.exact)
        return int((result.flatten() != self.exact.flatten()).sum().item())

    def _look(self, reference: torch.Tensor) -> None:
        self.own = errors(reference, self.oracle)
        zero = torch.zeros((), dtype=torch.float64, device=self.oracle.device)
        self.scale = errors(self.oracle, zero.expand_as(self.oracle))
        if not (all_finite(reference) and all_finite(self.oracle)):
            self.special = reference


def errors(values: torch.Tensor, oracle: torch.Tensor) -> Errors:
    """Return the distances of flat ``values`` from ``oracle``, chunk by chunk."""
    chunk = _CHUNK.get(values.device.type, 1 << 20)
    found = Errors()
    for start in range(0, values.numel(), chunk):
        part = slice(start, start + chunk)
        distance = (values[part].double() - oracle[part]).abs_()
        most = float(distance.max())
        if not most < float("inf"):  # also NaN: leave out what is not finite
            distance = distance[torch.isfinite(distance)]
            most = float(distance.max()) if distance.numel() else 0.0
        found = found.plus(Errors(float(torch.dot(distance, distance)), most, distance.numel()))
    return found


class Judgement:
    """One output's verdict, gathered over slices of rows."""

    def __init__(self, name: str, factor: float | None) -> None:
        self._name, self._factor = name, factor
        self._found = self._own = self._scale = self._slack = Errors()
        self._dtype: torch.dtype | None = None
        self._wrong = self._total = 0
        self._misplaced = ""

    def add(self, result: torch.Tensor, yardstick: Yardstick) -> None:
        """Compare (rows of) a result: bit equality for integers, distances for floating types."""
        flat = result.flatten()
        self._total += flat.numel()
        self._dtype = yardstick.dtype
        if yardstick.exact is not None:
            self._wrong += yardstick.differing(result)
            return
        self._misplaced = self._misplaced or _misplaced(flat, yardstick)
        self._found = self._found.plus(errors(flat, yardstick.oracle))
        self._own = self._own.plus(yardstick.own)
        self._scale = self._scale.plus(yardstick.scale)
        self._slack = self._slack.plus(yardstick.slack)

    def verdict(self) -> Comparison:
        """Apply the rule to all that was added."""
        if self._dtype is None or not self._total:
            return Comparison(True, f"{self._name}: empty", None)
        if not self._dtype.is_floating_point:
            said = f"{self._name}: {self._wrong} of {self._total} elements differ (exact type)"
            return Comparison(self._wrong == 0, said, None)
        if self._misplaced:
            return Comparison(False, f"{self._name}: {self._misplaced}", None)
        return self._by_rule(self._dtype)

    def _by_rule(self, dtype: torch.dtype) -> Comparison:
        found, own, scale, slack = self._found, self._own, self._scale, self._slack
        if not found.count:
            return Comparison(True, f"{self._name}: no finite elements to compare", None)
        half, unit = dtype in (torch.float16, torch.bfloat16), _UNIT[dtype]
        k = self._factor or (3.0 if half or found.count < _SMALL else 2.0)
        loose = 8.0 * _SLACK if found.count < _SMALL else _SLACK
        rms_limit = max(
            k * own.rms,
            (2.0 if half else 16.0) * unit * scale.rms,
            loose * slack.rms,
        )
        most_limit = max(
            8.0 * own.largest,
            (8.0 if half else 64.0) * unit * scale.largest,
            4.0 * loose * slack.largest,
        )
        ratio = found.rms / own.rms if own.rms > 0.0 else None
        said = f"{self._name}: " + (
            f"{ratio:.2f}x of the reference's own rms error" if ratio is not None
            else f"rms error {found.rms:.3g} where the reference is exact"
        )  # fmt: skip
        if found.rms <= rms_limit and found.largest <= most_limit:
            return Comparison(True, said, ratio)
        limits = (
            f"; rms {found.rms:.3g} (limit {rms_limit:.3g}), largest {found.largest:.3g} (limit "
            f"{most_limit:.3g}), against values up to {scale.largest:.3g}"
        )
        return Comparison(False, said + limits, ratio)


def compare(
    names: Sequence[str],
    results: Sequence[torch.Tensor],
    yardsticks: Iterable[tuple[slice, list[Yardstick]]],
    factor: float | None,
) -> list[Comparison]:
    """Return each output's verdict; ``yardsticks`` come in slices of rows."""
    judgements = [Judgement(name, factor) for name in names]
    for rows, parts in yardsticks:
        _judge(judgements, results, rows, parts)
        del parts  # before the next slice is computed
    return [judgement.verdict() for judgement in judgements]


def _judge(
    judgements: Sequence[Judgement],
    results: Sequence[torch.Tensor],
    rows: slice,
    parts: Sequence[Yardstick],
) -> None:
    for judgement, result, yardstick in zip(judgements, results, parts, strict=True):
        judgement.add(result[rows] if result.dim() else result, yardstick)


def _misplaced(result: torch.Tensor, yardstick: Yardstick) -> str:
    """Say where NaN or infinities stand that the reference does not have, or the other way round.

    An overflow of the narrow type is the candidate's right where it is the reference's too, and
    where the exact result is so large that rounding decides.
    """
    if yardstick.special is None:
        if all_finite(result):
            return ""
        inside = yardstick.oracle.abs() < _OVERFLOW * torch.finfo(result.dtype).max
        bad = int((~torch.isfinite(result) & (inside | torch.isnan(result))).sum())
        return f"{bad} elements are NaN or infinite where the reference is finite" if bad else ""
    oracle, reference = yardstick.oracle, yardstick.special
    for label, test in (("NaN", torch.isnan), ("infinite", torch.isinf)):
        extra = test(result) & ~test(oracle) & ~test(reference)
        missing = ~test(result) & test(oracle) & test(reference)
        if label == "infinite":
            extra &= oracle.abs() < _OVERFLOW * torch.finfo(result.dtype).max
            extra |= test(result) & test(reference) & (result.sign() != reference.sign())
        if bool(extra.any()):
            return f"{int(extra.sum())} {label} elements where the reference has none (or the other sign)"
        if bool(missing.any()):
            return f"{int(missing.sum())} elements are not {label} where the reference is"
    return ""

"""The accuracy rule: a candidate's error against float64, measured by the reference's own.

    rms(y - y64) <= max(k * rms(y_ref - y64), 16 u * rms(y64))
    max|y - y64| <= max(8 * max|y_ref - y64|, 64 u * max|y64|)

k = 2, or 3 for half types or fewer than 1000 elements; u is the unit roundoff of the output's type
(for half types the factors 16 and 64 become 2 and 8). See docs/explanation/verification.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

_UNIT = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.float16: 2.0**-11,
         torch.bfloat16: 2.0**-8}  # fmt: skip
_CHUNK = {"cpu": 1 << 19, "cuda": 1 << 26}
"""Elements compared at a time: what stays in a CPU's cache, what fills a GPU."""
_SMALL = 1000


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

    rms: float
    largest: float
    count: int


class Yardstick:
    """What an output should be: the oracle's values and the reference's own distance from them."""

    def __init__(self, reference: torch.Tensor, oracle: torch.Tensor) -> None:
        """Both of one shape; ``oracle`` is float64 where ``reference`` is floating."""
        self.dtype = reference.dtype
        self.oracle = oracle.flatten()
        self.exact = None if reference.dtype.is_floating_point else reference
        self.special: torch.Tensor | None = None
        if self.exact is None:
            self._look(reference.flatten())

    def _look(self, reference: torch.Tensor) -> None:
        self.own = errors(reference, self.oracle)
        zero = torch.zeros((), dtype=torch.float64, device=self.oracle.device)
        self.scale = errors(self.oracle, zero.expand_as(self.oracle))
        finite = all(bool(torch.isfinite(part).all()) for part in (reference, self.oracle))
        if not finite:
            self.special = reference


def errors(values: torch.Tensor, oracle: torch.Tensor) -> Errors:
    """Return rms and largest distance of flat ``values`` from ``oracle``, chunk by chunk."""
    chunk = _CHUNK.get(values.device.type, 1 << 20)
    square, largest, count = 0.0, 0.0, 0
    for start in range(0, values.numel(), chunk):
        part = slice(start, start + chunk)
        distance = (values[part].double() - oracle[part]).abs_()
        most = float(distance.max())
        if not most < float("inf"):  # also NaN: leave out what is not finite
            distance = distance[torch.isfinite(distance)]
            most = float(distance.max()) if distance.numel() else 0.0
        square += float(torch.dot(distance, distance))
        largest = max(largest, most)
        count += distance.numel()
    return Errors((square / count) ** 0.5 if count else 0.0, largest, count)


def compare(
    name: str, result: torch.Tensor, yardstick: Yardstick, factor: float | None
) -> Comparison:
    """Judge one output: bit equality for integers, the rule above for floating types."""
    if yardstick.exact is not None:
        wrong = int((result != yardstick.exact).sum().item())
        said = f"{name}: {wrong} of {result.numel()} elements differ (exact type)"
        return Comparison(wrong == 0, said, None)
    flat = result.flatten()
    misplaced = _misplaced(flat, yardstick)
    if misplaced:
        return Comparison(False, f"{name}: {misplaced}", None)
    return _by_rule(name, errors(flat, yardstick.oracle), yardstick, factor)


def _misplaced(result: torch.Tensor, yardstick: Yardstick) -> str:
    """Say where NaN or infinities stand that the reference does not have, or the other way round.

    An overflow of the narrow type is the candidate's right where it is the reference's too.
    """
    if yardstick.special is None:
        bad = int(result.numel() - int(torch.isfinite(result).sum()))
        return f"{bad} elements are NaN or infinite where the reference is finite" if bad else ""
    oracle, reference = yardstick.oracle, yardstick.special
    for label, test in (("NaN", torch.isnan), ("infinite", torch.isinf)):
        extra = test(result) & ~test(oracle) & ~test(reference)
        missing = ~test(result) & test(oracle) & test(reference)
        if label == "infinite":
            extra |= test(result) & test(reference) & (result.sign() != reference.sign())
        if bool(extra.any()):
            return f"{int(extra.sum())} {label} elements where the reference has none (or the other sign)"
        if bool(missing.any()):
            return f"{int(missing.sum())} elements are not {label} where the reference is"
    return ""


def _by_rule(
    name: str, found: Errors, yardstick: Yardstick, factor: float | None
) -> Comparison:
    if not found.count:
        return Comparison(True, f"{name}: no finite elements to compare", None)
    half = yardstick.dtype in (torch.float16, torch.bfloat16)
    unit = _UNIT[yardstick.dtype]
    own, scale = yardstick.own, yardstick.scale
    k = factor if factor is not None else (3.0 if half or found.count < _SMALL else 2.0)
    rms_limit = max(k * own.rms, (2.0 if half else 16.0) * unit * scale.rms)
    most_limit = max(8.0 * own.largest, (8.0 if half else 64.0) * unit * scale.largest)
    ratio = found.rms / own.rms if own.rms > 0.0 else None
    said = f"{ratio:.2f}x of the reference's own rms error" if ratio is not None else (
        f"rms error {found.rms:.3g} where the reference is exact"
    )
    if found.rms <= rms_limit and found.largest <= most_limit:
        return Comparison(True, f"{name}: {said}", ratio)
    return Comparison(
        False,
        f"{name}: {said}; rms {found.rms:.3g} (limit {rms_limit:.3g}), largest {found.largest:.3g} "
        f"(limit {most_limit:.3g}), against values up to {scale.largest:.3g}",
        ratio,
    )

"""What values an argument may have, as far as two draws by a problem's own code tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch

Kind = Literal["free", "labels", "constant", "probabilities", "log-probabilities"]

_LABELS = 8
"""A tensor with so few different values holds labels, not measurements."""
_ENOUGH = 32
"""Elements below which a tensor tells nothing about the kind of its values."""
_LOOKED_AT = 1 << 16
_ROWS = 1 << 10
_AT_A_TIME = 1 << 24
"""Elements that are computed with together."""
_ZEROS = 0.01
"""Share of zeros from which on they are structure: a triangle, a band, a mask."""
_SUM = 1e-3


@dataclass(frozen=True)
class Domain:
    """What a floating argument's values have in common over the draws that were looked at."""

    kind: Kind = "free"
    low: float = float("-inf")
    high: float = float("inf")
    symmetric: bool = False
    """Its last two dimensions are a symmetric matrix."""
    zeros: bool = False
    """Some of its elements are always zero, or many are: zeros stay where they were drawn."""

    def words(self) -> str:
        """Say what is kept, for a person; empty where nothing is."""
        said: list[str] = []
        match self.kind:
            case "labels":
                return "has few different values, or whole numbers only: kept as drawn"
            case "constant":
                return "is the same whatever the seed: kept as drawn"
            case "probabilities" | "log-probabilities":
                said.append(f"{self.kind} along the last dimension")
        if self.symmetric:
            said.append("symmetric")
        if self.zeros:
            said.append("zeros stay zeros")
        return ", ".join(said)


@dataclass(frozen=True)
class _Look:
    """What one draw of a tensor shows."""

    low: float
    high: float
    labels: bool
    sums: Kind
    symmetric: bool
    zeros: bool
    sample: tuple[float, ...]


def infer(first: Mapping[str, _Look], second: Mapping[str, _Look]) -> dict[str, Domain]:
    """Return the domain of each tensor that was looked at in both draws, by name."""
    return {name: _both(look, second[name]) for name, look in first.items() if name in second}


def look_at(named: Iterable[tuple[str, torch.Tensor]]) -> dict[str, _Look]:
    """Return what each floating tensor shows; nothing of the tensors is kept."""
    return {
        name: _look(tensor) for name, tensor in named
        if tensor.dtype.is_floating_point and tensor.numel()
    }  # fmt: skip


def _both(one: _Look, other: _Look) -> Domain:
    kind: Kind = "free"
    if one.sample == other.sample:
        kind = "constant"
    elif one.labels and other.labels:
        kind = "labels"
    elif one.sums == other.sums:
        kind = one.sums
    return Domain(
        kind=kind, low=min(one.low, other.low), high=max(one.high, other.high),
        symmetric=one.symmetric and other.symmetric, zeros=one.zeros and other.zeros,
    )  # fmt: skip


def _look(tensor: torch.Tensor) -> _Look:
    low, high = (float(end) for end in torch.aminmax(tensor))
    flat = tensor.reshape(-1)
    part = flat[:: max(1, flat.numel() // _LOOKED_AT)].float()
    square = tensor.dim() >= 2 and tensor.shape[-1] == tensor.shape[-2] > 1
    matrix = tensor.reshape(-1, *tensor.shape[-2:])[0] if square else None
    return _Look(
        low=low, high=high, labels=_holds_labels(part), sums=_sums(tensor, low, high),
        symmetric=matrix is not None and bool(torch.equal(matrix, matrix.mT)),
        zeros=part.numel() >= _ENOUGH and float((part == 0).float().mean()) >= _ZEROS,
        sample=tuple(part[:64].tolist() + part[-64:].tolist()),
    )  # fmt: skip


def _holds_labels(part: torch.Tensor) -> bool:
    if part.numel() < _ENOUGH:
        return False
    few = torch.unique(part).numel() <= _LABELS
    return few or bool((part == part.round()).all())


def _sums(tensor: torch.Tensor, low: float, high: float) -> Kind:
    """Whether every row sums to one, or its exponentials do."""
    if tensor.dim() == 0 or tensor.shape[-1] < 2:
        return "free"
    rows = tensor.reshape(-1, tensor.shape[-1])[:_ROWS]
    if low >= 0.0 and bool(((_summed(rows) - 1).abs() < _SUM).all()):
        return "probabilities"
    if high <= 0.0 and bool((_summed(rows, torch.exp).log().abs() < _SUM).all()):
        return "log-probabilities"
    return "free"


def _summed(
    rows: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor] = lambda values: values
) -> torch.Tensor:
    """Return each row's sum in float64, of what ``change`` makes of its elements."""
    sums = torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
    for part in rows.split(max(1, _AT_A_TIME // len(rows)), dim=-1):  # few rows may be long
        sums += change(part.double()).sum(-1)
    return sums

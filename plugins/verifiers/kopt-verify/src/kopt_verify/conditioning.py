"""Yardsticks for inputs on which a rounding matters: how far the exact result moves with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kopt_verify.accuracy import Yardstick, compare
from kopt_verify.standing import workload_of
from kopt_verify.tf32 import Tf32Mode
from kopt_verify.ties import ties_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kopt.model.reference import InputSet, Reference
    from kopt_verify.accuracy import Comparison


_FEW = 1000
"""Outputs of fewer elements: the reference's own error may be small by luck."""
_MOST_ELEMENTS = 1 << 26
_PIECE = 1 << 26
"""Elements that are looked at together."""
_DRAWS = 8
"""Ways of rounding for outputs of few elements: one alone may change them little, by luck."""


class SecondLook:
    """Compares results for one content of an input set, by the rule that candidates meet."""

    def __init__(self, reference: Reference, inputs: InputSet) -> None:
        self._reference, self._inputs = reference, inputs
        self._lenient: list[tuple[slice, list[Yardstick]]] = []

    def compare(
        self, results: Sequence[torch.Tensor], yardsticks: Iterable[tuple[slice, list[Yardstick]]]
    ) -> list[Comparison]:
        """Compare; where an output of few elements fails, allow for the inputs' own rounding."""
        names = [name for name, _ in self._inputs.results]
        factor = self._reference.problem.tolerance.factor
        found = compare(names, results, yardsticks, factor)
        few = all(
            comparison.passed or result.numel() < _FEW
            for comparison, result in zip(found, results, strict=True)
        )
        if all(comparison.passed for comparison in found) or not few:
            return found
        if sum(tensor.numel() for tensor in self._inputs.tensors.values()) > _MOST_ELEMENTS:
            return found
        self._lenient = self._lenient or list(lenient_yardsticks(self._reference, self._inputs))
        return compare(names, results, self._lenient, factor)


def compare_twice(
    reference: Reference,
    inputs: InputSet,
    results: Sequence[torch.Tensor],
    yardsticks: Iterable[tuple[slice, list[Yardstick]]],
) -> list[Comparison]:
    """Compare results once: see ``SecondLook``."""
    return SecondLook(reference, inputs).compare(results, yardsticks)


def lenient_yardsticks(
    reference: Reference, inputs: InputSet
) -> Iterator[tuple[slice, list[Yardstick]]]:
    """Yield what all rows should be, also allowing for what one rounding of the inputs changes.

    Where an output is ill-conditioned, or has so few elements that the reference may be exact by
    luck, its own error says little about what an honest kernel can reach. Where the reference's
    convolutions are done in TF32 at the workload's own shapes, they may be so at others too, where
    the library is free to choose an exact algorithm.
    """
    yield slice(None), list(_lenient(reference, inputs))


def _lenient(reference: Reference, inputs: InputSet) -> Iterator[Yardstick]:
    oracle = reference.oracle(inputs)
    few = any(exact.numel() < _FEW for exact in oracle)
    nearby = [
        reference.oracle_with(inputs, *_rounded_otherwise(reference, inputs, seed))
        for seed in range(_DRAWS if few else 1)
    ]
    ties = ties_of(reference, inputs)
    expected = reference.expected(inputs)
    coarse = _in_tf32(reference, inputs) or expected
    answers = zip(expected, coarse, oracle, *nearby, strict=True)
    for number, (usual, rounded, exact, *near) in enumerate(answers):
        found = Yardstick(usual, exact, near, ties.get(number))
        if rounded is not usual:
            other = Yardstick(rounded, exact, near, ties.get(number))
            found = max(found, other, key=lambda each: each.own.rms)
        yield found


def _in_tf32(reference: Reference, inputs: InputSet) -> list[torch.Tensor] | None:
    """Return what the reference gives with convolutions in TF32; None where it does them exactly."""
    if not reference.signature.workloads[workload_of(reference, inputs)].tf32:
        return None
    with Tf32Mode(convolutions=True):
        return list(reference.expected_with(inputs, {}, {}))


def _rounded_otherwise(
    reference: Reference, inputs: InputSet, seed: int
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return arguments and state, each element off by a random part of float32's roundoff."""
    infos = reference.signature.workloads
    state = {a.name for w in infos.values() for a in w.arguments if a.kind == "state"}
    changed: tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]] = ({}, {})
    for number, (name, tensor) in enumerate(inputs.tensors.items()):
        if not tensor.dtype.is_floating_point or "[" in name:
            continue
        generator = torch.Generator(device=tensor.device).manual_seed(1000 * seed + number)
        unit = 2.0**-53 if tensor.dtype == torch.float64 else 2.0**-24
        moved = torch.empty(tensor.shape, dtype=torch.float64, device=tensor.device)
        moved.copy_(tensor)
        for piece in moved.view(-1).split(_PIECE):  # nothing of the whole's size beside it
            noise = torch.rand(
                piece.shape, generator=generator, device=piece.device, dtype=torch.float64
            )
            piece.mul_(noise.mul_(2.0).sub_(1.0).mul_(unit).add_(1.0))
        changed[name in state][name] = moved
    return changed

"""Results on inputs with infinities: what a kernel owes there, and what only the reference's way gives.

An infinity stands for what values become as they grow. So the reference is also run in float64 with
large values in the infinities' places, and larger ones. Where its result is what those tend to, a
finite number or an infinity of a sign, a kernel owes the same. Where it is not, as where a softmax
gives NaN for a row that holds an infinity, it comes of the order in which the reference computes, and
nothing is asked; neither is where float64 and the problem's dtype differ.

A convolution may give NaN wherever else: algorithms that cut a plane into tiles (Winograd's, by Fourier
transforms, transposed ones by all phases at a time) multiply an infinity with zeros, and PyTorch's
own libraries choose among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kopt.model.work import work_of
from kopt_verify.standing import workload_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kopt.model.reference import InputSet, Reference

CONTENTS: dict[str, tuple[str, ...]] = {
    "+inf among the values": ("infinite:+",),
    "-inf among the values": ("infinite:-",),
}
"""Looks at infinities, and how inputs are made so. One sign at a time: both often meet as NaN."""

_LARGE, _LARGER = 1e30, 1e120
"""Squares of the first and products of some of them are finite in float64."""
_GROWS = 2.0
"""What a result grows by, at least, from the one to the other, if it has no bound: a logarithm by 4."""
_CLOSE = 1e-3
"""Of the largest finite result: how close to the reference's what large values give has to be."""


def settled(
    reference: Reference, inputs: InputSet, results: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Return results with the reference's own wherever it is not settled what they should be."""
    expected, oracle = reference.expected(inputs), reference.oracle(inputs)
    spreads = _convolves(reference, inputs)
    limits = [reference.oracle_with(inputs, _with(inputs, size), {}) for size in (_LARGE, _LARGER)]
    return [
        torch.where(_owed(usual, exact, *large) & ~(result.isnan() & spreads), result, usual)
        for result, usual, exact, *large in zip(results, expected, oracle, *limits, strict=True)
    ]


def _convolves(reference: Reference, inputs: InputSet) -> bool:
    work = work_of(reference.signature.workloads[workload_of(reference, inputs)])
    return any(part.kind == "convolution" for part in work.matrix)


def _with(inputs: InputSet, size: float) -> dict[str, torch.Tensor]:
    """Return the arguments that hold infinities, with ``size`` in their places."""
    changed = {}
    for name, tensor in inputs.tensors.items():
        if tensor.dtype.is_floating_point and "[" not in name and bool(torch.isinf(tensor).any()):
            wide = tensor.double()
            changed[name] = torch.where(torch.isinf(wide), size * wide.sign(), wide)
    return changed


def _owed(
    expected: torch.Tensor, oracle: torch.Tensor, large: torch.Tensor, larger: torch.Tensor
) -> torch.Tensor:
    """Return where the reference gives what ever larger values tend to."""
    if not expected.dtype.is_floating_point:
        return (expected == oracle) & (oracle == large) & (large == larger)
    usual, large, larger = expected.double(), large.double(), larger.double()
    finite = torch.isfinite(usual) & torch.isfinite(oracle)
    most = oracle[finite].abs().max() if bool(finite.any()) else oracle.new_zeros(())
    near = (large - oracle).abs() + (larger - oracle).abs() <= _CLOSE * most
    grows = torch.isinf(larger) | (larger.abs() > _GROWS * large.abs())
    infinite = torch.isinf(usual) & (usual == oracle) & grows & (larger.sign() == usual.sign())
    return (finite & near) | infinite

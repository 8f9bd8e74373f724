"""Known-wrong results, made from the right ones: what an oracle has to reject."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from kopt.errors import ProblemError

if TYPE_CHECKING:
    from kopt.model.reference import InputSet, Reference

_LOWER = {torch.float64: torch.float32, torch.float32: torch.bfloat16,
          torch.float16: torch.float8_e5m2, torch.bfloat16: torch.float8_e5m2}  # fmt: skip
_OFF = {torch.bfloat16: 2.0**-4}
"""By what share of the largest magnitude one element is off, if not 1 %: bfloat16 is coarse."""
_TILES = 16
_EIGHTHS = 8

Results = list[torch.Tensor]
Mutation = Callable[["Case"], "Results | None"]
"""Makes a wrong result; None where the case has nothing to do it to."""


@dataclass(frozen=True)
class Case:
    """A drawn input set with its right results, and those of another seed."""

    reference: Reference
    inputs: InputSet
    expected: Results
    other: Results

    def names(self, kind: str) -> list[str]:
        """Return the names of the floating tensors of a kind: ``tensor`` (arguments), ``state``."""
        infos = self.reference.signature.workloads[self.inputs.workload].arguments
        tensors = self.inputs.tensors
        return [
            info.name for info in infos
            if info.kind == kind and info.name in tensors and _floats(tensors[info.name])
        ]  # fmt: skip

    def changed(
        self, change: Callable[[torch.Tensor], torch.Tensor], *kinds: str, only: str = ""
    ) -> Results | None:
        """Return the reference's results where floating tensors are changed; None if it cannot."""
        values: dict[str, Mapping[str, Any]] = {
            kind: {
                name: change(self.inputs.tensors[name])
                for name in self.names(kind) if kind in kinds and only in ("", name)
            }
            for kind in ("tensor", "state")
        }  # fmt: skip
        if not any(values.values()):
            return None
        try:
            return self.reference.expected_with(self.inputs, values["tensor"], values["state"])
        except ProblemError:  # it refuses such values: then no kernel gets through with them
            return None


def mutations_of(case: Case) -> dict[str, Mutation]:
    """Return every mutation by name; those of a tensor are named after it."""
    tensors = case.inputs.tensors
    shapes = {tuple(result.shape) for result in case.expected}
    found = dict(_GENERAL)
    for name, tensor in tensors.items():
        if tuple(tensor.shape) in shapes:
            found[f"input {name} returned"] = _returned(name)
    vectors = [name for name in case.names("tensor") if tensors[name].dim() == 1]
    for name in [*case.names("state"), *(vectors if len(case.names("tensor")) > 1 else ())]:
        found[f"dropped {name}"] = _dropped(name)
    return found


def _floats(tensor: torch.Tensor) -> bool:
    return bool(tensor.dtype.is_floating_point)


def _each(change: Callable[[torch.Tensor], torch.Tensor | None]) -> Mutation:
    """Return the mutation that changes every result which ``change`` can change."""

    def mutate(case: Case) -> Results | None:
        found = [change(result) if result.numel() else None for result in case.expected]
        if all(new is None for new in found):
            return None
        pairs = zip(found, case.expected, strict=True)
        return [old if new is None else new for new, old in pairs]

    return mutate


def _constant(case: Case) -> Results:
    return [
        torch.full_like(here, _mean(there)) for here, there in zip(case.expected, case.other, strict=True)
    ]  # fmt: skip


def _mean(tensor: torch.Tensor) -> float | int | bool:
    if not tensor.numel():
        return 0
    mean = float(tensor.double().mean())
    if _floats(tensor):
        return mean
    return mean > 0.5 if tensor.dtype is torch.bool else round(mean)


def _row_mean(result: torch.Tensor) -> torch.Tensor | None:
    if not _floats(result) or not result.dim() or result.shape[-1] < 2:
        return None
    mean = result.double().mean(-1, keepdim=True).to(result.dtype)
    return mean.expand_as(result).contiguous()


def _returned(name: str) -> Mutation:
    def mutate(case: Case) -> Results | None:
        given = case.inputs.tensors[name]
        return _each(
            lambda result: given.to(result.dtype) if result.shape == given.shape else None
        )(case)

    return mutate


def _other_weights(case: Case) -> Results | None:
    def scaled(tensor: torch.Tensor) -> torch.Tensor:
        generator = torch.Generator(device=tensor.device).manual_seed(0)
        factor = torch.rand(tensor.shape, generator=generator, device=tensor.device) + 0.5
        return tensor * factor.to(tensor.dtype)

    return case.changed(scaled, "state")


def _dropped(name: str) -> Mutation:
    return lambda case: case.changed(torch.zeros_like, "tensor", "state", only=name)


def _lower(case: Case) -> Results | None:
    def rounded(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(_LOWER[tensor.dtype]).to(tensor.dtype)

    found = case.changed(rounded, "tensor", "state")
    # Inputs of float64 are often drawn in float32, which then loses nothing of them.
    return found and [rounded(r) if r.dtype is torch.float64 else r for r in found]


def _most_of_the_data(case: Case) -> Results | None:
    def cut(tensor: torch.Tensor) -> torch.Tensor:
        kept = tensor.clone()
        if tensor.dim() and tensor.shape[-1] > 1:
            kept[..., -max(1, tensor.shape[-1] // _EIGHTHS) :] = 0
        return kept

    return case.changed(cut, "tensor")


def _tail_zero(parts: int) -> Callable[[torch.Tensor], torch.Tensor | None]:
    def change(result: torch.Tensor) -> torch.Tensor | None:
        if result.numel() < 2:
            return None
        flat = result.flatten().clone()
        flat[-max(1, flat.numel() // parts) :] = 0
        return flat.view(result.shape)

    return change


def _one_off(result: torch.Tensor) -> torch.Tensor | None:
    flat = result.flatten().clone()
    middle = flat.numel() // 2
    if result.dtype is torch.bool:
        flat[middle] = ~flat[middle]
    elif not _floats(result):
        flat[middle] += 1
    else:
        finite = flat[torch.isfinite(flat)].abs()
        if not finite.numel():
            return None
        flat[middle] += _OFF.get(result.dtype, 0.01) * finite.max()
    return flat.view(result.shape)


def _shifted(result: torch.Tensor) -> torch.Tensor | None:
    return result.flatten().roll(1).view(result.shape) if result.numel() > 1 else None


def _negated(result: torch.Tensor) -> torch.Tensor:
    return ~result if result.dtype is torch.bool else -result


def _transposed(result: torch.Tensor) -> torch.Tensor | None:
    square = result.dim() >= 2 and result.shape[-1] == result.shape[-2] > 1
    return result.transpose(-1, -2).contiguous() if square else None


_GENERAL: dict[str, Mutation] = {
    "zeros": _each(torch.zeros_like),
    "constant": _constant,
    "stale": lambda case: case.other,
    "mean of each row": _each(_row_mean),
    "other weights": _other_weights,
    "lower precision": _lower,
    "half the rows zero": _each(_tail_zero(2)),
    "last tile zero": _each(_tail_zero(_TILES)),
    "one element off": _each(_one_off),
    "7/8 of the data": _most_of_the_data,
    "shifted by one": _each(_shifted),
    "negated": _each(_negated),
    "transposed": _each(_transposed),
}
"""``constant`` is the mean of another seed's result, ``stale`` that result itself."""

"""Known-wrong results, made from the right ones: what an oracle has to reject."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from kopt.errors import ProblemError
from kopt_verify.tf32 import Tf32Mode

_LOWER = {torch.float64: torch.float32, torch.float32: torch.bfloat16,
          torch.float16: torch.float8_e5m2, torch.bfloat16: torch.float8_e5m2}  # fmt: skip
_OFF = {torch.bfloat16: 2.0**-4}
"""By what share of the largest magnitude one element is off, if not 1 %: bfloat16 is coarse."""
_SLIGHT = {torch.float32: 2.0**-13, torch.float64: 2.0**-42}
"""The same for an element that is off by little: 2048 units of roundoff. Half types are too coarse."""
_TILES = 16
_EIGHTHS = 8

Results = list[torch.Tensor]
Change = Callable[[torch.Tensor], torch.Tensor]
Run = Callable[[Mapping[str, Any], Mapping[str, Any]], Results]
"""Runs a reference with other values for some of its arguments and of its state, by name."""


@dataclass(frozen=True)
class Case:
    """Drawn inputs with their right results, and the results of another seed."""

    tensors: Mapping[str, torch.Tensor]
    """Arguments and state."""
    kinds: Mapping[str, str]
    """``tensor`` (an argument) or ``state``, by name."""
    run: Run
    """As the user runs it. Raises ProblemError."""
    exact: Run
    """In float64. Raises ProblemError."""
    expected: Results
    other: Results

    def names(self, kind: str) -> list[str]:
        """Return the names of the floating tensors of a kind."""
        return [
            name for name, tensor in self.tensors.items()
            if self.kinds.get(name) == kind and _floats(tensor)
        ]  # fmt: skip


@dataclass(frozen=True)
class Changed:
    """The reference on other values of its floating arguments or state: None if it refuses them."""

    change: Change
    kinds: tuple[str, ...]
    only: str = ""
    """The one tensor to change; empty: all of these kinds."""
    narrowed: bool = False
    """Change results too: inputs of float64 are often drawn in float32, and lose nothing."""

    def __call__(self, case: Case) -> Results | None:
        """Return wrong results."""
        found = self._run(case, case.run)
        if found is None or not self.narrowed:
            return found
        return [self.change(r) if r.dtype is torch.float64 else r for r in found]

    def in_float64(self, case: Case) -> Results | None:
        """Return what they would be without rounding: how wrong they are at all."""
        return None if self.narrowed else self._run(case, case.exact)

    def _run(self, case: Case, run: Run) -> Results | None:
        values = {
            kind: {
                name: self.change(case.tensors[name])
                for name in case.names(kind) if kind in self.kinds and self.only in ("", name)
            }
            for kind in ("tensor", "state")
        }  # fmt: skip
        if not any(values.values()):
            return None
        try:
            return run(values["tensor"], values["state"])
        except ProblemError:  # it refuses such values: then no kernel gets through with them
            return None


Mutation = Callable[[Case], "Results | None"] | Changed
"""Makes a wrong result; None where the case has nothing to do it to."""


def mutations_of(case: Case) -> dict[str, Mutation]:
    """Return every mutation by name; those of a tensor are named after it."""
    tensors = case.tensors
    shapes = {tuple(result.shape) for result in case.expected}
    found = dict(_GENERAL)
    for name, tensor in tensors.items():
        if tuple(tensor.shape) in shapes:
            found[f"input {name} returned"] = _returned(name)
    vectors = [name for name in case.names("tensor") if tensors[name].dim() == 1]
    for name in [*case.names("state"), *(vectors if len(case.names("tensor")) > 1 else ())]:
        found[f"dropped {name}"] = Changed(torch.zeros_like, ("tensor", "state"), only=name)
    return found


def _floats(tensor: torch.Tensor) -> bool:
    return bool(tensor.dtype.is_floating_point)


def _each(
    change: Callable[[torch.Tensor], torch.Tensor | None],
) -> Callable[[Case], Results | None]:
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
        given = case.tensors[name]
        return _each(
            lambda result: given.to(result.dtype) if result.shape == given.shape else None
        )(case)

    return mutate


def _scaled(tensor: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator(device=tensor.device).manual_seed(0)
    factor = torch.rand(tensor.shape, generator=generator, device=tensor.device) + 0.5
    return tensor * factor.to(tensor.dtype)


def _narrowed(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(_LOWER[tensor.dtype]).to(tensor.dtype)


def _tf32(case: Case) -> Results | None:
    with Tf32Mode() as mode:
        found = case.run({}, {})
    return found if mode.rounded else None


def _without_last_eighth(tensor: torch.Tensor) -> torch.Tensor:
    kept = tensor.clone()
    if tensor.dim() and tensor.shape[-1] > 1:
        kept[..., -max(1, tensor.shape[-1] // _EIGHTHS) :] = 0
    return kept


def _without_largest(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.dim() or not tensor.numel():
        return tensor
    return tensor.scatter(-1, tensor.abs().argmax(-1, keepdim=True), 0.0)


def _one_row_stale(case: Case) -> Results | None:
    found = [
        _with_row(right, stale) if right.dim() and right.shape[0] > 1 and right.numel() else None
        for right, stale in zip(case.expected, case.other, strict=True)
    ]
    if all(new is None for new in found):
        return None
    pairs = zip(found, case.expected, strict=True)
    return [old if new is None else new for new, old in pairs]


def _with_row(right: torch.Tensor, stale: torch.Tensor) -> torch.Tensor:
    wrong = right.clone()
    wrong[right.shape[0] // 2] = stale[right.shape[0] // 2]
    return wrong


def _not_a_number(result: torch.Tensor) -> torch.Tensor | None:
    return torch.full_like(result, float("nan")) if _floats(result) else None


def _tail_zero(parts: int) -> Callable[[torch.Tensor], torch.Tensor | None]:
    def change(result: torch.Tensor) -> torch.Tensor | None:
        if result.numel() < 2:
            return None
        flat = result.flatten().clone()
        flat[-max(1, flat.numel() // parts) :] = 0
        return flat.view(result.shape)

    return change


def _one_off(result: torch.Tensor) -> torch.Tensor | None:
    if _floats(result):
        return _off_by(result, _OFF.get(result.dtype, 0.01))
    flat = result.flatten().clone()
    middle = flat.numel() // 2
    if result.dtype is torch.bool:
        flat[middle] = ~flat[middle]
    else:
        flat[middle] += 1
    return flat.view(result.shape)


def _slightly_off(result: torch.Tensor) -> torch.Tensor | None:
    return _off_by(result, _SLIGHT[result.dtype]) if result.dtype in _SLIGHT else None


def _off_by(result: torch.Tensor, share: float) -> torch.Tensor | None:
    flat = result.flatten().clone()
    finite = flat[torch.isfinite(flat)].abs()
    if not finite.numel():
        return None
    flat[flat.numel() // 2] += share * finite.max()
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
    "NaN everywhere": _each(_not_a_number),
    "arguments ignored": Changed(torch.zeros_like, ("tensor",)),
    "mean of each row": _each(_row_mean),
    "other weights": Changed(_scaled, ("state",)),
    "lower precision": Changed(_narrowed, ("tensor", "state"), narrowed=True),
    "products in TF32": _tf32,
    "half the rows zero": _each(_tail_zero(2)),
    "last tile zero": _each(_tail_zero(_TILES)),
    "one row stale": _one_row_stale,
    "one element off": _each(_one_off),
    "one element slightly off": _each(_slightly_off),
    "7/8 of the data": Changed(_without_last_eighth, ("tensor",)),
    "largest of each row ignored": Changed(_without_largest, ("tensor",)),
    "shifted by one": _each(_shifted),
    "negated": _each(_negated),
    "transposed": _each(_transposed),
}
"""``constant`` is the mean of another seed's result, ``stale`` that result itself."""

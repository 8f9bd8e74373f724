"""Drawing arguments: by a problem's input specs, or by its own ``get_inputs``, from a seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from kopt.errors import ProblemError
from kopt.model.expressions import evaluate
from kopt_torch.tensors import DTYPES

if TYPE_CHECKING:
    from kopt.model.problem import InputSpec, Problem, Workload
    from kopt_torch.source import ReferenceFunction


_CHUNK = 1 << 26


class Draw:
    """Arguments of one call, in order, as fresh tensors and scalars."""

    def __init__(self, names: list[str], values: list[Any], keywords: dict[str, Any]) -> None:
        self.names = names
        self.values = values
        self.keywords = keywords

    def named(self) -> list[tuple[str, Any, bool]]:
        """Return (name, value, whether by keyword) of every argument."""
        positional = [(n, v, False) for n, v in zip(self.names, self.values, strict=True)]
        return positional + [(n, v, True) for n, v in self.keywords.items()]


def draw(
    problem: Problem, function: ReferenceFunction, workload: Workload, seed: int, distribution: str
) -> Draw:
    """Draw the arguments of one call on the reference's device. Raises ProblemError."""
    if problem.inputs:
        drawn = _from_specs(problem, function, workload, seed, distribution)
    else:
        drawn = _from_file(problem, function, seed, distribution)
    return drawn


def _from_specs(
    problem: Problem, function: ReferenceFunction, workload: Workload, seed: int, distribution: str
) -> Draw:
    generator = torch.Generator(device=function.device).manual_seed(seed)
    names: list[str] = []
    values: list[Any] = []
    keywords: dict[str, Any] = {}
    for spec in problem.inputs:
        value = _one(spec, workload, generator, distribution)
        if spec.keyword:
            keywords[spec.name] = value
        else:
            names.append(spec.name)
            values.append(value)
    return Draw(names, values, keywords)


def _one(spec: InputSpec, workload: Workload, generator: torch.Generator, distribution: str) -> Any:
    if spec.shape is None:
        return spec.value
    shape = tuple(
        int(evaluate(extent, workload.sizes)) if isinstance(extent, str) else extent
        for extent in spec.shape
    )
    dtype = DTYPES[spec.dtype]
    low, high = spec.low, spec.high
    options: dict[str, Any] = {"generator": generator, "device": generator.device}
    match spec.distribution:
        case "normal" if dtype.is_floating_point:
            values = _normal(shape, distribution, options)
        case "uniform" | "normal":
            start, end = low if low is not None else 0.0, high if high is not None else 1.0
            values = torch.rand(shape, **options) * (end - start) + start
        case "integers":
            start, end = int(low or 0), int(high) if high is not None else 100
            values = torch.randint(start, end, shape, **options)
        case "bernoulli":
            values = torch.rand(shape, **options) < (high if high is not None else 0.5)
        case "zeros":
            values = torch.zeros(shape, device=generator.device)
        case "ones":
            values = torch.ones(shape, device=generator.device)
    return values.to(dtype)


def _normal(shape: tuple[int, ...], distribution: str, options: dict[str, Any]) -> torch.Tensor:
    values = torch.randn(shape, **options)
    if distribution == "signed":
        values = signed_heavy(values, options["generator"])
    return values


def signed_heavy(values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Give standard normal values a heavy tail, in place (log-normal factor)."""
    flat = values.view(-1)
    for start in range(0, flat.numel(), _CHUNK):  # large tensors leave no room for a second one
        part = flat[start : start + _CHUNK]
        factor = torch.empty_like(part).normal_(generator=generator)
        part.mul_(factor.mul_(0.7).exp_())
    return values


def _from_file(problem: Problem, function: ReferenceFunction, seed: int, distribution: str) -> Draw:
    if function.get_inputs is None:
        raise ProblemError(f"problem {problem.name!r} names no inputs and has no get_inputs()")
    torch.manual_seed(seed)
    with torch.device(function.device):
        values = list(function.get_inputs())
    values = [v.to(function.device) if isinstance(v, torch.Tensor) else v for v in values]
    if distribution == "signed":
        generator = torch.Generator(device=function.device).manual_seed(seed)
        values = [_signed(value, generator) for value in values]
    names = function.parameter_names()
    if len(names) < len(values):
        names = [f"argument{i}" for i in range(len(values))]
    return Draw(names[: len(values)], values, {})


def _signed(value: Any, generator: torch.Generator) -> Any:
    if not isinstance(value, torch.Tensor) or not value.dtype.is_floating_point:
        return value
    if value.dtype == torch.float32 and value.is_contiguous():
        return signed_heavy(value.normal_(generator=generator), generator)
    fresh = torch.empty(value.shape, device=value.device).normal_(generator=generator)
    return signed_heavy(fresh, generator).to(value.dtype)


def randomised(state: dict[str, torch.Tensor], seed: int) -> dict[str, torch.Tensor]:
    """Return module state scaled by U(0.5, 1.5), with noise where it is all zero.

    Signs are kept: a running variance stays positive. Integer state is left as it is.
    """
    changed: dict[str, torch.Tensor] = {}
    for number, (name, tensor) in enumerate(state.items()):
        if not tensor.dtype.is_floating_point:
            changed[name] = tensor
            continue
        generator = torch.Generator(device=tensor.device).manual_seed(seed + number)
        factor = torch.rand(tensor.shape, generator=generator, device=tensor.device) + 0.5
        values = tensor.float() * factor
        if not bool(tensor.any()):
            values = values + torch.randn(
                tensor.shape, generator=generator, device=tensor.device
            ).mul_(0.1)  # fmt: skip
        changed[name] = values.to(tensor.dtype)
    return changed

"""Values on which wrong results show: heavy tails, needles, rows of their own scale, and state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch

if TYPE_CHECKING:
    from kopt_torch.domains import Domain

Spread = Literal["signed", "positive", "within"]
"""What values a reference stays finite on: of both signs, of one, or in the bounds observed."""

SHARPER = ("needle", "shifted", "unit", "positive", "loud")
"""Distributions for what survives the usual ones: one large element in each row of small ones;
each row with an offset and a scale of its own; magnitudes close to 1; positive values alone;
large parameters."""

_CHUNK = 1 << 26
_TAIL = 0.7
_SMALL, _LARGE = 0.1, 16.0
_LOUD = 6.0


def sharpened(
    value: torch.Tensor, domain: Domain, distribution: str, spread: Spread,
    generator: torch.Generator,
) -> torch.Tensor:  # fmt: skip
    """Return other values of a tensor's domain, in its own memory where that can be."""
    if domain.kind in ("labels", "constant"):
        return value
    zeros = value == 0 if domain.zeros else None
    if value.dtype == torch.float32 and value.is_contiguous():
        fresh = value
    else:
        fresh = torch.empty(value.shape, device=value.device)
    fresh = _kept_in(_values(fresh, distribution, generator), domain, distribution, spread)
    if domain.symmetric:
        fresh = (fresh + fresh.mT).div_(2)
    if zeros is not None:
        fresh = fresh.masked_fill_(zeros, 0.0)
    match domain.kind:
        case "probabilities":
            fresh = fresh.abs_()
            fresh = fresh.div_(fresh.sum(-1, keepdim=True))
        case "log-probabilities":
            fresh = fresh.log_softmax(-1)
    return fresh.to(value.dtype)


def signed_heavy(values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Give standard normal values a heavy tail, in place (log-normal factor)."""
    flat = values.view(-1)
    for start in range(0, flat.numel(), _CHUNK):  # large tensors leave no room for a second one
        part = flat[start : start + _CHUNK]
        factor = torch.empty_like(part).normal_(generator=generator)
        part.mul_(factor.mul_(_TAIL).exp_())
    return values


def within_bounds(
    values: torch.Tensor, distribution: str, generator: torch.Generator
) -> torch.Tensor:
    """Make values that are uniform in [0, 1) sharper without leaving it, in place."""
    match distribution:
        case "needle":
            values.mul_(0.05)
            return _with_needles(values, _uniform(_rows(values), generator) * 0.1 + 0.9, generator)
        case "shifted":
            start, width = (_uniform(_rows(values), generator) for _ in range(2))
            return values.mul_(width * (1.0 - start)).add_(start)
    return values


def _values(fresh: torch.Tensor, distribution: str, generator: torch.Generator) -> torch.Tensor:
    fresh.normal_(generator=generator)
    match distribution:
        case "needle":
            fresh.mul_(_SMALL)
            return _with_needles(fresh, _needles(_rows(fresh), generator), generator)
        case "shifted":
            offset, scale = (_normal(_rows(fresh), generator) for _ in range(2))
            return fresh.mul_(scale.exp_()).add_(offset.mul_(4.0))
        case "unit":
            for part in fresh.view(-1).split(_CHUNK):
                sign = torch.where(part < 0, -1.0, 1.0)
                part.mul_(0.01).add_(1.0).mul_(sign)
            return fresh
    return signed_heavy(fresh, generator)


def _kept_in(
    fresh: torch.Tensor, domain: Domain, distribution: str, spread: Spread
) -> torch.Tensor:
    if spread == "within":
        return fresh.sigmoid_().mul_(domain.high - domain.low).add_(domain.low)
    if distribution == "positive" or (spread == "positive" and domain.low >= 0.0):
        return fresh.abs_()
    return fresh


def _rows(values: torch.Tensor) -> tuple[torch.Size, torch.device]:
    """The shape of one number for each row (along the last dimension), and where it lies."""
    shape = torch.Size([*values.shape[:-1], 1]) if values.dim() else values.shape
    return shape, values.device


def _normal(rows: tuple[torch.Size, torch.device], generator: torch.Generator) -> torch.Tensor:
    return torch.randn(rows[0], generator=generator, device=rows[1])


def _uniform(rows: tuple[torch.Size, torch.device], generator: torch.Generator) -> torch.Tensor:
    return torch.rand(rows[0], generator=generator, device=rows[1])


def _with_needles(
    values: torch.Tensor, needles: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    """Put one of these at a random place of each row, in place."""
    if not values.dim():
        return values.copy_(needles)
    place = _uniform(_rows(values), generator).mul_(values.shape[-1]).long()
    return values.scatter_(-1, place.clamp_(max=values.shape[-1] - 1), needles)


def _needles(rows: tuple[torch.Size, torch.device], generator: torch.Generator) -> torch.Tensor:
    values = _normal(rows, generator)
    return (1.0 + values.abs()) * _LARGE * torch.where(values < 0, -1.0, 1.0)


def randomised(
    state: dict[str, torch.Tensor], seed: int, distribution: str = "signed"
) -> dict[str, torch.Tensor]:
    """Return module state scaled by U(0.5, 1.5), with noise where it is all zero.

    Signs are kept: a running variance stays positive; ``positive`` makes all of it positive, so that
    nothing is hidden behind a minimum or a ReLU. Integer state is left as it is. ``loud``
    makes all of it six times as large, ``needle`` and ``shifted`` give it a wider spread: factors
    of e^(0.7 n) with n normal, and noise of 1 where it is all zero.
    """
    return {
        name: _changed(tensor, seed + number, distribution)
        if tensor.dtype.is_floating_point else tensor
        for number, (name, tensor) in enumerate(state.items())
    }  # fmt: skip


def _changed(tensor: torch.Tensor, seed: int, distribution: str) -> torch.Tensor:
    generator = torch.Generator(device=tensor.device).manual_seed(seed)
    wide = distribution in ("needle", "shifted", "loud")
    if wide:
        factor = _normal((tensor.shape, tensor.device), generator).mul_(_TAIL).exp_()
    else:
        factor = _uniform((tensor.shape, tensor.device), generator) + 0.5
    values = tensor.float() * factor
    if not bool(tensor.any()):
        noise = _normal((tensor.shape, tensor.device), generator)
        values = values + noise.mul_(1.0 if wide else 0.1)
    if distribution == "loud":
        values = values * _LOUD
    if distribution == "positive":
        values = values.abs()
    return values.to(tensor.dtype)

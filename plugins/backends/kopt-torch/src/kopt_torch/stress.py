"""Values that strain a kernel: large, tiny, cancelling, constant, infinite, ends of integer ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from kopt.errors import ProblemError
from kopt_torch.drawing import Draw
from kopt_torch.tensors import all_finite

if TYPE_CHECKING:
    from collections.abc import Callable

    from kopt.model.problem import InputSpec, Problem

_LARGE = 1000.0
"""Magnitude of what cancels, beside values of about 1."""
_LABELS = 3
"""A tensor with so few different values holds labels, not measurements."""
_MOST_ZEROS = 0.25
"""A tensor with more zeros has a structure (a triangle, a mask) that its values must keep."""
_LOOKED_AT = 1 << 16
_AT_A_TIME = 1 << 24
"""Elements that are computed with together."""
_INFINITE = {"infinite:+": float("inf"), "infinite:-": float("-inf")}
_MOST_INFINITE = 4
"""Infinities in a tensor: most rows stay finite, and what an infinity must not reach is seen."""
_PER_INFINITE = 64
_MOST_OVERFLOWED = 0.5
"""Part of the results that may be infinite on changed inputs which are still of use."""


def stressed(problem: Problem, drawn: Draw, content: str, seed: int = 0) -> Draw:
    """Return arguments with other content (see ``kopt.model.reference.Change``).

    A declared range is kept: only tensors declared ``normal`` change, and for ``constant``,
    ``lowest`` and ``highest``, which take values that were drawn, all. In arguments that code has
    drawn, labels and structured matrices stay. Infinities stand where ``seed`` says, in one argument
    alone, the first that may have any value: what is a weight meets zeros in many an honest kernel,
    those that pad the data, and zero times infinity is NaN. Raises ProblemError where nothing changes.
    """
    specs = {spec.name: spec for spec in problem.inputs}
    places = torch.Generator().manual_seed(seed)
    same = True

    def change(name: str, value: Any) -> Any:
        nonlocal same
        if not isinstance(value, torch.Tensor) or not value.numel():
            return value
        if content in _INFINITE and not same:
            return value
        changed = _changed(value, content, specs.get(name), places)
        same = same and changed is None
        return value if changed is None else changed

    values = [change(n, v) for n, v in zip(drawn.names, drawn.values, strict=True)]
    keywords = {name: change(name, value) for name, value in drawn.keywords.items()}
    if same:
        raise ProblemError(f"no argument of {problem.name!r} can be made {content}")
    return Draw(drawn.names, values, keywords)


def usable(content: str) -> Callable[[torch.Tensor], bool]:
    """Return what tells whether a result of the reference on such inputs can be compared with."""
    return _tells_something if content in _INFINITE else _mostly_finite


def _mostly_finite(result: torch.Tensor) -> bool:
    """Whether there is no NaN and mostly finite values."""
    if all_finite(result):
        return True
    infinite = int(torch.isinf(result).sum()) / result.numel()
    return not bool(torch.isnan(result).any()) and infinite <= _MOST_OVERFLOWED


def _tells_something(result: torch.Tensor) -> bool:
    """Whether anything is not NaN."""
    return not result.numel() or not bool(torch.isnan(result).all())


def _changed(
    value: torch.Tensor, content: str, spec: InputSpec | None, places: torch.Generator
) -> torch.Tensor | None:
    if content in ("lowest", "highest"):
        return _end_of_range(value, content)
    if not value.dtype.is_floating_point:
        return None
    if content == "constant":
        free = spec is not None or _free(value)
        return _constant(value) if free else None
    if (spec is not None and spec.distribution != "normal") or (spec is None and not _free(value)):
        return None
    if content in _INFINITE:
        return _with_infinities(value, _INFINITE[content], places)
    kind, _, amount = content.partition(":")
    match kind:
        case "scale":
            return _by_rows(value, lambda rows: rows.double() * float(amount))
        case "offset":
            return _by_rows(value, lambda rows: rows.double() + float(amount))
        case "alternating":
            return _by_rows(value, lambda rows: rows.double() + _LARGE * _signs(rows))
    raise ValueError(f"no content {content!r}")


def _with_infinities(
    value: torch.Tensor, infinity: float, places: torch.Generator
) -> torch.Tensor | None:
    """Return a copy with a few infinities; None for a type that has none.

    One is the first of all: what runs along a row begins with nothing to compare it to.
    """
    if value.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        return None
    count = min(_MOST_INFINITE, max(2, value.numel() // _PER_INFINITE))
    at = torch.randint(value.numel(), (count,), generator=places)
    at[0] = 0
    flat = value.flatten().clone()
    flat[at.to(value.device)] = infinity
    return flat.view(value.shape)


def _by_rows(value: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Return what is made of all rows, an even number at a time: all in float64 might not fit."""
    if not value.dim() or value.numel() <= _AT_A_TIME:
        return change(value).to(value.dtype)
    changed = torch.empty_like(value)
    step = max(2, _AT_A_TIME // value[0].numel() // 2 * 2)
    for start in range(0, len(value), step):
        changed[start : start + step] = change(value[start : start + step])
    return changed


def _end_of_range(value: torch.Tensor, content: str) -> torch.Tensor | None:
    if value.dtype.is_floating_point:
        return None
    ends = value.to(torch.int64).aminmax()
    chosen = ends.min if content == "lowest" else ends.max
    return chosen.to(value.dtype).expand_as(value).contiguous()


def _constant(value: torch.Tensor) -> torch.Tensor:
    """Return the first value of each first index everywhere below it."""
    if value.dim() < 2:
        return value[..., :1].expand_as(value).contiguous()
    flat = value.reshape(value.shape[0], -1)
    return flat[:, :1].expand_as(flat).reshape(value.shape).contiguous()


def _signs(value: torch.Tensor) -> torch.Tensor:
    """Return 1 and -1 in turn along every dimension: sums over an even number of them vanish."""
    total = torch.zeros((), dtype=torch.int64, device=value.device)
    for axis, extent in enumerate(value.shape):
        index = torch.arange(extent, device=value.device)
        total = total + index.view([-1 if i == axis else 1 for i in range(value.dim())])
    return 1.0 - 2.0 * (total % 2).double()


def _free(value: torch.Tensor) -> bool:
    """Whether a tensor seems to hold any values: no labels, no structure, no probabilities."""
    part = value.flatten()[:_LOOKED_AT]
    if torch.unique(part).numel() <= _LABELS or float((part == 0).float().mean()) > _MOST_ZEROS:
        return False
    if value.dim() and bool((value >= 0).all()):
        step = max(1, _AT_A_TIME // value[..., :1].numel())
        rows = sum(part.double().sum(-1) for part in value.split(step, dim=-1))
        return not bool(torch.allclose(rows, torch.ones_like(rows), atol=1e-3))
    return True

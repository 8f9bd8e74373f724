"""Values that strain a kernel: large, tiny, cancelling, constant, and the ends of integer ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from kopt.errors import ProblemError
from kopt_torch.drawing import Draw

if TYPE_CHECKING:
    from kopt.model.problem import InputSpec, Problem

_LARGE = 1000.0
"""Magnitude of what cancels, beside values of about 1."""
_LABELS = 3
"""A tensor with so few different values holds labels, not measurements."""
_MOST_ZEROS = 0.25
"""A tensor with more zeros has a structure (a triangle, a mask) that its values must keep."""
_LOOKED_AT = 1 << 16


def stressed(problem: Problem, drawn: Draw, content: str) -> Draw:
    """Return arguments with other content (see ``kopt.model.reference.Change``).

    A declared range is kept: only tensors declared ``normal`` change, and for ``constant``,
    ``lowest`` and ``highest``, which take values that were drawn, all. In arguments that code has
    drawn, labels and structured matrices stay. Raises ProblemError where nothing changes.
    """
    specs = {spec.name: spec for spec in problem.inputs}
    same = True

    def change(name: str, value: Any) -> Any:
        nonlocal same
        if not isinstance(value, torch.Tensor) or not value.numel():
            return value
        changed = _changed(value, content, specs.get(name))
        same = same and changed is None
        return value if changed is None else changed

    values = [change(n, v) for n, v in zip(drawn.names, drawn.values, strict=True)]
    keywords = {name: change(name, value) for name, value in drawn.keywords.items()}
    if same:
        raise ProblemError(f"no argument of {problem.name!r} can be made {content}")
    return Draw(drawn.names, values, keywords)


def _changed(value: torch.Tensor, content: str, spec: InputSpec | None) -> torch.Tensor | None:
    if content in ("lowest", "highest"):
        return _end_of_range(value, content)
    if not value.dtype.is_floating_point:
        return None
    if content == "constant":
        free = spec is not None or _free(value)
        return _constant(value) if free else None
    if (spec is not None and spec.distribution != "normal") or (spec is None and not _free(value)):
        return None
    kind, _, amount = content.partition(":")
    match kind:
        case "scale":
            return (value.double() * float(amount)).to(value.dtype)
        case "offset":
            return (value.double() + float(amount)).to(value.dtype)
        case "alternating":
            return (value.double() + _LARGE * _signs(value)).to(value.dtype)
    raise ValueError(f"no content {content!r}")


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
        rows = value.double().sum(-1)
        return not bool(torch.allclose(rows, torch.ones_like(rows), atol=1e-3))
    return True

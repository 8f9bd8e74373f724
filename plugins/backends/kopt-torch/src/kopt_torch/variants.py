"""The same problem at other extents: sizes of a workload, or what a file's own inputs have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from kopt_torch.drawing import Draw

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kopt.model.problem import InputSpec, Problem, Workload


def extents(problem: Problem, workload: Workload, drawn: Draw) -> dict[str, int]:
    """Return the extents that can be changed independently, by name, in the order of the arguments.

    Where a problem declares its inputs these are the sizes that shapes use, by their names, and
    numbers in shapes; else the different numbers in the drawn tensors' shapes, by themselves.
    Extents of 1 stay what they are: they broadcast.
    """
    found: dict[str, int] = {}
    if not problem.inputs:
        for tensor in _tensors(drawn):
            found |= {str(extent): extent for extent in tensor.shape if extent > 1}
        return found
    for spec in problem.inputs:
        for extent in spec.shape or ():
            if isinstance(extent, int):
                found |= {str(extent): extent} if extent > 1 else {}
            else:
                found |= {n: size for n, size in workload.sizes.items() if n in extent and size > 1}
    return found


def resized(
    problem: Problem, workload: Workload, changes: Mapping[str, int]
) -> tuple[Problem, Workload]:
    """Return a problem and a workload with other extents, where the inputs are declared."""
    if not problem.inputs or not changes:
        return problem, workload
    sizes = {name: changes.get(name, size) for name, size in workload.sizes.items()}
    inputs = tuple(_resized(spec, changes) for spec in problem.inputs)
    return (
        problem.model_copy(update={"inputs": inputs}),
        workload.model_copy(update={"sizes": sizes}),
    )


def _resized(spec: InputSpec, changes: Mapping[str, int]) -> InputSpec:
    if spec.shape is None:
        return spec
    shape = tuple(changes.get(str(e), e) if isinstance(e, int) else e for e in spec.shape)
    return spec.model_copy(update={"shape": shape})


def cropped(drawn: Draw, changes: Mapping[str, int]) -> Draw:
    """Return arguments with other extents: their first elements, and around again where too few.

    So every value is one that the problem's own code has drawn.
    """
    if not changes:
        return drawn

    def crop(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        for axis, extent in enumerate(value.shape):
            wanted = changes.get(str(extent), extent)
            if wanted != extent:
                index = torch.arange(wanted, device=value.device) % extent
                value = value.index_select(axis, index)
        return value

    return Draw(
        drawn.names, [crop(v) for v in drawn.values],
        {name: crop(v) for name, v in drawn.keywords.items()},
    )  # fmt: skip


def pointing_inside(drawn: Draw, extents: Mapping[str, int], changes: Mapping[str, int]) -> Draw:
    """Return arguments whose integers follow an extent that becomes smaller.

    Integers that may be positions or labels are taken to lie below the smallest extent that is above
    all of them; where that one is made smaller they are wrapped around.
    """

    def follow(value: Any) -> Any:
        if not _holds_integers(value) or not value.numel():
            return value
        most = int(value.max())
        above = [name for name, extent in extents.items() if extent > most]
        bound = min(above, key=lambda name: extents[name], default="")
        if int(value.min()) < 0 or not 0 < changes.get(bound, 0) <= most:
            return value
        return value % changes[bound]

    return Draw(
        drawn.names, [follow(v) for v in drawn.values],
        {name: follow(v) for name, v in drawn.keywords.items()},
    )  # fmt: skip


def has_integers(drawn: Draw) -> bool:
    """Whether an argument may hold positions or labels."""
    return any(map(_holds_integers, _tensors(drawn)))


def _holds_integers(value: Any) -> bool:
    if not isinstance(value, torch.Tensor):
        return False
    return not (value.is_floating_point() or value.is_complex() or value.dtype is torch.bool)


def _tensors(drawn: Draw) -> list[torch.Tensor]:
    return [v for _, v, _ in drawn.named() if isinstance(v, torch.Tensor)]

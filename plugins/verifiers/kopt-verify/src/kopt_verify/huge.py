"""A look at a tensor of more than 2^31 elements, which indices of 32 bits do not reach.

It is there for problems whose rows are independent of one another: what the rows at both ends and
around element 2^31 should be is then computed from those rows alone, and the rest is never compared.
"""

from __future__ import annotations

from contextlib import closing
from math import prod
from typing import TYPE_CHECKING

import torch

from kopt.model.reference import Change
from kopt_verify.accuracy import Yardstick, compare
from kopt_verify.beyond import best_distribution, changeable
from kopt_verify.standing import taken

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kopt.model.problem import TensorInfo
    from kopt.model.reference import InputSet, Reference
    from kopt.model.trial import Trial
    from kopt_verify.beyond import Beyond, Look

_BORDER = 1 << 31
_KINDS = {"cuda"}
"""Devices that draw and compute so much within seconds."""
_TIMES = 3
"""What it takes, by the bytes of arguments and results: the judge's, those drawn, a candidate's own."""
_SHARE = 0.5
"""Part of the memory that is free which may be taken."""
_FEW_ROWS = 14
_MULTIPLE = 64
"""Of rows: what a kernel that is made for multiples takes."""
_ENOUGH = 4096
"""Elements of a result that rows which are compared have at least."""


def look_at_huge(trial: Trial, beyond: Beyond) -> tuple[str, Look | None]:
    """Return what to say of it, and the look where there was one."""
    reference, workload = trial.reference, beyond.workload
    if any(_most(reference, name) > _BORDER for name in reference.signature.workloads):
        return "the problem itself has more than 2^31 elements", None
    if reason := _hindrance(reference, workload):
        return f"not looked at beyond 2^31 elements: {reason}", None
    name, extent = _extent(reference, workload)
    change = Change(
        f"{name}={extent} (more than 2^31 elements)", {name: extent},
        distribution=best_distribution(reference),
    )  # fmt: skip
    with reference.lend(_TIMES * _bytes_at(reference, workload)) as lent:
        if not lent:
            return "not looked at beyond 2^31 elements: other runs have reserved the memory", None
        look = beyond.look(change, trial.seed, fault=_fault)
    said = f"not looked at beyond 2^31 elements: the reference does not take {change.name}"
    return ("", look) if look else (said, None)


def _hindrance(reference: Reference, workload: str) -> str:
    """Return why there is no such look; empty: there may be one."""
    kind = reference.device.kind
    if kind not in _KINDS:
        return f"on a {kind.upper()} that takes minutes; a workload with role = 'check' does it"
    if not _rows_are_independent(reference, workload):
        return "what a part of it should be cannot be computed from that part alone"
    needed, free = _TIMES * _bytes_at(reference, workload), _free(reference)
    if needed > _SHARE * free:
        return f"that takes {needed / 1e9:.0f} GB, and half of what is free is {_SHARE * free / 1e9:.0f} GB"
    return ""


def _tensors(reference: Reference, workload: str) -> list[TensorInfo]:
    signature = reference.signature.workloads[workload]
    given = [a.tensor for a in signature.arguments if a.tensor and a.kind == "tensor"]
    return [*given, *signature.outputs]


def _most(reference: Reference, workload: str) -> int:
    return max((tensor.elements for tensor in _tensors(reference, workload)), default=0)


def _first(reference: Reference, workload: str) -> tuple[str, int]:
    """Return the name of the rows' extent, and how many rows there are; none: an empty name."""
    return next(iter(changeable(reference, workload).items()), ("", 0))


def _extent(reference: Reference, workload: str) -> tuple[str, int]:
    """Return the extent at which the largest of all tensors with rows crosses the border."""
    name, rows = _first(reference, workload)
    most = max(
        prod(tensor.shape[1:]) for tensor in _tensors(reference, workload)
        if tensor.shape and tensor.shape[0] == rows
    )  # fmt: skip
    extent = _BORDER // most + max(_FEW_ROWS, _ENOUGH // most)
    return name, -(-extent // _MULTIPLE) * _MULTIPLE


def _bytes_at(reference: Reference, workload: str) -> int:
    _, rows = _first(reference, workload)
    _, extent = _extent(reference, workload)
    total = 0
    for tensor in _tensors(reference, workload):
        size = tensor.elements * getattr(torch, tensor.dtype).itemsize
        follows = tensor.shape and tensor.shape[0] == rows
        total += size // rows * extent if follows else size
    return total


def _free(reference: Reference) -> int:
    if reference.device.kind != "cuda":
        return reference.device.memory_bytes
    free: int = torch.cuda.mem_get_info()[0]
    return free


def _rows_are_independent(reference: Reference, workload: str) -> bool:
    """Whether the reference gives for some of a few rows what it gives for those of all of them.

    And whether every result has rows, and none is changed in place.
    """
    name, rows = _first(reference, workload)
    outputs = reference.signature.workloads[workload].outputs
    if not name or reference.problem.mutates or not outputs:
        return False
    if any(not t.shape or t.shape[0] != rows or "float" not in t.dtype for t in outputs):
        return False
    few = reference.changed_inputs(workload, 1, Change("few rows", {name: _FEW_ROWS}))
    if few is None:
        return False
    with closing(few):
        if any(_FEW_ROWS in tensor.shape[1:] for tensor in few.tensors.values()):
            return False  # an extent that is that of other axes too
        whole = reference.oracle(few)
        parts = [(rows, reference.oracle_with(few, _rows(few, rows), {})) for rows in _halves()]
        return all(
            part.shape == all_of_it[rows].shape and torch.allclose(part, all_of_it[rows], 1e-9, 0)
            for rows, found in parts
            for part, all_of_it in zip(found, whole, strict=True)
        )


def _halves() -> Iterator[slice]:
    """Both of them: what runs along the rows (a cumulative sum) is right in one."""
    yield slice(0, _FEW_ROWS // 2)
    yield slice(_FEW_ROWS // 2, _FEW_ROWS)


def _rows(inputs: InputSet, rows: slice) -> Mapping[str, torch.Tensor]:
    """Return these rows of every argument that has as many as the first result."""
    extent = inputs.outputs[0].shape[0]
    return {
        name: tensor[rows] for name, tensor in inputs.tensors.items()
        if tensor.dim() and tensor.shape[0] == extent
    }  # fmt: skip


def _fault(trial: Trial, inputs: InputSet, change: Change) -> str:
    """Return what is wrong at both ends and around the border, or an empty text."""
    reference, results = trial.reference, taken(trial, inputs)
    names = [name for name, _ in inputs.results]
    for rows in _compared(results):
        mine = _rows(inputs, rows)
        usual = reference.expected_with(inputs, mine, {})
        exact = reference.oracle_with(inputs, mine, {})
        parts = [Yardstick(*pair) for pair in zip(usual, exact, strict=True)]
        found = compare(
            names, [result[rows] for result in results], [(slice(None), parts)],
            trial.problem.tolerance.factor,
        )  # fmt: skip
        if fault := "; ".join(each.evidence for each in found if not each.passed):
            return f"rows {rows.start} to {rows.stop - 1}: {fault}"
    return ""


def _compared(results: list[torch.Tensor]) -> Iterator[slice]:
    """Yield rows at both ends, and those in which a result's element 2^31 lies."""
    extent = results[0].shape[0]
    widths = {result[0].numel() for result in results if result.numel()}
    count = max(_FEW_ROWS, _ENOUGH // max(min(widths, default=1), 1))
    starts = {0, extent - count, *(_BORDER // width - count // 2 for width in widths)}
    for start in sorted(max(0, min(start, extent - count)) for start in starts):
        yield slice(start, min(start + count, extent))

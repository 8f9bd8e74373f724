"""Records that describe the arguments and results of a call: names, shapes, dtypes and bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves

from kopt.errors import ProblemError
from kopt.model.problem import ArgumentInfo, TensorInfo, WorkloadSignature
from kopt.worker.segments import ITEM_BYTES
from kopt_torch.tensors import NAMES

if TYPE_CHECKING:
    from kopt.model.problem import Problem
    from kopt_torch.drawing import Draw


def describe(
    problem: Problem,
    drawn: Draw,
    state: dict[str, torch.Tensor],
    leaves: list[torch.Tensor],
    structure: str,
) -> WorkloadSignature:
    """Return the signature of a call without its trace. Raises ProblemError."""
    outputs = tuple(_info(f"out{i}", leaf) for i, leaf in enumerate(leaves))
    arguments = tuple(_argument(*item) for item in drawn.named()) + tuple(
        ArgumentInfo(name=name, kind="state", tensor=_info(name, tensor))
        for name, tensor in state.items()
    )
    mutated = [a.tensor for a in arguments if a.name in problem.mutates and a.tensor]
    if not outputs and not mutated:
        raise ProblemError(f"the reference of {problem.name!r} returns {structure}, no tensor")
    read = _tensor_bytes([drawn.values, drawn.keywords, state])
    written = sum(_bytes(info) for info in [*outputs, *mutated])
    return WorkloadSignature(
        arguments=arguments, outputs=outputs, structure=structure, compulsory_bytes=read + written
    )


def _info(name: str, tensor: torch.Tensor) -> TensorInfo:
    if tensor.dtype not in NAMES:
        raise ProblemError(
            f"{name} has dtype {tensor.dtype}, which kopt does not carry; use one of "
            f"{', '.join(ITEM_BYTES)}"
        )
    return TensorInfo(name=name, dtype=NAMES[tensor.dtype], shape=tuple(tensor.shape))


def _argument(name: str, value: Any, keyword: bool) -> ArgumentInfo:
    if isinstance(value, torch.Tensor):
        return ArgumentInfo(name=name, kind="tensor", tensor=_info(name, value))
    if value is None or isinstance(value, bool | int | float | str):
        return ArgumentInfo(name=name, kind="scalar", value=value)
    return ArgumentInfo(name=name, kind="other")


def _bytes(info: TensorInfo) -> int:
    return info.elements * ITEM_BYTES[info.dtype]


def _tensor_bytes(tree: Any) -> int:
    tensors = (leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor))
    return sum(t.numel() * t.element_size() for t in tensors)

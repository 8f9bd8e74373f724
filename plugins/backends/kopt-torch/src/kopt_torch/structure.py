"""Flatten what a function returned, and name its structure."""

from __future__ import annotations

from typing import Any

import torch


def flatten(result: Any) -> tuple[list[Any], str]:
    """Return the leaves of a result and its structure.

    The structure is ``tensor``, ``none``, ``tuple:N``, ``list:N``, ``dict:a,b`` or ``other:TYPE``;
    nesting is shown in brackets, as in ``tuple:2[tensor;tuple:2]``.
    """
    if result is None:
        return [], "none"
    if isinstance(result, torch.Tensor):
        if result.layout is not torch.strided:
            return [], f"other:{str(result.layout).removeprefix('torch.')}"
        return [result], "tensor"
    if isinstance(result, bool | int | float):
        return [torch.tensor(result)], "scalar"
    if isinstance(result, dict):
        return _gather("dict:" + ",".join(map(str, result)), list(result.values()))
    if isinstance(result, tuple | list):
        kind = "list" if isinstance(result, list) else "tuple"
        return _gather(f"{kind}:{len(result)}", list(result))
    return [], f"other:{type(result).__name__}"


def _gather(label: str, items: list[Any]) -> tuple[list[Any], str]:
    leaves: list[Any] = []
    names: list[str] = []
    for item in items:
        found, name = flatten(item)
        leaves += found
        names.append(name)
    if all(name == "tensor" for name in names):
        return leaves, label
    return leaves, f"{label}[{';'.join(names)}]"

"""The vendor's convolutions as fast as PyTorch's own switches make them: what a user may not have tried."""

from __future__ import annotations

import base64
import inspect
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_map_only

from kopt_torch.modules import ModuleCopies

if TYPE_CHECKING:
    from kopt.model.problem import Problem

_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
_CONVOLVES = re.compile(rb"conv", re.IGNORECASE)


def convolves(problem: Problem) -> bool:
    """Whether the reference seems to have a convolution, which these switches are about."""
    source = problem.reference.source.encode()
    if problem.reference.kind == "pickled":
        source = base64.b64decode(source, validate=False)
    return bool(_CONVOLVES.search(source))


def switched(entry: Any, *, channels_last: bool) -> Any:
    """Return the entry with the switches on during its calls; a class stays a class.

    The form of arguments and results is that of the reference: where tensors are to lie channels
    last, a call moves them there and back.
    """
    if isinstance(entry, ModuleCopies):
        return lambda: _with_switches(entry(), channels_last=channels_last)
    if not inspect.isclass(entry):
        return _step(entry, channels_last=channels_last)

    class Switched(entry):
        def __init__(self, *arguments: Any, **keywords: Any) -> None:
            super().__init__(*arguments, **keywords)
            _with_switches(self, channels_last=channels_last)

    return Switched


def _with_switches(module: torch.nn.Module, *, channels_last: bool) -> torch.nn.Module:
    if channels_last:
        for parameter in module.parameters():
            parameter.data = _moved(parameter.data)
    module.forward = _step(module.forward, channels_last=channels_last)
    return module


def _step(call: Callable[..., Any], *, channels_last: bool) -> Callable[..., Any]:
    def step(*arguments: Any, **keywords: Any) -> Any:
        before, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, True
        try:
            if not channels_last:
                return call(*arguments, **keywords)
            given = tree_map_only(torch.Tensor, _moved, (arguments, keywords))
            return tree_map_only(torch.Tensor, torch.Tensor.contiguous, call(*given[0], **given[1]))
        finally:
            torch.backends.cudnn.benchmark = before

    return step


def _moved(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor with its channels last in memory, where it has the dimensions of images."""
    layout = _FORMATS.get(tensor.dim())
    return tensor if layout is None else tensor.contiguous(memory_format=layout)

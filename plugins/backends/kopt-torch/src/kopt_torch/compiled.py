"""torch.compile over a reference, be it a function, a module or a module class."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from kopt_torch.modules import ModuleCopies

_TUNED = "max-autotune-no-cudagraphs"
"""A graph's outputs are overwritten by its next replay, and its launches are not an operator's."""


def compiled(entry: Any, *, tuned: bool = False) -> Any:
    """Return the entry with torch.compile applied; a class stays a class.

    ``tuned``: in mode max-autotune, without CUDA graphs.
    """
    mode = _TUNED if tuned else None
    if isinstance(entry, ModuleCopies):
        return entry.compiled(mode)
    if not inspect.isclass(entry):
        return torch.compile(entry, mode=mode)

    class Compiled(entry):
        def __init__(self, *arguments: Any, **keywords: Any) -> None:
            super().__init__(*arguments, **keywords)
            self.forward = torch.compile(super().forward, mode=mode)

    return Compiled

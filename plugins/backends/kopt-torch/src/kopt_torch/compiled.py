"""torch.compile over a reference, be it a function, a module or a module class."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from kopt_torch.modules import ModuleCopies


def compiled(entry: Any) -> Any:
    """Return the entry with torch.compile's defaults applied; a class stays a class."""
    if isinstance(entry, ModuleCopies):
        return entry.compiled()
    if not inspect.isclass(entry):
        return torch.compile(entry)

    class Compiled(entry):
        def __init__(self, *arguments: Any, **keywords: Any) -> None:
            super().__init__(*arguments, **keywords)
            self.forward = torch.compile(super().forward)

    return Compiled

"""torch.compile over a reference, be it a function, a module or a module class."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch

from kopt_torch.executable import PythonExecutable, as_candidate_error
from kopt_torch.modules import ModuleCopies

if TYPE_CHECKING:
    from kopt.model.executable import BoundCall, DeviceTurns

_TUNED = "max-autotune-no-cudagraphs"
"""A graph's outputs are overwritten by its next replay, and its launches are not an operator's."""


class CompiledExecutable(PythonExecutable):
    """A reference that torch.compile compiles at its first call."""

    def first_launch(self, bound: BoundCall, turns: DeviceTurns) -> None:
        """Launch once; the device is let go of while compilers work. Raises CandidateError."""
        from kopt_torch.beside import compiling_beside

        with turns.working(), as_candidate_error(), compiling_beside(turns):
            bound.launch()
            self.synchronize()


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

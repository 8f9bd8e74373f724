"""Python candidates as modules: written to a file, imported under a name of their own."""

from __future__ import annotations

import base64
import copy
import importlib.util
import linecache
import sys
from typing import TYPE_CHECKING, Any

import torch

from kopt.errors import CandidateError
from kopt.model.record import content_id
from kopt.model.verification import Status

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from kopt.model.candidate import Candidate


class ModuleCopies:
    """Makes modules like one that came as an object: each call of it has state of its own."""

    def __init__(
        self, module: torch.nn.Module, *, compiled: bool = False, mode: str | None = None
    ) -> None:
        self._module, self._compiled, self._mode = module, compiled, mode

    def compiled(self, mode: str | None = None) -> ModuleCopies:
        """Return the same with torch.compile applied, in its default mode or another."""
        return ModuleCopies(self._module, compiled=True, mode=mode)

    def __call__(self) -> torch.nn.Module:
        """Return a copy."""
        made = copy.deepcopy(self._module)
        if self._compiled:
            made.forward = torch.compile(made.forward, mode=self._mode)
        return made


def import_source(source: str, folder: Path, filename: str = "kernel.py") -> ModuleType:
    """Import Python source from a file below ``folder``; exceptions of the source pass through."""
    name = f"kopt_candidate_{content_id(source)}"
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    path = place / filename
    path.write_text(source, encoding="utf-8")
    linecache.checkcache(str(path))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def load_entry(candidate: Candidate, folder: Path) -> Any:
    """Return a candidate's entry: a function, an ``nn.Module`` class or ModuleCopies.

    Raises CandidateError: PARSE_ERROR for a syntax error or a missing entry, LAUNCH_FAILED where
    importing the file raises.
    """
    if candidate.settings.get("kind") == "pickled":
        import cloudpickle

        loaded = cloudpickle.loads(base64.b64decode(candidate.source))
        return ModuleCopies(loaded) if isinstance(loaded, torch.nn.Module) else loaded
    try:
        module = import_source(candidate.source, folder)
    except SyntaxError as error:
        raise CandidateError(Status.PARSE_ERROR, f"line {error.lineno}: {error.msg}") from error
    except CandidateError:
        raise
    except BaseException as error:
        detail = f"importing it raised {type(error).__name__}: {error}"
        raise CandidateError(Status.LAUNCH_FAILED, detail) from error
    entry = getattr(module, candidate.entry, None)
    if not callable(entry):
        raise CandidateError(
            Status.PARSE_ERROR, f"it defines no function or class {candidate.entry!r}"
        )
    return entry

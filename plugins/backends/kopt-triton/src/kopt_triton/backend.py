"""The plugin: what kopt calls. It imports neither torch nor triton until a candidate is built."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import kopt
from kopt.errors import CandidateError
from kopt.model.verification import Status
from kopt_triton.checks import installed, machine_checks

if TYPE_CHECKING:
    from kopt.model.candidate import Candidate, Knob
    from kopt.model.check import Check
    from kopt.model.executable import BuildContext, Executable


class TritonBackend:
    """Builds candidates of language ``triton``."""

    def __init__(self, options: object = None) -> None:
        """There is nothing to set: knobs are a candidate's business."""

    @kopt.hookimpl
    def kopt_check(self) -> Iterable[Check]:
        """Say whether Triton is there, whether it has a GPU, and what it needs besides."""
        return machine_checks()

    @kopt.hookimpl
    def kopt_tunables(self, candidate: Candidate) -> Mapping[str, Knob] | None:
        """Find a Triton source's block sizes, warps, stages and configurations."""
        if candidate.language != "triton":
            return None
        from kopt_triton.tunables import tunables

        return tunables(candidate.source)

    @kopt.hookimpl
    def kopt_warm_up(self, purpose: str) -> None:
        """Import torch and Triton."""
        if purpose == "triton" and all(map(installed, ("torch", "triton"))):
            importlib.import_module("kopt_triton.building")

    @kopt.hookimpl
    def kopt_build(self, candidate: Candidate, context: BuildContext) -> Executable | None:
        """Build a Triton candidate; None for another language. Raises CandidateError."""
        if candidate.language != "triton":
            return None
        missing = [name for name in ("torch", "triton") if installed(name) is None]
        if missing:
            raise CandidateError(
                Status.INFRASTRUCTURE_ERROR,
                f"kopt-triton {installed('kopt-triton')}: {' and '.join(missing)} not installed; "
                f"run: pip install {' '.join(missing)}",
            )
        from kopt_triton.building import build

        return build(candidate, context)

"""A candidate that is compiled for a GPU which is not here: resources and limits, no results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopt.errors import CandidateError
from kopt.model.verification import Status
from kopt_cuda.listing import KINDS, listing_of
from kopt_cuda.plan import FILE

if TYPE_CHECKING:
    from kopt.model.evaluation import Build
    from kopt.model.executable import BoundCall, Memory
    from kopt.model.values import CallSpec
    from kopt_cuda.program import Program
    from kopt_cuda.resources import KernelResources

ELSEWHERE = "a CUDA C++ kernel runs on a machine with an NVIDIA GPU only"


class AheadExecutable:
    """See kopt.model.executable.Executable; nothing of it runs."""

    timeable = False
    listing_kinds = KINDS

    def __init__(self, build: Build, program: Program) -> None:
        self.build = build
        self._program = program

    def ahead_of_time(self, call: CallSpec) -> list[KernelResources]:
        """Return what each launch of a call would use; the call's arguments are bound and checked.

        The result is also put into ``build``, where a launch exceeds a limit as well. Raises
        CandidateError where the plan does not fit the call or the GPU.
        """
        resolver = self._program.resolver(call, lambda ref: 0)
        resolver.check_required()
        for name, (shape, dtype, _) in resolver.scratch().items():
            resolver.add_scratch(name, shape, dtype, 0)
        examined = list(self._program.examined(resolver.launches()))
        kernels = [used for used, _ in examined]
        resources = {**self.build.resources, "kernels": [each.to_json() for each in kernels]}
        self.build = self.build.model_copy(update={"resources": resources})
        for _, fault in examined:
            if fault is not None:
                raise fault
        return kernels

    def listing(self, kind: str, call: CallSpec) -> dict[str, str]:
        """Return the code of the whole file, whatever a call would launch of it.

        Raises CandidateError (unsupported) where no tool reads the binary.
        """
        return {FILE: listing_of(self._program, kind)}

    def bind(self, call: CallSpec, memory: Memory) -> BoundCall:
        """Check the call against the plan, then refuse. Raises CandidateError (unsupported)."""
        self.ahead_of_time(call)
        raise CandidateError(
            Status.UNSUPPORTED,
            f"it was compiled for {self._program.architecture.name}, and {ELSEWHERE}",
        )

    def synchronize(self) -> None:
        """Nothing runs."""

    def device_ms(self, calls: list[BoundCall], launches: int) -> float | None:
        """Refuse. Raises CandidateError (unsupported)."""
        raise CandidateError(Status.UNSUPPORTED, ELSEWHERE)

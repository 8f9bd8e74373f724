"""Build a Triton candidate: import its module, and choose how it is run."""

from __future__ import annotations

from contextlib import nullcontext
from time import perf_counter  # bound here: a candidate may replace what the module holds
from typing import TYPE_CHECKING

from kopt.errors import CandidateError
from kopt.model.evaluation import Build
from kopt.model.verification import Status
from kopt_torch.modules import load_entry
from kopt_triton.architectures import STAND_IN, named
from kopt_triton.cuda_stand_in import gpu_stand_in
from kopt_triton.executable import InterpretedExecutable, TritonExecutable, explained
from kopt_triton.tunables import applied

if TYPE_CHECKING:
    from kopt.model.candidate import Candidate
    from kopt.model.executable import BuildContext


def build(candidate: Candidate, context: BuildContext) -> TritonExecutable | InterpretedExecutable:
    """Return the executable of a Triton candidate for the context's device.

    Kernels are compiled when they are first launched: only then their arguments are known.
    Raises CandidateError.
    """
    started = perf_counter()
    candidate = applied(candidate)
    folder = context.scratch()
    on_gpu = context.device is not None and context.device.kind == "cuda"
    architecture = None if on_gpu else named(context.architecture)
    # A module may ask for the GPU's properties, or autotune, as soon as it is imported.
    scope = nullcontext() if on_gpu else gpu_stand_in(architecture or STAND_IN, "cpu")
    with scope, explained(candidate.source, folder):
        entry = load_entry(candidate, folder)
    if not callable(entry):
        raise CandidateError(
            Status.PARSE_ERROR, f"entry {candidate.entry!r} is neither a function nor a class"
        )
    made = Build(backend="triton", seconds=perf_counter() - started)
    if on_gpu:
        return TritonExecutable(made, entry, candidate, folder)
    made = made.model_copy(update={"resources": {"interpreted": True}})
    return InterpretedExecutable(made, entry, candidate, folder, architecture)

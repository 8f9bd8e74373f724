"""Compile a candidate's kernels for a named GPU without having it: shapes in, resources out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from triton.compiler.errors import CompilationError
from triton.runtime import errors
from triton.runtime.autotuner import Autotuner
from triton.runtime.errors import OutOfResources
from triton.runtime.jit import JITFunction

from kopt.errors import CandidateError
from kopt.model.values import CallSpec, TensorRef
from kopt.model.verification import Status
from kopt_triton.architectures import Architecture
from kopt_triton.cuda_stand_in import gpu_stand_in, replaced

# Triton 3.2 raises RuntimeError where ptxas fails.
_UNFIT = (CompilationError, OutOfResources, getattr(errors, "PTXASError", RuntimeError))


def _compiling_run(
    original: Callable[..., Any], found: dict[str, Any], limits: Architecture | None
) -> Callable[..., Any]:
    """Return a ``JITFunction.run`` that compiles exactly what a launch would, and launches nothing."""

    def run(self: JITFunction, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        kernel = original(self, *args, grid=grid, warmup=True, **kwargs)
        found[kernel.hash] = kernel
        for name, needed, limit in limits.beyond(kernel.metadata) if limits else ():
            raise OutOfResources(needed, limit, name)
        return kernel

    return run


def _every_configuration(self: Autotuner, *args: Any, **kwargs: Any) -> Any:
    """Compile each configuration; like on a GPU, some may fail, but not all."""
    self.nargs = dict(zip(self.arg_names, args, strict=False))
    kernel, failure = None, None
    for chosen in self.prune_configs(kwargs):
        try:
            kernel = self.fn.run(*args, **kwargs, **chosen.all_kwargs())
        except _UNFIT as error:
            failure = error
    if kernel is None and failure is not None:
        raise failure
    return kernel


@contextmanager
def _capturing(
    architecture: Architecture, found: dict[str, Any], limits: Architecture | None
) -> Iterator[None]:
    run = _compiling_run(JITFunction.run, found, limits)
    with (
        gpu_stand_in(architecture, "meta"),
        replaced(JITFunction, "run", run),
        replaced(Autotuner, "run", _every_configuration),
    ):
        yield


class MetaTensors:
    """Opens tensor references as tensors that have shape, strides and type, and no content."""

    def open(self, ref: TensorRef) -> torch.Tensor:
        """Return the tensor; its address counts as aligned."""
        dtype = getattr(torch, ref.dtype)
        return torch.empty_strided(ref.shape, ref.strides, dtype=dtype, device="meta")


def compile_ahead(
    callable_for: Callable[[CallSpec, Any], Callable[[], Any]],
    call: CallSpec,
    architecture: Architecture,
    found: dict[str, Any],
    *,
    fitting: bool = True,
) -> None:
    """Compile every kernel that a call would launch.

    :param callable_for: makes a function of no arguments from a call and from what opens its
        tensors; that function is the candidate's host code, here run on tensors without content.
    :param found: takes Triton's compiled kernels, by hash: those before a failure, and one that
        does not fit, as well.
    :param fitting: whether it is an error that a kernel needs more memory than a block gets.
    Raises CandidateError where no kernel is launched, and what Triton raises where one does not
    compile or does not fit (OutOfResources), as it would on that GPU. Autotuned kernels are
    compiled in every configuration, and it is enough that one fits.
    """
    limits = architecture if fitting else None
    with _capturing(architecture, found, limits), torch.no_grad():
        with torch.device("meta"):  # a module's parameters need no memory either
            step = callable_for(call, MetaTensors())
        step()
    if not found:
        raise CandidateError(
            Status.UNSUPPORTED,
            f"no Triton kernel was launched, so nothing was compiled for {architecture.name}; "
            "does the entry point reach its kernel for these shapes?",
        )

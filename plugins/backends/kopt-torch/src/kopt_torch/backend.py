"""The plugin: reference, baselines, and candidates written in plain PyTorch."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from time import monotonic  # bound here: a candidate may replace what the module holds
from typing import TYPE_CHECKING

import kopt
from kopt.model.candidate import Candidate
from kopt.model.check import Check

if TYPE_CHECKING:
    from kopt.model.device import Device, DeviceKind
    from kopt.model.executable import BuildContext, Executable
    from kopt.model.problem import Problem
    from kopt.model.reference import Reference, Room

_KINDS = {"function", "kernelbench", "pickled"}


class TorchBackend:
    """Runs PyTorch references and offers eager and torch.compile as what has to be beaten."""

    class Options(kopt.Options):
        """Options of the torch backend."""

        compile: bool = True
        """Whether torch.compile is a baseline."""
        max_autotune: bool | None = None
        """Whether it also is in mode max-autotune (without CUDA graphs); None: on a GPU only."""

        vendor: bool = True
        """Whether, on a GPU, cuDNN with its switches is a baseline of problems that convolve."""

    def __init__(self, options: Options) -> None:
        self.options = options

    @kopt.hookimpl
    def kopt_check(self) -> Iterable[Check]:
        """Say which PyTorch is installed, from metadata."""
        try:
            version = importlib.metadata.version("torch")
        except importlib.metadata.PackageNotFoundError:
            fix = "pip install torch (a CPU build where there is no GPU)"
            return [Check(name="torch", state="fail", detail="not installed", fix=fix)]
        place = uncompiled("torch")
        if place is None:
            return [Check(name="torch", state="ok", detail=version)]
        detail = f"{version}, without bytecode: every process of kopt's takes seconds to import it"
        fix = f"{sys.executable} -m compileall -q -j 0 {place} (with uv: --compile-bytecode)"
        return [Check(name="torch", state="warn", detail=detail, fix=fix)]

    @kopt.hookimpl
    def kopt_open_reference(self, problem: Problem, device: str, room: Room) -> Reference | None:
        """Make the problem runnable in this (the judge's) process."""
        if problem.reference.kind not in _KINDS:
            return None
        from kopt_torch.reference import TorchReference

        return TorchReference(problem, "cuda" if device == "cuda" else "cpu", room)

    @kopt.hookimpl
    def kopt_measure_device(self, device: str) -> Device | None:
        """Measure bandwidths, rates of matrix products and the cost of a launch."""
        if device not in ("cpu", "cuda"):
            return None
        from kopt_torch.machine import find_device
        from kopt_torch.peaks import measure

        kind: DeviceKind = "cuda" if device == "cuda" else "cpu"
        return find_device(kind).model_copy(update={"peaks": measure(kind)})

    @kopt.hookimpl
    def kopt_baselines(self, problem: Problem, device: str) -> Iterable[Candidate]:
        """Eager and torch.compile, tuned and not; on a CPU each also with an allocator that keeps its pages."""
        if problem.reference.kind not in _KINDS:
            return
        modes = ["eager", "torch.compile"] if self.options.compile else ["eager"]
        tuned = self.options.max_autotune
        if self.options.compile and (device == "cuda" if tuned is None else tuned):
            modes.append("torch.compile-max-autotune")
        if self.options.vendor and device == "cuda":
            from kopt_torch.vendor import convolves

            modes += ["vendor", "vendor-channels-last"] if convolves(problem) else []
        for pooled in (False, True) if device == "cpu" else (False,):
            for mode in modes:
                yield _baseline(problem, mode, pooled=pooled)

    @kopt.hookimpl
    def kopt_warm_up(self, purpose: str) -> None:
        """Import torch, and for baselines what torch.compile takes at its first call."""
        if purpose not in ("torch", "baselines", "reference"):
            return
        needed = "reference" if purpose == "reference" else "executable"
        importlib.import_module(f"kopt_torch.{needed}")
        if purpose == "reference":
            importlib.import_module("torch._dynamo")  # fake tensors, with which it is traced
        if purpose == "baselines" and self.options.compile:
            importlib.import_module("torch._inductor.compile_fx")

    @kopt.hookimpl
    def kopt_build(
        self, problem: Problem, candidate: Candidate, context: BuildContext
    ) -> Executable | None:
        """Import a Python candidate; compile it where it is that baseline."""
        if candidate.language != "torch":
            return None
        from kopt.model.evaluation import Build
        from kopt_torch.executable import PythonExecutable
        from kopt_torch.modules import load_entry
        from kopt_torch.precision import apply_precision

        apply_precision(problem)
        start = monotonic()
        entry = load_entry(candidate, context.scratch())
        executable = PythonExecutable
        if (mode := str(candidate.settings.get("baseline", ""))).startswith("torch.compile"):
            from kopt_torch.compiled import CompiledExecutable, compiled

            entry = compiled(entry, tuned=mode.endswith("max-autotune"))
            executable = CompiledExecutable
        elif mode.startswith("vendor"):
            from kopt_torch.vendor import switched

            entry = switched(entry, channels_last=mode.endswith("channels-last"))
        build = Build(
            backend="torch", binary_id=candidate.id, seconds=monotonic() - start, cached=False
        )
        return executable(build, entry, candidate.chosen)


def uncompiled(package: str) -> Path | None:
    """Return where a package lies that has no bytecode for this Python; it is not imported."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    compiled = Path(importlib.util.cache_from_source(spec.origin))
    return None if compiled.exists() else Path(spec.origin).parent.parent


def _baseline(problem: Problem, mode: str, *, pooled: bool) -> Candidate:
    reference = problem.reference
    name = f"{mode}-pooled" if pooled else mode
    return Candidate(
        language="torch", source=reference.source, entry=reference.entry, strategy="baseline",
        idea=name, settings={"kind": reference.kind, "baseline": mode, "pooled": pooled},
    )  # fmt: skip

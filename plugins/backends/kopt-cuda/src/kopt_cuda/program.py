"""A compiled candidate: its cubin, its kernels, and what a call would launch of them."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kopt.errors import CandidateError
from kopt.model.record import content_id
from kopt.model.verification import Status
from kopt_cuda import limits
from kopt_cuda.binding import Resolver, missing_kernel
from kopt_cuda.compiling import CUBIN, LOG, compile_cubin, compile_ptx
from kopt_cuda.includes import contents
from kopt_cuda.plan import fault, plan_of
from kopt_cuda.resources import KernelResources, resources_of
from kopt_cuda.signatures import kernels_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kopt.model.candidate import Candidate
    from kopt.model.executable import BuildContext
    from kopt.model.values import CallSpec, TensorRef
    from kopt_cuda.architectures import Architecture
    from kopt_cuda.binding import ResolvedLaunch
    from kopt_cuda.plan import Plan
    from kopt_cuda.signatures import Kernel
    from kopt_cuda.toolchain import Toolchain


@dataclass(frozen=True)
class Recipe:
    """All that a compiler is given, beside the source."""

    toolchain: Toolchain
    target: str
    """As ``sm_90a``."""
    options: tuple[str, ...]
    includes: tuple[str, ...]

    def compile(self, source: str, folder: Path) -> None:
        """Write source, cubin and log into a folder. Raises CandidateError."""
        compile_cubin(self.toolchain, source, self.target, self.options, self.includes, folder)

    def ptx(self, source: str, folder: Path) -> str:
        """Return the PTX of a source, made in an empty folder. Raises CandidateError."""
        return compile_ptx(self.toolchain, source, self.target, self.options, self.includes, folder)


@dataclass(frozen=True)
class Program:
    """What was made of a candidate for one architecture."""

    source: str
    plan: Plan
    kernels: dict[str, Kernel]
    knobs: dict[str, Any]
    architecture: Architecture
    folder: Path
    cached: bool
    log: str
    resources: dict[str, KernelResources]
    """Of each kernel by itself."""
    recipe: Recipe

    @property
    def cubin(self) -> Path:
        """The binary's file."""
        return self.folder / CUBIN

    def resolver(self, call: CallSpec, address: Callable[[TensorRef], int]) -> Resolver:
        """Return what evaluates the plan for a call whose tensors lie at these addresses."""
        return Resolver(self.source, self.plan, self.kernels, self.knobs, call, address)

    def used(self, launches: Sequence[ResolvedLaunch]) -> list[KernelResources]:
        """Return what each launch uses. Raises CandidateError where the GPU would refuse one."""
        found = []
        for used, refusal in self.examined(launches):
            if refusal is not None:
                raise refusal
            found.append(used)
        return found

    def examined(
        self, launches: Sequence[ResolvedLaunch]
    ) -> Iterator[tuple[KernelResources, CandidateError | None]]:
        """Yield what each launch uses, and why the GPU would refuse it.

        Raises CandidateError where a kernel is not in the binary.
        """
        for index, launch in enumerate(launches):
            kernel = self.resources.get(launch.kernel)
            if kernel is None:  # it was compiled away, as by an #if around it
                raise missing_kernel(self.source, launch.kernel, self.resources_known(), index)
            used = limits.used_by(kernel, launch)
            try:
                limits.check(self.source, index, launch, used, self.architecture)
            except CandidateError as error:
                exceeded = (_exceeded(used, self.architecture) or error.detail,)
                yield used.model_copy(update={"limits_exceeded": exceeded}), error
            else:
                yield used, None

    def resources_known(self) -> dict[str, Kernel]:
        """Return the kernels that are in the binary."""
        return {name: each for name, each in self.kernels.items() if name in self.resources}


def compiled(
    candidate: Candidate, context: BuildContext, toolchain: Toolchain, architecture: Architecture,
    flags: Sequence[str], includes: Sequence[str],
) -> Program:  # fmt: skip
    """Compile a candidate, or take an intact earlier build of the same. Raises CandidateError."""
    plan = plan_of(candidate)
    source, knobs = candidate.source, candidate.chosen
    texts = {name: _literal(value) for name, value in sorted(knobs.items())}
    kernels = kernels_of(source, texts)
    for name in (candidate.entry, *(launch.kernel for launch in plan.launch)):
        if name not in kernels:
            raise missing_kernel(source, name, kernels)
    if (clustered := [each.cluster for each in plan.launch if each.cluster]) and (
        not architecture.clusters
    ):
        raise fault(
            source, f"{architecture.name} has no thread-block clusters; they begin with sm_90",
            "cluster", *clustered, status=Status.UNSUPPORTED,
        )  # fmt: skip
    options = [*flags, *plan.flags, *(f"-D{name}={text}" for name, text in texts.items())]
    target = architecture.compiled_as(source, plan.architecture_specific)
    recipe = Recipe(toolchain, target, tuple(options), tuple(includes))
    headers = contents(source, includes, toolchain.includes)
    if headers is None:  # whether one changed cannot be told: never reused
        headers = {"unknown": secrets.token_hex(16)}
    key = content_id(
        "cuda 2", source, target, options, list(includes), toolchain.to_json(), headers
    )
    folder = context.cached(key)
    cached = folder is not None
    if folder is None:
        made = context.scratch()
        recipe.compile(source, made)
        folder = context.keep(key, made)
    log = (folder / LOG).read_text(encoding="utf-8")
    return Program(
        source, plan, kernels, knobs, architecture, folder, cached, log, resources_of(log), recipe
    )


def _exceeded(used: KernelResources, on: Architecture) -> str:
    """Return in a few words that a block needs too much shared memory; empty where it does not."""
    if used.shared_bytes <= on.shared_bytes:
        return ""
    return f"shared memory: {used.shared_bytes} of {on.shared_bytes} bytes"


def _literal(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)

"""CUDA C++ candidates on a GPU: loaded by cupy, launched on torch's current stream."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import torch

from kopt.model.origin import Origin
from kopt.model.values import CallClaim, OutputClaim
from kopt.worker.segments import ITEM_BYTES
from kopt_cuda.driver import PreparedLaunch, zero
from kopt_torch.executable import PythonExecutable, as_candidate_error
from kopt_torch.tensors import DTYPES, OpenTensors

if TYPE_CHECKING:
    from kopt.model.evaluation import Build
    from kopt.model.executable import BoundCall, Memory
    from kopt.model.values import CallSpec, TensorRef
    from kopt_cuda.binding import ResolvedLaunch, Resolver
    from kopt_cuda.program import Program


class CudaExecutable(PythonExecutable):
    """A loaded cubin; its clock is that of kopt-torch. No Python of the candidate's runs.

    ``build.resources["kernels"]`` has, from the first ``bind`` on, what each launch uses.
    """

    def __init__(self, build: Build, program: Program) -> None:
        super().__init__(build, None, program.knobs)
        self._program = program
        self._functions: dict[str, Any] = {}
        self._dynamic_bytes: dict[str, int] = {}

    def bind(self, call: CallSpec, memory: Memory) -> BoundCall:
        """Open the tensors, allocate scratch memory and prepare each launch."""
        if self._opened is None:
            self._opened = OpenTensors(memory)
        with as_candidate_error():
            torch.cuda.init()
            return self.bound_to(call, self._opened)

    def bound_to(self, call: CallSpec, opened: OpenTensors) -> CudaCall:
        """Bind to tensors that something else than judge-owned memory may open."""
        tensors: list[torch.Tensor] = []

        def address(ref: TensorRef) -> int:
            tensors.append(opened.open(ref))
            return int(tensors[-1].data_ptr())

        resolver = self._program.resolver(call, address)
        resolver.check_required()
        zeroed = self._allocate(resolver, tensors)
        launches = resolver.launches()
        used = self._program.used(launches)
        resources = {**self.build.resources, "kernels": [each.to_json() for each in used]}
        self.build = self.build.model_copy(update={"resources": resources})
        prepared = [PreparedLaunch(self._function(each), each) for each in launches]
        return CudaCall(self, call, prepared, zeroed, tensors)

    def _allocate(self, resolver: Resolver, tensors: list[torch.Tensor]) -> list[tuple[int, int]]:
        """Make the scratch buffers; return address and bytes of those that calls begin with zero."""
        zeroed = []
        for name, (shape, dtype, is_zeroed) in resolver.scratch().items():
            made = torch.empty(shape, dtype=DTYPES[dtype], device="cuda")
            tensors.append(made)
            resolver.add_scratch(name, shape, dtype, made.data_ptr())
            if is_zeroed:
                zeroed.append((made.data_ptr(), prod(shape) * ITEM_BYTES[dtype]))
        return zeroed

    def _function(self, launch: ResolvedLaunch) -> int:
        """Return the driver's handle of a kernel that may use the launch's shared memory."""
        if launch.kernel not in self._functions:
            import cupy

            module = cupy.RawModule(path=str(self._program.cubin))
            self._functions[launch.kernel] = module.get_function(launch.kernel)
        kernel = self._functions[launch.kernel]
        if launch.shared > self._dynamic_bytes.get(launch.kernel, 0):
            kernel.max_dynamic_shared_size_bytes = launch.shared
            self._dynamic_bytes[launch.kernel] = launch.shared
        return int(kernel.kernel.ptr)

    def start_tracer(self) -> None:
        """Its origin needs no tracer, and a timeline loads its own."""

    def origin(self, bound: BoundCall) -> Origin:
        """Nothing but the candidate's own kernels is in the cubin or launched by the plan."""
        return Origin()


class CudaCall:
    """One bound call; results go straight to the judge's outputs."""

    def __init__(
        self, executable: CudaExecutable, call: CallSpec, launches: list[PreparedLaunch],
        zeroed: list[tuple[int, int]], tensors: list[torch.Tensor],
    ) -> None:  # fmt: skip
        """``tensors``: all that the launches point into, kept alive."""
        self._executable, self._launches, self._zeroed = executable, launches, zeroed
        self._tensors = tensors
        self._claim = CallClaim(
            structure=call.structure,
            outputs=tuple(
                OutputClaim(dtype=ref.dtype, shape=ref.shape, device="cuda") for ref in call.outputs
            ),
        )

    def launch(self) -> None:
        """Start the plan's launches in order, on torch's current stream."""
        stream = torch.cuda.current_stream().cuda_stream
        for address, nbytes in self._zeroed:
            zero(address, nbytes, stream)
        for start in self._launches:
            start(stream)

    def collect(self) -> CallClaim:
        """Wait, and describe the outputs, whose form a destination-passing call cannot change."""
        self._executable.synchronize()
        return self._claim

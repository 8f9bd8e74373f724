"""A problem made runnable with PyTorch, in the judge process."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kopt.errors import ProblemError
from kopt.model.problem import ArgumentInfo, Signature, TensorInfo, WorkloadSignature
from kopt_torch import drawing, machine
from kopt_torch.drawing import Draw, draw
from kopt_torch.inputs import TorchInputs
from kopt_torch.precision import apply_precision
from kopt_torch.source import ReferenceFunction
from kopt_torch.structure import flatten
from kopt_torch.tensors import ITEM_BYTES, NAMES
from kopt_torch.trace import TraceMode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kopt.model.device import DeviceKind
    from kopt.model.problem import OperatorCall, Problem, Workload
    from kopt.model.reference import InputSet

_CHUNK_BYTES = 2 << 30
"""The oracle works on slices of this size along the first dimension, where that is exact."""


class TorchReference:
    """See kopt.model.reference.Reference."""

    def __init__(self, problem: Problem, kind: DeviceKind) -> None:
        apply_precision(problem)
        self.problem = problem
        self.device = machine.find_device(kind)
        self._function = ReferenceFunction(problem, kind)
        workloads = {w.name: self._signature(w) for w in problem.workloads}
        self.signature = Signature(workloads=workloads)
        self._distributions = self._usable_distributions()

    @property
    def distributions(self) -> tuple[str, ...]:
        """``native``, and ``signed`` where the reference is finite on it."""
        return self._distributions

    def _draw(
        self, workload: Workload, seed: int, distribution: str
    ) -> tuple[Draw, dict[str, torch.Tensor]]:
        drawn = draw(self.problem, self._function, workload, seed, distribution)
        state = self._function.state
        if distribution != "native":
            state = drawing.randomised(state, seed)
        return drawn, state

    def inputs(self, workload: str, seed: int, distribution: str = "native") -> TorchInputs:
        """Draw a set of arguments in shared memory."""
        chosen = self.problem.workload(workload)
        return TorchInputs(
            lambda: self._draw(chosen, seed, distribution), self.signature.workloads[workload],
            workload=workload, seed=seed, distribution=distribution, init=self._function.init,
            mutates=self.problem.mutates, device=self.device.kind,
        )  # fmt: skip

    def _signature(self, workload: Workload) -> WorkloadSignature:
        drawn, state = self._draw(workload, 0, "native")
        sums = {name: v._version for name, v, _ in drawn.named() if isinstance(v, torch.Tensor)}
        trace = self._trace(drawn, state)
        result = self._function(drawn.values, drawn.keywords, state)
        touched = [n for n, v, _ in drawn.named() if n in sums and v._version != sums[n]]
        if undeclared := set(touched) - set(self.problem.mutates):
            raise ProblemError(
                f"the reference of {self.problem.name!r} changes {', '.join(sorted(undeclared))} in "
                f"place; declare it: mutates = {sorted(touched)!r}"
            )
        leaves, structure = flatten(result)
        outputs = tuple(_info(f"out{i}", leaf) for i, leaf in enumerate(leaves))
        arguments = tuple(_argument(*item) for item in drawn.named()) + tuple(
            ArgumentInfo(name=name, kind="state", tensor=_info(name, tensor))
            for name, tensor in state.items()
        )
        mutated = [a.tensor for a in arguments if a.name in self.problem.mutates and a.tensor]
        read = _tensor_bytes([drawn.values, drawn.keywords, state])
        written = sum(_bytes(info) for info in [*outputs, *mutated])
        if not outputs and not mutated:
            raise ProblemError(f"the reference of {self.problem.name!r} returns {structure}, no tensor")
        return WorkloadSignature(
            arguments=arguments, outputs=outputs, structure=structure,
            compulsory_bytes=read + written, trace=trace,
        )  # fmt: skip

    def _trace(self, drawn: Draw, state: dict[str, torch.Tensor]) -> tuple[OperatorCall, ...]:
        """Run the reference on shapes alone; what cannot run so has no trace."""
        with contextlib.suppress(Exception), FakeTensorMode(allow_non_fake_inputs=True) as fake:
            def faked(value: Any) -> Any:
                return fake.from_tensor(value) if isinstance(value, torch.Tensor) else value

            values = [faked(value) for value in drawn.values]
            keywords = {name: faked(value) for name, value in drawn.keywords.items()}
            fake_state = {name: faked(value) for name, value in state.items()}
            named = {**dict(zip(drawn.names, values, strict=True)), **keywords, **fake_state}
            tensors = {n: v for n, v in named.items() if isinstance(v, torch.Tensor)}
            with TraceMode(tensors) as mode:
                self._function(values, keywords, fake_state)
            return tuple(mode.calls)
        return ()

    def _usable_distributions(self) -> tuple[str, ...]:
        workload = min(
            self.problem.workloads,
            key=lambda w: self.signature.workloads[w.name].compulsory_bytes,
        )
        finite = {}
        for name in ("native", "signed"):
            drawn, state = self._draw(workload, 1, name)
            leaves, _ = flatten(self._function(drawn.values, drawn.keywords, state))
            floats = [leaf for leaf in leaves if leaf.dtype.is_floating_point]
            finite[name] = all(bool(torch.isfinite(leaf).all()) for leaf in floats)
        return ("native", "signed") if finite["signed"] or not finite["native"] else ("native",)

    def expected(self, inputs: InputSet) -> list[torch.Tensor]:
        """Run the reference as the user does, on copies of what it changes."""
        assert isinstance(inputs, TorchInputs)
        return self._results(inputs, float64=False)

    def oracle(self, inputs: InputSet) -> list[torch.Tensor]:
        """Run the reference in float64, in slices where the inputs are large and that is exact."""
        assert isinstance(inputs, TorchInputs)
        count = self._slices(inputs)
        if count > 1:
            return self._sliced(inputs, count)
        return self._results(inputs, float64=True)

    def _results(
        self, inputs: TorchInputs, *, float64: bool, rows: slice | None = None
    ) -> list[torch.Tensor]:
        positional, keywords = inputs.arguments
        names = [a.name for a in inputs.call.arguments if not a.keyword]
        mine = dict(zip(names, positional, strict=True)) | keywords
        for name in self.problem.mutates:
            mine[name] = mine[name].clone()
        if rows is not None:
            mine = {name: _rows(value, rows) for name, value in mine.items()}
        run = self._function.in_float64 if float64 else self._function
        before = {name: mine[name] for name in self.problem.mutates}
        if float64:  # widen here, so that what is changed in place is ours to look at
            before = {name: _wide(value) for name, value in before.items()}
            mine |= before
        result = run([mine[n] for n in names], {n: mine[n] for n in keywords}, inputs.state)
        leaves, _ = flatten(result)
        self._trim()
        return [*leaves, *before.values()]

    def _slices(self, inputs: TorchInputs) -> int:
        """How many slices along the first dimension: 1 unless large and proven independent."""
        widest = sum(t.numel() * 8 for t in inputs.tensors.values())
        count = -(-widest // _CHUNK_BYTES)
        rows = {t.shape[0] for _, t in inputs.results if t.dim()}
        if count <= 1 or len(rows) != 1 or self.problem.mutates:
            return 1
        (extent,) = rows
        count = min(count, extent)
        if count <= 1 or not any(
            isinstance(v, torch.Tensor) and v.dim() and v.shape[0] == extent
            for v in inputs.arguments[0]
        ):
            return 1
        part = slice(0, -(-extent // count))
        whole = self.expected(inputs)
        sliced = self._results(inputs, float64=False, rows=part)
        same = all(torch.allclose(w[part], s, equal_nan=True) for w, s in zip(whole, sliced, strict=True))
        return count if same else 1

    def _sliced(self, inputs: TorchInputs, count: int) -> list[torch.Tensor]:
        extent = inputs.results[0][1].shape[0]
        step = -(-extent // count)
        parts = [
            self._results(inputs, float64=True, rows=slice(start, start + step))
            for start in range(0, extent, step)
        ]
        return [torch.cat(column) for column in zip(*parts, strict=True)]

    def copy_ms(self, nbytes: int) -> float:
        """Median time of a plain copy that reads and writes ``nbytes`` in all."""
        return machine.copy_ms(nbytes, self.device)

    def _trim(self) -> None:
        if self.device.kind == "cuda":
            torch.cuda.empty_cache()

    def close(self) -> None:
        """Give cached memory back."""
        self._trim()


def _rows(value: Any, rows: slice) -> Any:
    return value[rows] if isinstance(value, torch.Tensor) and value.dim() else value


def _wide(value: torch.Tensor) -> torch.Tensor:
    return value.double() if value.dtype.is_floating_point else value


def _info(name: str, tensor: torch.Tensor) -> TensorInfo:
    if tensor.dtype not in NAMES:
        raise ProblemError(
            f"{name} has dtype {tensor.dtype}, which kopt does not carry; use one of "
            f"{', '.join(ITEM_BYTES)}"
        )
    return TensorInfo(name=name, dtype=NAMES[tensor.dtype], shape=tuple(tensor.shape))


def _argument(name: str, value: Any, keyword: bool) -> ArgumentInfo:
    if isinstance(value, torch.Tensor):
        return ArgumentInfo(name=name, kind="tensor", tensor=_info(name, value))
    if value is None or isinstance(value, bool | int | float | str):
        return ArgumentInfo(name=name, kind="scalar", value=value)
    return ArgumentInfo(name=name, kind="other")


def _bytes(info: TensorInfo) -> int:
    return info.elements * ITEM_BYTES[info.dtype]


def _tensor_bytes(tree: Any) -> int:
    from torch.utils._pytree import tree_leaves

    tensors: Iterator[torch.Tensor] = (x for x in tree_leaves(tree) if isinstance(x, torch.Tensor))
    return sum(t.numel() * t.element_size() for t in tensors)

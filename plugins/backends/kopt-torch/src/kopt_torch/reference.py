"""A problem made runnable with PyTorch, in the judge process."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kopt.errors import ProblemError
from kopt.model.problem import ArgumentInfo, Signature, TensorInfo, WorkloadSignature
from kopt.model.reference import Answer
from kopt.worker.segments import ITEM_BYTES
from kopt_torch import drawing, machine
from kopt_torch.drawing import Draw, draw
from kopt_torch.inputs import TorchInputs
from kopt_torch.likeness import alike, close, content
from kopt_torch.precision import apply_precision
from kopt_torch.source import ReferenceFunction
from kopt_torch.structure import flatten
from kopt_torch.tensors import NAMES, all_finite
from kopt_torch.trace import TraceMode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kopt.model.device import DeviceKind
    from kopt.model.problem import OperatorCall, Problem, Workload
    from kopt.model.reference import InputSet

_NOTHING: Mapping[str, Any] = {}
_CHUNK_BYTES = 2 << 30
"""Float64 bytes of inputs and outputs above which the oracle works on slices of rows."""


class TorchReference:
    """See kopt.model.reference.Reference."""

    def __init__(self, problem: Problem, kind: DeviceKind) -> None:
        apply_precision(problem)
        self.problem = problem
        self.device = machine.find_device(kind)
        self._function = ReferenceFunction(problem, kind)
        self._slices: dict[str, int] = {}
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
            lambda seed: self._draw(chosen, seed, distribution), self.signature.workloads[workload],
            workload=workload, seed=seed, distribution=distribution, init=self._function.init,
            mutates=self.problem.mutates, device=self.device.kind,
        )  # fmt: skip

    def _signature(self, workload: Workload) -> WorkloadSignature:
        drawn, state = self._draw(workload, 0, "native")
        trace = self._trace(drawn, state)
        leaves, structure = self._first_run(drawn, state)
        self._slices[workload.name] = self._count_slices(drawn, state, leaves)
        outputs = tuple(_info(f"out{i}", leaf) for i, leaf in enumerate(leaves))
        arguments = tuple(_argument(*item) for item in drawn.named()) + tuple(
            ArgumentInfo(name=name, kind="state", tensor=_info(name, tensor))
            for name, tensor in state.items()
        )
        mutated = [a.tensor for a in arguments if a.name in self.problem.mutates and a.tensor]
        read = _tensor_bytes([drawn.values, drawn.keywords, state])
        written = sum(_bytes(info) for info in [*outputs, *mutated])
        if not outputs and not mutated:
            raise ProblemError(
                f"the reference of {self.problem.name!r} returns {structure}, no tensor"
            )
        return WorkloadSignature(
            arguments=arguments, outputs=outputs, structure=structure,
            compulsory_bytes=read + written, trace=trace,
        )  # fmt: skip

    def _first_run(self, drawn: Draw, state: dict[str, torch.Tensor]) -> tuple[list[Any], str]:
        """Run the reference; refuse names that clash and changes that are not declared."""
        name = self.problem.name
        if clash := sorted({n for n, _, _ in drawn.named()} & set(state)):
            raise ProblemError(
                f"the reference of {name!r} has an argument and a parameter or buffer of one name: "
                f"{', '.join(clash)}; rename the argument"
            )
        values = {n: v for n, v, _ in drawn.named()}
        before = {n: content(v) for n, v in {**values, **state}.items()}
        result = self._function(drawn.values, drawn.keywords, state)
        touched = sorted(n for n, v in values.items() if content(v) != before[n])
        if set(touched) - set(self.problem.mutates):
            raise ProblemError(
                f"the reference of {name!r} changes {', '.join(touched)} in place; declare it: "
                f"mutates = {sorted({*touched, *self.problem.mutates})!r}"
            )
        if updated := sorted(n for n, v in state.items() if content(v) != before[n]):
            raise ProblemError(
                f"the reference of {name!r} changes its own buffers ({', '.join(updated)}); put the "
                "module into evaluation mode: module.eval()"
            )
        return flatten(result)

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
        self._refuse_random(workload)
        finite = {}
        for name in ("native", "signed"):
            finite[name] = self._is_finite(workload, name)
            self._trim()
        return ("native", "signed") if finite["signed"] or not finite["native"] else ("native",)

    def _refuse_random(self, workload: Workload) -> None:
        """Raise ProblemError where two runs on the same inputs differ by more than rounding."""
        runs = []
        for _ in range(2):
            drawn, state = self._draw(workload, 1, "native")
            runs.append(flatten(self._function(drawn.values, drawn.keywords, state))[0])
        if not alike(*runs):
            raise ProblemError(
                f"the reference of {self.problem.name!r} gives different results on the same inputs, "
                "so that nothing could be compared with it; if it draws random numbers, make what "
                "it draws an input"
            )

    def _is_finite(self, workload: Workload, distribution: str) -> bool:
        drawn, state = self._draw(workload, 1, distribution)
        leaves, _ = flatten(self._function(drawn.values, drawn.keywords, state))
        return all(all_finite(leaf) for leaf in leaves)

    def expected(self, inputs: InputSet) -> list[torch.Tensor]:
        """Run the reference as the user does, on copies of what it changes."""
        assert isinstance(inputs, TorchInputs)
        return self._results(inputs, float64=False)

    def expected_with(
        self, inputs: InputSet, arguments: Mapping[str, Any], state: Mapping[str, Any]
    ) -> list[torch.Tensor]:
        """Run the reference as the user does, with other values for some arguments and state."""
        assert isinstance(inputs, TorchInputs)
        return self._results(inputs, float64=False, arguments=arguments, state=state)

    def oracle(self, inputs: InputSet) -> list[torch.Tensor]:
        """Run the reference in float64."""
        assert isinstance(inputs, TorchInputs)
        return self._results(inputs, float64=True)

    def answers(self, inputs: InputSet) -> Iterator[Answer]:
        """Yield what the results should be; large inputs in slices of the first dimension."""
        assert isinstance(inputs, TorchInputs)
        count = self._slices.get(inputs.workload, 1)
        extent = inputs.results[0][1].shape[0] if count > 1 else 0
        step = -(-extent // count)
        parts = (
            [slice(i, min(i + step, extent)) for i in range(0, extent, step)] if step else [None]
        )
        for rows in parts:
            expected = self._results(inputs, float64=False, rows=rows)
            yield Answer(
                rows or slice(None), expected, self._results(inputs, float64=True, rows=rows)
            )

    def _results(
        self,
        inputs: TorchInputs,
        *,
        float64: bool,
        rows: slice | None = None,
        arguments: Mapping[str, Any] = _NOTHING,
        state: Mapping[str, Any] = _NOTHING,
    ) -> list[torch.Tensor]:
        positional, keywords = inputs.arguments
        names = [a.name for a in inputs.call.arguments if not a.keyword]
        mine = dict(zip(names, positional, strict=True)) | keywords | dict(arguments)
        for name in self.problem.mutates:
            mine[name] = mine[name].clone()
        if rows is not None:
            mine = {name: _rows(value, rows) for name, value in mine.items()}
        run = self._function.in_float64 if float64 else self._function
        before = {name: mine[name] for name in self.problem.mutates}
        if float64:  # widen here, so that what is changed in place is ours to look at
            before = {name: _wide(value) for name, value in before.items()}
            mine |= before
        used = inputs.state | dict(state)
        result = run([mine[n] for n in names], {n: mine[n] for n in keywords}, used)
        leaves, _ = flatten(result)
        self._trim()
        return [*leaves, *before.values()]

    def _count_slices(
        self, drawn: Draw, state: dict[str, torch.Tensor], leaves: list[torch.Tensor]
    ) -> int:
        """How many slices along the first dimension: 1 unless large and rows are independent.

        Rows count as independent where the reference gives the same on a slice as on the whole.
        """
        tensors = [v for v in drawn.values if isinstance(v, torch.Tensor) and v.dim()]
        count = -(-sum(t.numel() * 8 for t in [*tensors, *leaves]) // _CHUNK_BYTES)
        extents = {leaf.shape[0] if leaf.dim() else 0 for leaf in leaves}
        if count <= 1 or len(extents) != 1 or self.problem.mutates or drawn.keywords:
            return 1
        extent = extents.pop()
        count = min(count, extent)
        if count <= 1 or not tensors or any(t.shape[0] != extent for t in tensors):
            return 1
        step = -(-extent // count)
        # Both ends: what runs along the dimension (a cumulative sum) is right at one of them.
        ends = slice(0, step), slice((extent - 1) // step * step, extent)
        independent = all(self._same_on(rows, drawn, state, leaves) for rows in ends)
        return count if independent else 1

    def _same_on(
        self, rows: slice, drawn: Draw, state: dict[str, torch.Tensor], leaves: list[torch.Tensor]
    ) -> bool:
        """Whether the reference gives on these rows of its arguments what it gives on all."""
        try:
            result = self._function([_rows(v, rows) for v in drawn.values], {}, state)
        except ProblemError:  # as where the other operand is a square matrix, or a vector
            return False
        parts, _ = flatten(result)
        return len(parts) == len(leaves) and all(
            close(whole[rows], part) for whole, part in zip(leaves, parts, strict=True)
        )

    def copy_ms(self, nbytes: int) -> float:
        """Median time of a plain copy that reads and writes ``nbytes`` in all."""
        return machine.copy_ms(nbytes, self.device)

    def _trim(self) -> None:
        if self.device.kind == "cuda":
            torch.cuda.ipc_collect()  # memory that other processes have let go of
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

"""The data flow of a workload's trace: which operators and inputs an output needs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kopt.worker.segments import ITEM_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kopt.model.problem import OperatorCall, TensorInfo, WorkloadSignature

VIEWS = frozenset({
    "_unsafe_view", "alias", "as_strided", "detach", "diagonal", "expand", "lift_fresh", "narrow",
    "permute", "reshape", "select", "slice", "split", "split_with_sizes", "chunk", "squeeze", "t",
    "transpose", "unbind", "unfold", "unsafe_chunk", "unsafe_split", "unsqueeze", "view",
    "view_as_complex", "view_as_real",
})  # fmt: skip
"""Operators that only look at memory in another way."""
_EMPTY = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})
"""Operators that produce nothing yet."""
_LOOKUPS = frozenset({"embedding", "gather", "index", "index_select", "take"})
"""Operators that read no more of their first argument than they have elements in the result."""


class Flow:
    """Where the values of a trace come from."""

    def __init__(self, workload: WorkloadSignature) -> None:
        self._trace = workload.trace
        self._tensors = {a.name: a.tensor for a in workload.arguments if a.tensor is not None}
        self._sizes = {name: info.elements for name, info in self._tensors.items()}
        for call in self._trace:
            sizes = (math.prod(shape) for shape in call.shapes)
            self._sizes |= dict(zip(call.outputs, sizes, strict=False))
        self._memory = self._whose_memory()
        self.results = _results(workload)
        """The trace's name of each output that an operator made, by the output's name."""
        self.written = {out.name: _bytes(out) for out in workload.outputs}
        """Bytes by name of output."""
        self.known = all(argument.kind != "other" for argument in workload.arguments)
        """Whether each argument is a tensor or a scalar: tensors in lists have no name of their own."""
        found = self.results.keys() == self.written.keys()
        self.complete = bool(self._trace) and self.known and found
        """Whether there is a trace, each output was found in it, and the arguments are known."""
        for name in sorted(self._changed_arguments()):
            self.results[name] = name
            self.written[name] = _bytes(self._tensors[name])

    def _whose_memory(self) -> dict[str, str]:
        """Where something is changed in place: of each name for it, the value that it belongs to."""
        owner: dict[str, str] = {}
        if not any(_changed(call) for call in self._trace):
            return owner
        for call in self._trace:
            pairs = list(zip(call.outputs, _changed(call), strict=False))
            if call.inputs and _operator(call) in VIEWS:
                pairs = [(output, call.inputs[0]) for output in call.outputs]
            for output, value in pairs:
                if output != value:
                    owner.setdefault(output, owner.get(value, value))
        return owner

    def _owner(self, name: str) -> str:
        return self._memory.get(name, name)

    def _changed_arguments(self) -> set[str]:
        changed = {self._owner(value) for call in self._trace for value in _changed(call)}
        return changed & self._tensors.keys()

    def needed(self, results: Mapping[str, str]) -> list[OperatorCall]:
        """Return the operators that some results need, in order."""
        wanted = {self._owner(value) for value in results.values()}
        found = []
        for call in reversed(self._trace):
            if wanted.isdisjoint(map(self._owner, call.outputs)):
                continue
            found.append(call)
            wanted.update(map(self._owner, call.inputs))
        return found[::-1]

    def bytes_read(self, results: Mapping[str, str]) -> int:
        """Return the bytes of arguments that some results need, each at most once."""
        wanted = {value: self._sizes.get(value, 0) for value in results.values()}

        def want(value: str, elements: int) -> None:
            wanted[value] = min(wanted.get(value, 0) + elements, self._sizes.get(value, 0))

        for call in reversed(self.needed(results)):
            name, first = _operator(call), call.inputs[:1]
            for value in first:
                if name in VIEWS:
                    want(value, sum(wanted.get(output, 0) for output in call.outputs))
                elif name in _LOOKUPS:
                    want(value, sum(map(math.prod, call.shapes)))
                else:
                    want(value, self._sizes.get(value, 0))
            for value in call.inputs[1:]:
                want(value, self._sizes.get(value, 0))
        return sum(wanted.get(n, 0) * ITEM_BYTES[t.dtype] for n, t in self._tensors.items())

    def elements(self, call: OperatorCall) -> int:
        """Return what an operator produces or reduces, in elements; 0 for one that only looks."""
        name = _operator(call)
        if name in VIEWS or name in _EMPTY:
            return 0
        produced = sum(math.prod(shape) for shape in call.shapes)
        if name in _LOOKUPS:
            return produced
        return max([produced, *(self._sizes.get(value, 0) for value in call.inputs)])


def _operator(call: OperatorCall) -> str:
    """Return ``mean`` for ``aten.mean.dim``."""
    parts = call.name.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def _changed(call: OperatorCall) -> tuple[str, ...]:
    """Return what an operator writes to: ``aten.add_.Tensor`` its first tensor, ``.out`` its last."""
    name = _operator(call)
    if name.endswith("_") and not name.startswith("__"):
        return call.inputs[:1]
    return call.inputs[-len(call.outputs) :] if call.name.endswith(".out") else ()


def _bytes(info: TensorInfo) -> int:
    return info.elements * ITEM_BYTES[info.dtype]


def _results(workload: WorkloadSignature) -> dict[str, str]:
    """Find outputs in the trace: by their name, or the only one by its shape among the last."""
    made = {name for call in workload.trace for name in call.outputs}
    found = {out.name: out.name for out in workload.outputs if out.name in made}
    if len(workload.outputs) != 1 or found:
        return found
    out = workload.outputs[0]
    for call in reversed(workload.trace):
        for name, shape in zip(call.outputs, call.shapes, strict=False):
            if shape == out.shape:
                return {out.name: name}
    return {}

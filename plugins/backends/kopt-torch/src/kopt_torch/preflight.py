"""How much memory a problem takes, from shapes alone, before any of it is taken."""

from __future__ import annotations

import weakref
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from kopt.errors import ProblemError
from kopt.model.expressions import evaluate
from kopt_torch.slices import CHUNK_BYTES
from kopt_torch.tensors import DTYPES

if TYPE_CHECKING:
    from kopt.model.device import Device
    from kopt.model.problem import InputSpec, Problem, Workload
    from kopt_torch.source import ReferenceFunction

_ORACLE = 3
"""Float64 tensors of inputs' and outputs' size that the oracle has at a time."""
_RUNNING = 3
"""Processes beside the judge that run something like the reference at a time: the baselines', the
candidate's, and in a confirmation its twin's or a sanitizer's."""
_CONTEXTS = {"cuda": 5 << 30}
"""Bytes of a device that contexts and libraries take in all processes of a run: 0.5 to 0.6 GB each
on an H200, and the workspaces of cuBLAS and cuDNN."""


def memory_needed(
    problem: Problem, function: ReferenceFunction, workload: Workload, *, whole: bool = False
) -> int:
    """Return the bytes that judging one candidate takes at least; 0 where shapes do not tell.

    Inputs, state and outputs in shared memory, what the candidate returns, what the reference
    returns, and the oracle's slice in float64, or where it has none (``whole``) all of it.
    Intermediate results come on top.
    """
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            values, keywords = arguments(problem, function, workload)
            result = function(values, keywords, function.state)
    except (Exception, SystemExit):  # noqa: BLE001 - a user's code, on tensors without content
        return 0
    given = _tensors([values, keywords, function.state])
    returned = _tensors(result)
    wide = 8 * sum(int(t.numel()) for t in [*given, *returned])
    oracle = _ORACLE * (wide if whole else min(wide, CHUNK_BYTES))
    return _bytes(given) + 3 * _bytes(returned) + oracle


def room_needed(
    problem: Problem, function: ReferenceFunction, workload: Workload, needed: int
) -> int:
    """Return the bytes that a run takes in all its processes at a time; 0 where shapes do not tell.

    ``needed``, which is what judging takes (see ``memory_needed``), and in each process that runs something like the reference its intermediate
    results and a copy of the inputs in another layout.
    """
    if not needed:
        return 0
    with FakeTensorMode(allow_non_fake_inputs=True), Peak() as peak:
        values, keywords = arguments(problem, function, workload)
        given = _bytes(_tensors([values, keywords, function.state]))
        peak.begin()
        function(values, keywords, function.state)
    running: int = _RUNNING * (peak.nbytes + given)
    return needed + running + _CONTEXTS.get(function.device, 0)


class Peak(TorchDispatchMode):
    """Notes the most bytes that results of operators take at a time, for as long as it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self._tensors: Counter[int] = Counter()
        """Tensors alive, by the storage that they are views of."""
        self._live = 0
        self.nbytes = 0

    def begin(self) -> None:
        """Count what is made from here on."""
        self._live = self.nbytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator, and count what it made."""
        before = {_storage(tensor) for tensor in _tensors([args, kwargs])}
        result = func(*args, **(kwargs or {}))
        for tensor in _tensors(result):
            key = _storage(tensor)
            given = key in before or func.is_view
            if key in self._tensors or not given:
                self._count(tensor, key)
        self.nbytes = max(self.nbytes, self._live)
        return result

    def _count(self, tensor: torch.Tensor, key: int) -> None:
        size = tensor.untyped_storage().nbytes()
        self._live += 0 if self._tensors[key] else size
        self._tensors[key] += 1
        weakref.finalize(tensor, self._end, key, size).atexit = False

    def _end(self, key: int, size: int) -> None:
        self._tensors[key] -= 1
        if not self._tensors[key]:
            del self._tensors[key]
            self._live -= size


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def check_memory(problem: Problem, workload: Workload, device: Device, needed: int) -> None:
    """Raise ProblemError where a device has less memory than a workload takes at least."""
    if needed > device.memory_bytes:
        raise ProblemError(
            f"workload {workload.name!r} of {problem.name!r} needs at least {needed / 1e9:.1f} GB "
            f"(inputs, outputs three times, and a float64 slice of both for the oracle), and "
            f"{device.name} has {device.memory_bytes / 1e9:.1f} GB; make the workload smaller"
        )


def arguments(
    problem: Problem, function: ReferenceFunction, workload: Workload
) -> tuple[list[Any], dict[str, Any]]:
    """Return positional and keyword arguments without content: called where tensors are fake."""
    if not problem.inputs:
        assert function.get_inputs is not None
        with torch.device(function.device):
            return list(function.get_inputs()), {}
    values = [(spec, _empty(spec, workload, function.device)) for spec in problem.inputs]
    return (
        [value for spec, value in values if not spec.keyword],
        {spec.name: value for spec, value in values if spec.keyword},
    )


def _empty(spec: InputSpec, workload: Workload, device: str) -> Any:
    if spec.shape is None:
        return spec.value
    shape = [int(evaluate(e, workload.sizes)) if isinstance(e, str) else e for e in spec.shape]
    return torch.empty(shape, dtype=DTYPES[spec.dtype], device=device)


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _bytes(tensors: list[torch.Tensor]) -> int:
    return sum(int(t.numel()) * int(t.element_size()) for t in tensors)

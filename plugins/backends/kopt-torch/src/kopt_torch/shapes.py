"""What a reference needs and does, from shapes alone: no memory is taken and nothing is computed."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from kopt.errors import ProblemError
from kopt.model.problem import Signature
from kopt_torch.describing import describe
from kopt_torch.drawing import Draw
from kopt_torch.preflight import arguments
from kopt_torch.source import ReferenceFunction
from kopt_torch.structure import flatten
from kopt_torch.trace import traced

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kopt.model.problem import Problem, Workload, WorkloadSignature


def signature_by_shapes(problem: Problem, device: str = "cpu") -> Signature:
    """Return the signature of a problem of any size, its trace included; ``memory_bytes`` is 0.

    :param device: ``cpu`` or ``cuda``, for which operators the framework chooses. It has to be
        there; work and bytes are the same for both.
    Raises ProblemError where shapes alone do not tell, as where values decide what is done.
    """
    function = _opened(problem, device)
    with _explained(problem), FakeTensorMode(allow_non_fake_inputs=True) as fake:
        state = {n: t if isinstance(t, FakeTensor) else fake.from_tensor(t)
                 for n, t in function.state.items()}  # fmt: skip
        return Signature(
            workloads={w.name: _described(problem, function, state, w) for w in problem.workloads}
        )


def _opened(problem: Problem, device: str) -> ReferenceFunction:
    """Make the reference without memory for its state.

    With it where that fails: a pickled module brings its tensors along, and some look at a value
    when they are made.
    """
    if problem.reference.kind != "pickled":
        with contextlib.suppress(Exception), FakeTensorMode(allow_non_fake_inputs=True):
            return ReferenceFunction(problem, device)
    return ReferenceFunction(problem, device)


@contextlib.contextmanager
def _explained(problem: Problem) -> Iterator[None]:
    try:
        yield
    except ProblemError:
        raise
    except Exception as error:
        raise ProblemError(
            f"problem {problem.name!r} cannot be analysed by shapes alone: {type(error).__name__}: "
            f"{error}; open it on its device instead, at a smaller workload if need be"
        ) from error


def _described(
    problem: Problem,
    function: ReferenceFunction,
    state: dict[str, torch.Tensor],
    workload: Workload,
) -> WorkloadSignature:
    values, keywords = arguments(problem, function, workload)
    values = [v.to(function.device) if isinstance(v, torch.Tensor) else v for v in values]
    names = [spec.name for spec in problem.inputs if not spec.keyword]
    if not problem.inputs:
        names = function.parameter_names()
        if len(names) < len(values):
            names = [f"argument{i}" for i in range(len(values))]
    drawn = Draw(names[: len(values)], values, keywords)
    calls, result = traced(function, drawn, state)
    leaves, structure = flatten(result)
    described = describe(problem, drawn, state, leaves, structure)
    return described.model_copy(update={"trace": calls})

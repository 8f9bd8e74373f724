"""A tracer that turns a torch function into the Signature that a real run would have recorded."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from kopt.model.candidate import Candidate
from kopt.model.device import Device, Target
from kopt.model.problem import (
    ArgumentInfo,
    OperatorCall,
    Problem,
    ReferenceSource,
    Signature,
    TensorInfo,
    WorkloadSignature,
)
from kopt.testing.caches import shared_cache
from kopt_starters import Starters

torch = pytest.importorskip("torch")

PROBLEM = Problem(
    name="traced",
    format="test",
    reference=ReferenceSource(kind="function", source="", entry="reference"),
)
CPU = Device(
    kind="cpu", name="test", architecture="x86_64", units=2, memory_bytes=1 << 33,
    cache_bytes=1 << 25,
)  # fmt: skip
GPU = Device(
    kind="cuda", name="test", architecture="sm_90", units=132, memory_bytes=80 << 30,
    cache_bytes=50 << 20,
)  # fmt: skip


@pytest.fixture(scope="session", autouse=True)
def precompiled_headers(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Give the headers of cuda_on_cpu.py a place that all test processes share."""
    folder = shared_cache(tmp_path_factory.getbasetemp() / "any") / "cuda-on-cpu"
    folder.mkdir(exist_ok=True)
    os.environ["CUDA_ON_CPU_PRECOMPILED"] = str(folder)


class _Tracer:
    """Records operators with their data flow; in-place operators keep their tensor's name."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.calls: list[OperatorCall] = []
        self.alive: list[Any] = []
        self.names: dict[int, str] = {}
        for name, value in arguments.items():
            self.name(value, name)

    def name(self, tensor: Any, wanted: str | None = None) -> str:
        if id(tensor) not in self.names:
            self.alive.append(tensor)
            count = sum(name.startswith("%") for name in self.names.values())
            self.names[id(tensor)] = wanted or f"%{count}"
        return self.names[id(tensor)]

    def record(self, operator: Any, given: list[Any], results: list[Any]) -> None:
        tensors = [value for value in given if isinstance(value, torch.Tensor)]
        scalars = [value for value in given if not isinstance(value, torch.Tensor)]
        self.calls.append(
            OperatorCall(
                name=str(operator),
                inputs=tuple(self.name(value) for value in tensors),
                outputs=tuple(self.name(value) for value in results),
                shapes=tuple(tuple(value.shape) for value in results),
                scalars=tuple(_plain(value) for value in scalars),
            )
        )


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(value)
    return value if isinstance(value, bool | int | float | None) else str(value)


def _trace(
    function: Callable[..., Any], arguments: dict[str, Any], state: dict[str, Any]
) -> tuple[Any, _Tracer]:
    from torch.utils._python_dispatch import TorchDispatchMode

    given = {**arguments, **state}
    tracer = _Tracer({n: v for n, v in given.items() if isinstance(v, torch.Tensor)})

    class Recording(TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            kwargs = kwargs or {}
            result = operator(*args, **kwargs)
            results = list(result) if isinstance(result, tuple | list) else [result]
            tracer.record(operator, [*args, *kwargs.values()], results)
            return result

    with torch.no_grad(), Recording():
        result = function(*arguments.values())
    return result, tracer


def _info(name: str, value: Any, kind: str) -> ArgumentInfo:
    if isinstance(value, torch.Tensor):
        return ArgumentInfo(name=name, kind=kind, tensor=_tensor(name, value))
    return ArgumentInfo(name=name, kind="scalar", value=value)


def _tensor(name: str, value: Any) -> TensorInfo:
    dtype = str(value.dtype).removeprefix("torch.")
    return TensorInfo(name=name, dtype=dtype, shape=tuple(value.shape))


def signature_of(
    function: Callable[..., Any], state: dict[str, Any] | None = None, **arguments: Any
) -> Signature:
    """Run ``function`` on ``arguments`` in order and return what was seen as a signature."""
    state = state or {}
    result, tracer = _trace(function, arguments, state)
    infos = [_info(name, value, "tensor") for name, value in arguments.items()]
    infos += [_info(name, value, "state") for name, value in state.items()]
    call = WorkloadSignature(
        arguments=tuple(infos),
        outputs=(_tensor(tracer.name(result), result),),
        compulsory_bytes=1,
        trace=tuple(tracer.calls),
    )
    return Signature(workloads={"default": call})


def proposals(
    signature: Signature, language: str, *, beside: tuple[str, ...] = (), **options: Any
) -> list[Candidate]:
    """Return what the strategy proposes for a signature in the first round."""
    target = Target(language=language, beside=beside, device=CPU if language == "cpp" else GPU)
    starters = Starters(Starters.Options(**options))
    return list(starters.kopt_propose(PROBLEM, signature, target, None))


@pytest.fixture(scope="session")
def trace() -> Callable[..., Signature]:
    """Give tests ``signature_of``."""
    return signature_of


@pytest.fixture(scope="session")
def propose() -> Callable[..., list[Candidate]]:
    """Give tests ``proposals``."""
    return proposals


def traced(source: str, *, dtype: str = "float32", **shapes: tuple[int, ...]) -> Signature:
    """Return the signature of a function's source as a run traces it, on shapes alone."""
    from kopt.model.problem import InputSpec, Workload
    from kopt.testing.problems import function_problem
    from kopt_torch.shapes import signature_by_shapes

    text = f"import torch\nimport torch.nn.functional as F\n\n\n{textwrap.dedent(source)}"
    entry = source.split("def ", 1)[1].split("(")[0]
    inputs = tuple(InputSpec(name=n, shape=s, dtype=dtype) for n, s in shapes.items())
    return signature_by_shapes(function_problem(text, entry, inputs, workloads=(Workload(),)))


@pytest.fixture(scope="session")
def signature_in_a_run() -> Callable[..., Signature]:
    """Give tests ``traced``."""
    return traced


@pytest.fixture(scope="session")
def graph_of() -> Callable[..., Any]:
    """Return the graph of a function's source, traced as a run traces it.

    ``graph_of("def f(x): return x + 1", x=(3, 4), dtype="float16")``; ``torch`` and ``F`` are there.
    """
    from kopt_starters.graph import Graph

    def made(source: str, *, dtype: str = "float32", **shapes: tuple[int, ...]) -> Graph | None:
        return Graph.of(traced(source, dtype=dtype, **shapes).first)

    return made

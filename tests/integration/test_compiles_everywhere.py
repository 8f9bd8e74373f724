"""Every Triton starter and every kernel of the examples compiles for GPUs that are not here."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import pytest

import kopt
from kopt.errors import CandidateError
from kopt.model.candidate import Candidate
from kopt.model.device import Device, Target
from kopt.model.kernel_file import load_kernel
from kopt.model.problem import Problem, Signature, TensorInfo
from kopt.model.values import CallSpec, NamedValue, ScalarValue, TensorRef
from kopt.model.verification import Status
from kopt.runs.builds import BuildCache
from kopt.testing import records
from kopt.worker.candidate import WorkerContext

torch = pytest.importorskip("torch")
from kopt_torch.reference import TorchReference  # noqa: E402 - it needs torch

TARGETS = ["sm_80", "sm_90", "sm_100"]
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FILES = sorted(
    path for folder in EXAMPLES.glob("*/problem.toml") for path in folder.parent.iterdir()
    if path.suffix in {".cu", ".py"} and path.name != "reference.py"
)  # fmt: skip
GPU = Device(
    kind="cuda", name="test", architecture="sm_90", units=132, memory_bytes=80 << 30,
    cache_bytes=50 << 20,
)  # fmt: skip
WIDE, LONG, STRIDED = "300, 8192", "8, 32768", "8, 512, 512"
REFERENCES = {
    "softmax": ("torch.softmax(x, -1)", "torch.softmax(x, 1)"),
    "rms_norm": (
        "torch.nn.functional.rms_norm(x, (x.shape[-1],), None, 1e-6)",
        "x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-6)",
    ),
    "layer_norm": ("torch.nn.functional.layer_norm(x, (x.shape[-1],))", None),
    "sum": ("x.sum(-1)", "x.sum(1)"),
}
"""Over the last dimension, and over another, by operator."""


def problem(folder: Path, expression: str, shape: str) -> Problem:
    """Return the problem of an expression in ``x``."""
    folder.mkdir()
    (folder / "reference.py").write_text(
        f"import torch\n\n\ndef run(x):\n    return {expression}\n"
    )
    (folder / "problem.toml").write_text(
        'name = "starter"\n[reference]\nfile = "reference.py"\nfunction = "run"\n[inputs.x]\n'
        f'shape = [{shape}]\ndtype = "float16"\n[[workloads]]\nname = "only"\n'
    )
    return kopt.load_problem(folder)


def proposed(folder: Path, operator: str) -> Iterator[tuple[Candidate, CallSpec]]:
    """Yield every starter of an operator once, with a call that it is for."""
    starters = pytest.importorskip("kopt_starters")
    strategy = starters.Starters(starters.Starters.Options())
    last, other = REFERENCES[operator]
    seen = set()
    for number, (expression, shape) in enumerate(
        [(last, WIDE), (last, LONG), *([(other, STRIDED)] if other else [])]
    ):
        opened = problem(folder / str(number), expression, shape)
        signature = TorchReference(opened, "cpu").signature
        target = Target(language="triton", device=GPU)
        for candidate in strategy.kopt_propose(opened, signature, target, None):
            if candidate.idea not in seen:
                seen.add(candidate.idea)
                yield candidate, call_of(signature)


def call_of(signature: Signature) -> CallSpec:
    """Return a call of the first workload, with tensors that exist nowhere."""
    first = signature.first
    arguments = tuple(
        NamedValue(
            name=each.name,
            value=ref(each.tensor) if each.tensor else ScalarValue(value=each.value),
        )
        for each in first.arguments
    )
    return CallSpec(arguments=arguments, outputs=tuple(map(ref, first.outputs)))


def ref(info: TensorInfo) -> TensorRef:
    strides = tuple(prod(info.shape[axis + 1 :]) for axis in range(len(info.shape)))
    return TensorRef(segment=0, offset=0, dtype=info.dtype, shape=info.shape, strides=strides)


def compiled(candidate: Candidate, call: CallSpec, target: str, folder: Path) -> list[Any]:
    """Build without a GPU, and return what each kernel of the call uses."""
    context = WorkerContext(records.cpu(), target, (), BuildCache(folder))
    if candidate.language == "triton":
        from kopt_triton import TritonBackend

        return TritonBackend().kopt_build(candidate, context).ahead_of_time(call)  # type: ignore[union-attr]
    from kopt_cuda import CudaBackend

    backend = CudaBackend(CudaBackend.Options())
    built = backend.kopt_build(None, candidate, context)  # type: ignore[arg-type]
    return built.ahead_of_time(call)  # type: ignore[union-attr]


def check(kernels: list[Any], target: str) -> None:
    assert kernels
    for kernel in kernels:
        assert kernel.architecture.removesuffix("a") == target
        assert 8 <= kernel.registers <= 255, kernel
        assert kernel.spill_bytes == 0, kernel
        assert kernel.limits_exceeded == (), kernel


@cache
def signature_of(folder: Path) -> Signature:
    """Return an example's signature with few rows, as their number decides nothing here."""
    opened = kopt.load_problem(folder)
    first = opened.workloads[0]
    fewer = first.model_copy(update={"sizes": {**first.sizes, "rows": 64}})
    return TorchReference(opened.model_copy(update={"workloads": (fewer,)}), "cpu").signature


@pytest.mark.slow
@pytest.mark.parametrize("operator", REFERENCES)
def test_every_triton_starter_compiles(tmp_path, operator):
    pytest.importorskip("kopt_triton")
    pytest.importorskip("triton.backends.nvidia")
    from kopt_starters.operators import OPERATORS

    ideas = set()
    for candidate, call in proposed(tmp_path, operator):
        ideas.add(candidate.idea)
        for target in TARGETS:
            check(compiled(candidate, call, target, tmp_path / "builds"), target)
    (known,) = (each for each in OPERATORS if each.name == operator)
    structures = [each for each in known.structures if each.language == "triton"]
    own = {idea for idea in ideas if idea.startswith(f"{operator}: ")}  # families propose too
    assert own == {f"{operator}: {each.idea}" for each in structures}


def test_operators_are_all_tried():
    pytest.importorskip("kopt_starters")
    from kopt_starters.operators import OPERATORS

    assert {each.name for each in OPERATORS} == set(REFERENCES)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_kernel_of_the_examples_compiles(tmp_path, path, target):
    pytest.importorskip("kopt_cuda")
    from kopt_cuda.toolchain import find_toolchain

    candidate = load_kernel(path)
    if candidate.language == "cuda" and find_toolchain() is None:
        pytest.skip("no compiler for CUDA C++: neither NVRTC with cupy nor nvcc")
    call = call_of(signature_of(path.parent))
    if target == "sm_80" and "cluster" in str(candidate.settings):
        with pytest.raises(CandidateError, match="clusters; they begin with sm_90") as caught:
            compiled(candidate, call, target, tmp_path)
        assert caught.value.status is Status.UNSUPPORTED
        return
    check(compiled(candidate, call, target, tmp_path), target)


def test_there_are_kernels_in_the_examples():
    assert {"softmax.cu", "rms_norm.cu", "cluster_softmax.cu"} <= {path.name for path in FILES}

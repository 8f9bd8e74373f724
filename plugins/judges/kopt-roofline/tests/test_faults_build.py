"""The fault set without a GPU: every kernel compiles for an H100, and has the fault it is there for."""

from __future__ import annotations

import tomllib
import types
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import pytest

from kopt.formats.native import NativeFormat
from kopt.model.expressions import evaluate
from kopt.model.kernel_file import load_kernel
from kopt.model.problem import Problem
from kopt.model.values import CallSpec, NamedValue, TensorRef
from kopt.runs.builds import BuildCache
from kopt.testing import records
from kopt.worker.candidate import WorkerContext
from kopt_roofline.rules import rulebook

FAULTS = Path(__file__).parent / "faults"
NAMES = sorted(folder.name for folder in FAULTS.iterdir() if folder.is_dir())
MULTIPROCESSORS = 132
REGISTERS, SHARED_BYTES, WARPS = 65536, 233472, 64
"""Of a multiprocessor with compute capability 9.0 (CUDA C++ Programming Guide, technical specifications)."""


def tensor(segment: int, shape: tuple[int, ...], dtype: str) -> TensorRef:
    strides = tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return TensorRef(segment=segment, offset=0, dtype=dtype, shape=shape, strides=strides)


def problem_of(name: str) -> Problem:
    problem = NativeFormat().kopt_load_problem(FAULTS / name)
    assert problem is not None
    return problem


def call_of(problem: Problem) -> CallSpec:
    """Return a call with the problem's own extents, on tensors that exist nowhere."""
    torch = pytest.importorskip("torch")
    sizes = problem.workloads[0].sizes
    inputs = {
        spec.name: tensor(index, tuple(evaluate(str(n), sizes) for n in spec.shape), spec.dtype)
        for index, spec in enumerate(problem.inputs)
        if spec.shape is not None
    }
    module = types.ModuleType("reference")
    exec(problem.reference.source, module.__dict__)
    result = getattr(module, problem.reference.entry)(
        *(
            torch.empty(ref.shape, dtype=getattr(torch, ref.dtype), device="meta")
            for ref in inputs.values()
        )
    )
    dtype = str(result.dtype).removeprefix("torch.")
    return CallSpec(
        arguments=tuple(NamedValue(name=name, value=ref) for name, ref in inputs.items()),
        outputs=(tensor(len(inputs), tuple(result.shape), dtype),),
    )


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[Any]]:
    """Return a function that compiles a fault for sm_90 and gives what its launches use."""
    cuda = pytest.importorskip("kopt_cuda")
    toolchain = pytest.importorskip("kopt_cuda.toolchain")
    if toolchain.find_toolchain("nvrtc") is None:
        pytest.skip("no nvrtc here; pip install 'kopt-cuda[cuda12]'")
    backend = cuda.CudaBackend(cuda.CudaBackend.Options(compiler="nvrtc"))
    cache = BuildCache(tmp_path_factory.mktemp("builds"))
    context = WorkerContext(records.cpu(), "sm_90", (), cache)

    def compiled(name: str) -> list[Any]:
        executable = backend.kopt_build(None, load_kernel(FAULTS / name / "kernel.cu"), context)
        assert executable.build.log == ""
        return executable.ahead_of_time(call_of(problem_of(name)))

    return compiled


def test_the_index_has_every_folder_and_a_reason():
    index = tomllib.loads((FAULTS / "faults.toml").read_text(encoding="utf-8"))
    assert sorted(index) == NAMES
    assert len(NAMES) >= 15
    for name, entry in index.items():
        assert set(entry) == {"expected", "why"}
        assert entry["expected"] and entry["why"].endswith(".")
        assert problem_of(name).name == f"fault-{name}"


def test_every_expected_finding_is_one_of_the_judges_rules():
    index = tomllib.loads((FAULTS / "faults.toml").read_text(encoding="utf-8"))
    expected = {name for entry in index.values() for name in entry["expected"]}
    assert expected <= {rule.name for rule in rulebook().rules}


@pytest.mark.parametrize("name", NAMES)
def test_every_fault_compiles_and_only_the_spilling_one_spills(kernels, name):
    used = kernels(name)
    assert used
    for kernel in used:
        assert kernel.architecture == "sm_90"
        assert kernel.limits_exceeded == ()
        assert (kernel.spill_bytes > 0) is (name == "spills")
        assert (kernel.stack_bytes > 0) is (name == "spills")


def blocks_at_a_time(kernel: Any) -> dict[str, int]:
    """Return how many blocks of a multiprocessor each resource allows."""
    warps = -(-kernel.threads // 32)
    per_warp = -(-kernel.registers // 8) * 8 * 32
    return {
        "registers": REGISTERS // per_warp // warps,
        "shared": SHARED_BYTES // (kernel.shared_bytes + 1024),
        "warps": WARPS // warps,
        "blocks": 32,
    }


@pytest.mark.parametrize(
    ("name", "limiter", "percent"),
    [("occupancy-registers", "registers", 12.5), ("occupancy-shared", "shared", 6.25), ("occupancy-blocks", "blocks", 50)],
)  # fmt: skip
def test_low_occupancy_has_the_limiter_that_it_says(kernels, name, limiter, percent):
    (kernel,) = kernels(name)
    blocks = blocks_at_a_time(kernel)
    assert min(blocks, key=lambda each: blocks[each]) == limiter
    assert 100 * min(blocks.values()) * kernel.threads / 32 / WARPS == percent
    assert prod(kernel.grid) >= 2 * MULTIPROCESSORS * min(blocks.values())


@pytest.mark.parametrize(
    "name", sorted(set(NAMES) - {"grid-starvation", "tail-wave", "launch-bound"})
)
def test_every_other_grid_fills_the_device_without_a_short_last_wave(kernels, name):
    kernel = kernels(name)[-1]
    waves = prod(kernel.grid) / (MULTIPROCESSORS * min(blocks_at_a_time(kernel).values()))
    assert waves > 0.9
    assert -(-waves // 1) / waves < 1.2


def test_few_blocks_and_a_tail(kernels):
    (starved,), (tail,) = kernels("grid-starvation"), kernels("tail-wave")
    assert prod(starved.grid) <= MULTIPROCESSORS / 8
    assert min(blocks_at_a_time(tail).values()) == 1
    assert MULTIPROCESSORS < prod(tail.grid) < 1.05 * MULTIPROCESSORS
    assert len(kernels("launch-bound")) == 32

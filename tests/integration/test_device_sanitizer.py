"""On a GPU: what compute-sanitizer finds costs a winner its verdict, and clean kernels keep theirs."""

from __future__ import annotations

import pytest

from kopt import single
from kopt.config import Settings
from kopt.model.kernel_file import load_kernel, parse_kernel
from kopt.model.problem import InputSpec, Problem, ReferenceSource, Workload
from kopt.model.verification import Status
from kopt.optimize import load_problem
from kopt.selftest.cases import FIXTURES
from kopt.worker.device_sanitizer import find_tool

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.slow]

SUMS = """\
// /// kopt
// entry = "sums"
// grid = ["x.shape[0]"]
// block = 128
// arguments = ["x", "out", "x.shape[1]"]
// ///
extern "C" __global__ void sums(const float *x, float *out, int cols) {
    __shared__ float parts[128];
    float sum = 0;
    for (int i = threadIdx.x; i < cols; i += 128) sum += x[size_t(blockIdx.x) * cols + i];
    parts[threadIdx.x] = sum;
    __syncthreads();
    for (int step = 64; step; step /= 2) {
        if (threadIdx.x < step) parts[threadIdx.x] += parts[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = parts[0];
}
"""
RACING = SUMS.replace("        __syncthreads();\n    }", "    }")


def row_sums() -> Problem:
    return Problem(
        name="sums", format="native",
        reference=ReferenceSource(
            kind="function", source="def sums(x):\n    return x.sum(-1)\n", entry="sums"
        ),
        inputs=(InputSpec(name="x", shape=("rows", "cols")),),
        workloads=(Workload(sizes={"rows": 96, "cols": 256}),),
    )  # fmt: skip


def norm() -> Problem:
    return load_problem(FIXTURES / "problems" / "norm")


def verdict(problem, candidate):
    settings = Settings(device="cuda", options={"backend.torch": {"compile": False}})
    found = single.verify(problem, candidate, settings).evaluation
    (verification,) = found.verifications
    return found.status, {stage.stage: stage for stage in verification.stages}


@pytest.fixture(autouse=True)
def _needs_the_tool():
    if not torch.cuda.is_available() or find_tool() is None:
        pytest.skip("needs a CUDA device and compute-sanitizer")


@pytest.mark.parametrize("language", ["triton", "cuda"])
def test_a_clean_kernel_passes_under_every_tool(language):
    if language == "triton":
        problem, kernel = norm(), load_kernel(FIXTURES / "kernels" / "honest.py.txt")
    else:
        pytest.importorskip("kopt_cuda")
        problem, kernel = row_sums(), parse_kernel(SUMS, "cuda")
    status, stages = verdict(problem, kernel)
    assert status is Status.CORRECT
    assert stages["sanitizer"].outcome == "pass"
    assert "memcheck, racecheck" in stages["sanitizer"].evidence
    assert kernel.entry in stages["origin"].evidence or language == "cuda"


def test_a_read_past_the_end_is_found():
    status, stages = verdict(norm(), load_kernel(FIXTURES / "kernels" / "reads-past-end.py.txt"))
    assert status is Status.ILLEGAL_ACCESS
    assert stages["sanitizer"].outcome == "fail"
    assert "memcheck" in stages["sanitizer"].evidence


def test_a_race_in_shared_memory_is_found():
    pytest.importorskip("kopt_cuda")
    status, stages = verdict(row_sums(), parse_kernel(RACING, "cuda"))
    assert status in {Status.NON_DETERMINISTIC, Status.WRONG}
    if stages["sanitizer"].outcome != "not run":
        assert "racecheck" in stages["sanitizer"].evidence

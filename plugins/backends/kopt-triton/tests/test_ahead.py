"""Ahead of time for a named GPU: figures, limits, and errors as that GPU would give them."""

from __future__ import annotations

import pytest
import torch

from kopt.errors import CandidateError
from kopt.model.kernel_file import parse_kernel
from kopt.model.values import CallSpec, NamedValue, ScalarValue, TensorRef
from kopt.model.verification import Status
from kopt.testing.plain_problem import double
from kopt.testing.processes import ending
from kopt.worker.compiling import AheadCompiler
from kopt.worker.pool import ProcessRecipe

pytest.importorskip("triton")

IMPORTS = "import torch\nimport triton\nimport triton.language as tl\n\n"
SCALE = """
@triton.jit
def scale_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

def kernel_function(x):
    out = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), 1024),)
    scale_kernel[grid](x, out, x.numel(), BLOCK=1024, num_warps=8)
    return out
"""

MATMUL = """
{decorator}
@triton.jit
def matmul_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a + rm[:, None] * K + (k + rk)[None, :])
        y = tl.load(b + (k + rk)[:, None] * N + rn[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + rm[:, None] * N + rn[None, :], acc.to(tl.float16))

def kernel_function(a, b):
    M, K = a.shape
    N = b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (M // meta["BM"], N // meta["BN"])
    matmul_kernel[grid](a, b, c, M, N, K{options})
    return c
"""
HALF = ((1024, 1024), torch.float16)


def matmul(options: str = "", decorator: str = "") -> str:
    return MATMUL.format(options=options, decorator=decorator)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("kind", ["cpu", None])
def test_resources_for_each_architecture(build, shapes_only, architecture, kind):
    executable = build(SCALE, kind=kind, architecture=architecture)
    (kernel,) = executable.ahead_of_time(shapes_only(*[((1 << 20,), torch.float32)] * 2))
    assert (kernel.name, kernel.architecture, kernel.num_warps) == ("scale_kernel", architecture, 8)
    assert kernel.registers is not None and 8 <= kernel.registers <= 64
    assert (kernel.spill_bytes, kernel.shared_bytes, kernel.limits_exceeded) == (0, 0, ())
    assert kernel.constants == {"BLOCK": "1024"}
    assert kernel.ptx_bytes > 500 and kernel.binary_bytes > 500
    assert executable.build.resources["architecture"] == architecture
    assert executable.build.resources["kernels"] == [kernel.to_json()]


def test_nothing_of_the_real_shape_is_allocated(build, shapes_only):
    executable = build(SCALE, architecture="sm_90")
    huge = [((1 << 40,), torch.float32)] * 2
    (kernel,) = executable.ahead_of_time(shapes_only(*huge))
    assert kernel.registers is not None and kernel.registers >= 8


def test_bfloat16_compiles_although_it_cannot_be_interpreted(build, memory):
    x = torch.randn(2048, dtype=torch.bfloat16)
    executable = build(SCALE, architecture="sm_90")
    with pytest.raises(CandidateError, match="bfloat16"):
        executable.bind(memory.call(x, outputs=[x]), memory)
    assert executable.build.resources["kernels"][0]["name"] == "scale_kernel"


def test_binding_compiles_once_and_interprets_after(build, memory):
    x = torch.randn(2048)
    executable = build(SCALE, architecture="sm_90")
    call = memory.call(x, outputs=[torch.zeros(2048)])
    for _ in range(2):
        bound = executable.bind(call, memory)
        bound.launch()
        bound.collect()
    assert torch.equal(memory.read(call.outputs[0]), 2 * x)
    first = executable.build.resources["kernels"]
    # The interpreter leaves the language as it was: the same kernel compiles to the same figures.
    assert [item.to_json() for item in executable.ahead_of_time(call)] == first


def test_spills_are_counted(build, shapes_only):
    spilling = matmul(", BM=256, BN=256, BK=32, num_warps=4, num_stages=2")
    (kernel,) = build(spilling, architecture="sm_80").ahead_of_time(shapes_only(HALF, HALF, HALF))
    assert kernel.registers == 255
    assert kernel.spill_bytes is not None and kernel.spill_bytes > 1000


def test_too_much_shared_memory_is_a_compile_error_with_the_figures(build, shapes_only):
    large = matmul(", BM=128, BN=128, BK=128, num_warps=8, num_stages=4")
    calls = shapes_only(HALF, HALF, HALF)
    with pytest.raises(CandidateError, match="fewer num_stages") as caught:
        build(large, architecture="sm_80").ahead_of_time(calls)
    assert caught.value.status is Status.COMPILE_ERROR
    assert "166912" in caught.value.detail and "bytes of shared memory" in caught.value.detail


def test_too_much_tensor_memory_is_a_compile_error_though_triton_compiles_a_trap(
    build, shapes_only
):
    exact = "tl.dot(x, y, acc, input_precision='bf16x6')"
    large = matmul(", BM=128, BN=128, BK=32, num_warps=8").replace("tl.dot(x, y, acc)", exact)
    calls = shapes_only(*[((1024, 1024), torch.float32)] * 2, HALF)
    executable = build(large, architecture="sm_100")
    with pytest.raises(CandidateError, match=r"columns of tensor memory.* 512") as caught:
        executable.ahead_of_time(calls)
    assert caught.value.status is Status.COMPILE_ERROR
    (kernel,) = executable.build.resources["kernels"]
    (exceeded,) = kernel["limits_exceeded"]
    assert exceeded.startswith("tensor memory: ") and exceeded.endswith(" of 512 columns")
    build(large, architecture="sm_90").ahead_of_time(calls)


def test_every_configuration_is_compiled_and_the_unfit_is_marked(build, shapes_only):
    decorator = (
        "@triton.autotune([triton.Config({'BM': 64, 'BN': 64, 'BK': 32}, num_stages=2),"
        " triton.Config({'BM': 128, 'BN': 128, 'BK': 128}, num_stages=4, num_warps=8)],"
        " key=['M', 'N', 'K'])"
    )
    executable = build(matmul(decorator=decorator), architecture="sm_86")
    small, large = executable.ahead_of_time(shapes_only(HALF, HALF, HALF))
    assert small.limits_exceeded == ()
    assert small.constants["BM"] == "64" and large.constants["BM"] == "128"
    assert large.limits_exceeded == (f"shared memory: {large.shared_bytes} of 101376 bytes",)


def test_a_module_is_compiled_with_its_state(build):
    source = SCALE.replace("def kernel_function(x):", "def scaled(x):") + (
        "\nclass ModelNew(torch.nn.Module):\n"
        "    def __init__(self, n):\n"
        "        super().__init__()\n"
        "        self.linear = torch.nn.Linear(n, n)\n"
        "    def forward(self, x):\n"
        "        return scaled(self.linear(x))\n"
    )
    sizes = {"x": (4, 1 << 15), "linear.weight": (1 << 15, 1 << 15), "linear.bias": (1 << 15,)}
    refs = {
        name: TensorRef(
            segment=0, offset=0, dtype="float32", shape=shape,
            strides=torch.empty(shape, device="meta").stride(),
        )
        for name, shape in sizes.items()
    }  # fmt: skip
    x = refs.pop("x")
    call = CallSpec(
        arguments=(NamedValue(name="x", value=x),),
        init=(NamedValue(name="n", value=ScalarValue(value=1 << 15)),),
        state=refs,
        outputs=(x,),
    )
    (kernel,) = build(source, architecture="sm_90").ahead_of_time(call)
    assert kernel.name == "scale_kernel"


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("tl.arange(0, BLOCK)", "tl.arange(0, 1000)", 8, "power of 2"),
        ("* 2, mask", "* missing, mask", 9, "missing is not defined"),
        ("* 2, mask", "* tl.nothing(2), mask", 9, "nothing"),
        ("BLOCK: tl.constexpr", "BLOCK", 8, "tl.constexpr"),
    ],
)
def test_a_compile_error_carries_the_line(build, shapes_only, old, new, line, words):
    source = SCALE.replace(old, new)
    calls = shapes_only(*[((4096,), torch.float32)] * 2)
    with pytest.raises(CandidateError, match=words) as caught:
        build(source, architecture="sm_90").ahead_of_time(calls)
    assert caught.value.status is Status.COMPILE_ERROR
    assert caught.value.detail.startswith(f"line {line}: ")


def test_a_launcher_that_reads_values_is_unsupported(build, shapes_only):
    source = SCALE.replace("out = torch.empty_like(x)", "out = x * x.sum().item()")
    with pytest.raises(CandidateError, match="derive sizes from shapes") as caught:
        build(source, architecture="sm_90").ahead_of_time(
            shapes_only(*[((4096,), torch.float32)] * 2)
        )
    assert caught.value.status is Status.UNSUPPORTED


def test_a_launcher_without_a_kernel_is_unsupported(build, shapes_only):
    executable = build("def kernel_function(x):\n    return x * 2\n", architecture="sm_90")
    with pytest.raises(CandidateError, match="no Triton kernel was launched"):
        executable.ahead_of_time(shapes_only(*[((64,), torch.float32)] * 2))


def test_an_unknown_architecture_is_named(build):
    with pytest.raises(CandidateError, match=r"'sm_999'.*sm_90") as caught:
        build(SCALE, architecture="sm_999")
    assert caught.value.status is Status.UNSUPPORTED


def test_without_an_architecture_it_says_how_to_name_one(build, shapes_only):
    with pytest.raises(CandidateError, match="--target sm_90"):
        build(SCALE).ahead_of_time(shapes_only(*[((64,), torch.float32)] * 2))


def test_processes_that_compile_ahead_fill_the_cache_of_those_that_run(tmp_path, shapes_only):
    """A second process for the same shapes finds everything there, and compiles nothing."""
    problem = double().to_json()
    opening = {
        "problem": problem, "device": None, "architecture": "native", "argument_names": ["x"],
        "cache": str(tmp_path / "builds"),
    }  # fmt: skip
    plugins = [("backend", "kopt-triton:triton", {})]
    recipe = ProcessRecipe(tmp_path, 0, plugins, opening, purpose="triton")
    candidate = parse_kernel(IMPORTS + SCALE, "triton")
    vector = ((5000,), torch.float32)
    found = []
    for _ in range(2):
        with ending():
            ahead = AheadCompiler(recipe, "sm_90", 1, 120.0)
            ahead.compile(candidate, [shapes_only(vector, vector)])
        found.append({path for path in (tmp_path / "triton").rglob("*") if path.is_file()})
    assert [path.suffix for path in found[0]].count(".cubin") == 1
    assert found[1] == found[0]

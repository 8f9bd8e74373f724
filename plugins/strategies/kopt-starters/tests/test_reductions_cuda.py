"""Rows held by a cluster, in CUDA C++: results of an emulator against float64, and what compiles."""

from __future__ import annotations

import runpy
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("kopt_cuda")

import torch

from kopt.model.device import Target
from kopt.model.expressions import evaluate
from kopt_cuda.compiling import LOG, compile_cubin
from kopt_cuda.plan import plan_of
from kopt_cuda.resources import resources_of
from kopt_cuda.toolchain import find_toolchain
from kopt_starters import Starters
from kopt_starters.families import reductions_cuda
from kopt_starters.families.reductions_cuda import ReductionsCuda

F = torch.nn.functional
HERE = Path(__file__)
CHECK = SimpleNamespace(**runpy.run_path(str(HERE.with_name("checking.py"))))
RUN = runpy.run_path(str(HERE.with_name("cuda_on_cpu.py")))["run"]
SMALL = {"THREADS": 64, "SIZE": 2, "ROWS": 2}
ROWS = {
    "torch.softmax(x, 1)": (5, 8192),
    "F.log_softmax(x, 1)": (3, 8200),
    "F.instance_norm(x)": (2, 2, 64, 136),
    "F.layer_norm(x, x.shape[1:])": (3, 2, 4104),
    "x / x.abs().mean(dim=1, keepdim=True)": (16, 8195),
    "x / torch.norm(x, p=2, dim=1, keepdim=True)": (8, 8191),
    "F.softmax(x * 3, -1)": (8, 8193),
    "(x - x.amin(1, keepdim=True)) / (x.amax(1, keepdim=True) - x.amin(1, keepdim=True))": (8, 8197),
    "(x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-5)": (8, 8199),
    "x - torch.logsumexp(x, 1, keepdim=True)": (8, 8198),
    "x - torch.exp(x - x.mean(1, keepdim=True)).mean(1, keepdim=True)": (3, 8192),
}  # fmt: skip


def on(architecture: str, units: int = 132) -> Target:
    device = CHECK.GPU.model_copy(update={"architecture": architecture, "units": units})
    return Target(language="cuda", device=device)


@pytest.fixture
def propose(graph_of, monkeypatch):
    """Return the kernels for a reference of tensors; rows may be shorter and fewer than elsewhere."""

    def proposed(body, *, dtype="float32", architecture="sm_90", least=8192, units=1, **shapes):
        monkeypatch.setattr(reductions_cuda, "_LONG", least)
        names = ", ".join(shapes)
        graph = graph_of(f"def reference({names}): return {body}", dtype=dtype, **shapes)
        return list(ReductionsCuda().propose(graph, on(architecture, units)))

    return proposed


def drawn(shape, dtype, scale=1.0, shift=0.3):
    generator = torch.Generator().manual_seed(5)
    return (torch.randn(shape, generator=generator) * scale + shift).to(getattr(torch, dtype))


def check(candidate, body, given, **knobs):
    """Hold the error to twice PyTorch's own, or two roundings, as root mean squares."""
    own = eval(body, {"F": F, "torch": torch} | given)
    exact = eval(body, {"F": F, "torch": torch} | {n: each.double() for n, each in given.items()})
    (got,) = RUN(candidate, [(own.shape, own.dtype)], given, **(SMALL | knobs))
    error, theirs, size = (
        float(each.double().square().mean().sqrt()) for each in (got - exact, own - exact, exact)
    )
    assert got.isfinite().all()
    assert error <= max(2 * theirs, 2 * CHECK.UNIT[own.dtype] * size)


TWO_BYTES = [*zip(ROWS, cycle(["bfloat16", "float16"]), strict=False)]


@pytest.mark.parametrize(("body", "dtype"), TWO_BYTES + [(body, "float32") for body in ROWS])
def test_results_are_those_of_float64(propose, body, dtype):
    (candidate,) = propose(body, dtype=dtype, x=ROWS[body])
    check(candidate, body, {"x": drawn(ROWS[body], dtype)})


@pytest.mark.parametrize("knobs", [
    {"SIZE": 1, "ROWS": 8}, {"SIZE": 4, "ROWS": 3, "THREADS": 32}, {"SIZE": 8, "ROWS": 1},
    {"SIZE": 16, "ROWS": 4, "UNROLL": 1}, {"SIZE": 2, "THREADS": 512, "UNROLL": 2},
])  # fmt: skip
def test_clusters_of_every_size(propose, knobs):
    body = "torch.softmax(x, 1)"
    (candidate,) = propose(body, dtype="bfloat16", x=(8, 8203))
    check(candidate, body, {"x": drawn((8, 8203), "bfloat16")}, **knobs)


def test_blocks_that_have_nothing_of_a_row(propose):
    body, shape = "x / x.abs().mean(dim=1, keepdim=True)", (4, 1035)
    (candidate,) = propose(body, least=0, x=shape)
    # 259 pieces or 260, of which each of 16 blocks has 17.
    check(candidate, body, {"x": drawn(shape, "float32")}, SIZE=16)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("cols", [8196, 8195])
def test_fewer_rows_than_it_was_made_for(propose, cols, dtype):
    """A tensor of three odd rows ends within a piece: what lies behind it is none of a row's."""
    body, memory = "torch.softmax(x, 1)", drawn((4 * cols,), dtype)
    memory[3 * cols :] = float("nan")
    (candidate,) = propose(body, dtype=dtype, x=(9, cols))
    check(candidate, body, {"x": memory[: 3 * cols].view(3, cols)}, SIZE=4)


@pytest.mark.parametrize(("body", "shapes"), [
    ("F.softmax(x * y, 1)", {"x": (6, 8196), "y": (6, 1)}),
    ("F.instance_norm(x, None, None, y, z)", {"x": (2, 3, 64, 136), "y": (3,), "z": (3,)}),
])  # fmt: skip
def test_arguments_with_one_element_for_a_row(propose, body, shapes):
    (candidate,) = propose(body, **shapes)
    check(candidate, body, {name: drawn(shape, "float32") for name, shape in shapes.items()})


@pytest.mark.parametrize("body", ["torch.softmax(x, 1)", "F.log_softmax(x, 1)"])
def test_infinities_and_nan_are_kept(propose, body):
    x = drawn((5, 8196), "float32")
    x[0], x[1, 5], x[2, 8100], x[3, :5000] = (
        float("-inf"), float("inf"), float("nan"), float("-inf"))  # fmt: skip
    (candidate,) = propose(body, x=x.shape)
    (got,) = RUN(candidate, [(x.shape, x.dtype)], {"x": x}, **SMALL)
    CHECK.assert_accurate(got, eval(body, {"F": F, "torch": torch, "x": x.double()}))


def test_extremes_are_nan_where_a_row_has_one(propose):
    body = "x - x.amax(1, keepdim=True)"
    x = drawn((3, 8196), "float32")
    x[1, 8000] = float("nan")
    (candidate,) = propose(body, x=x.shape)
    (got,) = RUN(candidate, [(x.shape, x.dtype)], {"x": x}, **SMALL)
    CHECK.assert_accurate(got, eval(body, {"x": x.double()}))


def test_a_large_mean_does_not_lose_accuracy(propose):
    body = "F.instance_norm(x)"
    (candidate,) = propose(body, x=(1, 2, 64, 136))
    check(candidate, body, {"x": drawn((1, 2, 64, 136), "float32", shift=1e4)})


@pytest.mark.parametrize(("body", "shapes", "dtype", "architecture"), [
    ("torch.softmax(x, 1)", {"x": (4096, 393216)}, "bfloat16", "sm_80"),
    ("torch.softmax(x, 1)", {"x": (4096, 393216)}, "float32", "sm_120"),
    ("torch.softmax(x, 1)", {"x": (4096, 4096)}, "bfloat16", "sm_90"),
    ("torch.softmax(x, 1)", {"x": (64, 1 << 22)}, "float32", "sm_90"),
    ("torch.softmax(x, 0)", {"x": (65536, 4096)}, "float32", "sm_90"),
    ("x.sum(1)", {"x": (4096, 65536)}, "float32", "sm_90"),
    ("F.layer_norm(x, (65536,), y)", {"x": (640, 65536), "y": (65536,)}, "float32", "sm_90"),
    ("torch.argmax(x, 1, keepdim=True) * x", {"x": (640, 65536)}, "float32", "sm_90"),
    ("torch.softmax(x, 1).float()", {"x": (640, 65536)}, "bfloat16", "sm_90"),
    ("torch.softmax(x, 1)", {"x": (16, 65536)}, "bfloat16", "sm_90"),
])  # fmt: skip
def test_what_does_not_suit_gets_none(propose, body, shapes, dtype, architecture):
    found = propose(body, dtype=dtype, architecture=architecture, least=65536, units=132, **shapes)
    assert found == []


LARGE = {
    "torch.softmax(x, 1)": (4096, 393216),
    "F.log_softmax(x, 1)": (4096, 393216),
    "F.instance_norm(x)": (112, 64, 512, 512),
    "x / x.abs().mean(dim=1, keepdim=True)": (32768, 65535),
    "x / torch.norm(x, p=2, dim=1, keepdim=True)": (32768, 65535),
}


@pytest.mark.parametrize("architecture", ["sm_90", "sm_100"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("body", LARGE)
def test_defaults_compile_without_spills_and_fit(propose, tmp_path, body, dtype, architecture):
    toolchain = find_toolchain()
    if toolchain is None:
        pytest.skip("no compiler for CUDA C++")
    (candidate,) = propose(
        body, dtype=dtype, architecture=architecture, least=65536, units=132, x=LARGE[body]
    )
    ends = ({name: knob.choices[end] for name, knob in candidate.knobs.items()} for end in (0, -1))
    (call,) = plan_of(candidate).launch
    for knobs in (candidate.chosen, *ends)[: 3 if architecture == "sm_90" else 1]:
        flags = [*plan_of(candidate).flags, *(f"-D{name}={value}" for name, value in knobs.items())]
        compile_cubin(toolchain, candidate.source, architecture, flags, [], tmp_path)
        (used,) = resources_of((tmp_path / LOG).read_text()).values()
        assert used.spill_bytes in (0, None)
        assert evaluate(call.shared, knobs) <= 227 * 1024
        assert -(-used.registers // 8) * 8 * knobs["THREADS"] <= 65536


def test_it_comes_before_what_reads_a_long_row_twice(signature_in_a_run):
    source = "def reference(x): return torch.softmax(x, 1)"
    signature = signature_in_a_run(source, dtype="bfloat16", x=(4096, 393216))

    def ideas(target):
        starters = Starters(Starters.Options(structures=8))
        problem = SimpleNamespace(mutates=False)
        return [each.idea for each in starters.kopt_propose(problem, signature, target, None)]

    alone = ideas(on("sm_90"))
    assert "held by a cluster" in alone[0]
    assert len(alone) > 1
    both = ideas(Target(language="triton", beside=("cuda",), device=CHECK.GPU))
    assert "held by a cluster" in both[1]

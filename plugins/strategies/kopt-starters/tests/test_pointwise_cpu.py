"""Element-wise references in C++: compiled, and compared with float64 and with eager PyTorch."""

from __future__ import annotations

import ctypes
import runpy
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from kopt.model.device import Device, Target
from kopt_starters.families.pointwise_cpu import PointwiseCpu

torch = pytest.importorskip("torch")
F = torch.nn.functional
CPP = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("compiling.py"))))

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on this machine")

FLAGS = ["-std=c++17", "-O3", "-march=native", "-fopenmp", "-fno-math-errno"]
FLAGS += ["-fno-trapping-math", "-Wall", "-Werror", "-shared", "-fPIC"]
CPU = Device(
    kind="cpu", name="test", architecture="x86_64", units=2, memory_bytes=1 << 33,
    cache_bytes=1 << 25,
)  # fmt: skip
ONE = {
    "relu": "F.relu(x)",
    "leaky relu": "F.leaky_relu(x, 0.01)",
    "sigmoid": "torch.sigmoid(x)",
    "tanh": "torch.tanh(x)",
    "gelu": "F.gelu(x)",
    "gelu by tanh": "F.gelu(x, approximate='tanh')",
    "new gelu": "0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * torch.pow(x, 3.0))))",
    "elu": "F.elu(x)",
    "selu": "torch.selu(x)",
    "hardsigmoid": "F.hardsigmoid(x)",
    "hardswish": "F.hardswish(x)",
    "hardtanh": "F.hardtanh(x)",
    "softplus": "F.softplus(x)",
    "softsign": "F.softsign(x)",
    "swish": "x * torch.sigmoid(x)",
    "silu": "F.silu(x)",
    "mish": "F.mish(x)",
    "erf, floor, sqrt": "torch.erf(x) + torch.floor(x) * torch.sqrt(torch.abs(x))",
    "exp": "torch.exp(x)",
    "log": "torch.log(torch.abs(x))",
    "log2": "torch.log2(torch.abs(x) + 1.5)",
    "log1p": "torch.log1p(torch.abs(x))",
    "log of what may be negative": "torch.log(x)",
    "where": "torch.where(x > 0.5, x, -x) / 3",
}
SHAPES = [(1, 1), (3, 7), (5, 1001), (64, 4097)]


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """Compile a candidate; return its function."""
    folder = tmp_path_factory.mktemp("built")

    def built(candidate, **values):
        path = folder / f"{candidate.id}{len(list(folder.iterdir()))}.cpp"
        path.write_text(candidate.source)
        chosen = {**candidate.chosen, **values}
        defines = [f"-D{name}={value}" for name, value in chosen.items()]
        library = path.with_suffix(".so")
        command = ["g++", *FLAGS, *defines, str(path), "-o", str(library)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return ctypes.CDLL(str(library)).pointwise

    return built


def proposed(graph_of, body, *, language="cpp", dtype="float32", **shapes):
    source = f"def reference({', '.join(shapes)}):\n    return {body}\n"
    graph = graph_of(source, dtype=dtype, **shapes)
    return list(PointwiseCpu().propose(graph, Target(language=language, device=CPU)))


def called(function, *tensors, scalars=()):
    out = torch.full_like(tensors[0], torch.nan)
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (*tensors, out)]
    function(*pointers, ctypes.c_int64(out.numel()), *map(ctypes.c_double, scalars))
    return out


def rms(difference):
    return float(difference.double().square().mean().sqrt())


def drawn(shape, seed=3):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", ONE)
def test_it_is_as_exact_as_pytorch(graph_of, build, name):
    [candidate] = proposed(graph_of, ONE[name], x=(64, 4097))
    kernel = build(candidate)
    function = eval(f"lambda x: {ONE[name]}", {"torch": torch, "F": F})
    for shape in SHAPES:
        for scale in (0.1, 1.0, 10.0):
            x = drawn(shape) * scale
            results = function(x.double()), function(x), called(kernel, x)
            exact, eager, got = (each[results[0].isfinite()] for each in results)
            if not exact.numel():
                continue
            allowed = 2 * rms(eager - exact) if x.numel() > 100 else 0.0  # one may be right by luck
            unit = 2.0**-23 * float(exact.abs().max())
            assert rms(got - exact) <= max(allowed, unit if x.numel() <= 100 else unit / 4), shape


@pytest.mark.parametrize("name", ONE)
def test_special_values_are_pytorchs(graph_of, build, name):
    [candidate] = proposed(graph_of, ONE[name], x=(64, 4097))
    function = eval(f"lambda x: {ONE[name]}", {"torch": torch, "F": F})
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([nan, inf, -inf, 0.0, 1e-30, -1e-30, 200.0, -200.0, 88.0, -87.0, 1e37, -1e37])
    eager, got = function(x), called(build(candidate), x)
    tiny = torch.finfo(torch.float32).tiny  # what is below may be 0
    kept = ~eager.isnan() | x.isnan()  # its GELU of infinity is NaN on some CPUs
    torch.testing.assert_close(got[kept], eager[kept], rtol=1e-6, atol=tiny, equal_nan=True)


@pytest.mark.parametrize("stream", [0, 1])
@pytest.mark.parametrize("threads", [1, 2])
def test_every_element_is_written_once_whatever_the_knobs(graph_of, build, stream, threads):
    [candidate] = proposed(graph_of, "x * 2 + 1", x=(64, 4097))
    kernel = build(candidate, STREAM=stream, THREADS=threads)
    for count in (1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 1000, 40001):
        whole = torch.arange(float(count + 1))
        for x in (whole[:-1], whole[1:]):  # aligned, and not
            assert torch.equal(called(kernel, x), x * 2 + 1)


def test_several_tensors_and_a_scalar(graph_of, build):
    [candidate] = proposed(graph_of, "torch.exp(-x * y).clamp(max=2.0) + z", x=(9, 33), y=(9, 33), z=(9, 33))  # fmt: skip
    assert candidate.source.count("const float* ") >= 3
    assert 'requires = ["y.shape == x.shape", "z.shape == x.shape"]' in candidate.source
    x, y, z = (drawn((9, 33), seed) for seed in (1, 2, 3))
    got = called(build(candidate), x, y, z)
    torch.testing.assert_close(got, torch.exp(-x * y).clamp(max=2.0) + z)


BROADCAST = {
    "x + y": [(37, 1009), (1009,)],
    "torch.exp(x * y).clamp(max=2.0) - z": [(5, 7, 67), (7, 1), (5, 1, 67)],
    "F.batch_norm(x, y, z.abs(), y, z)": [(3, 5, 7, 11), (5,), (5,)],
    "torch.sigmoid(x - y)": [(3, 40001), (3, 1)],
    "x * y": [(1, 70001), (1, 1)],
}


@pytest.mark.parametrize("knobs", [{"THREADS": 1, "VECTOR": 8}, {"THREADS": 2, "STREAM": 1}])
@pytest.mark.parametrize("body", BROADCAST)
def test_what_is_broadcast_is_done_in_rows(graph_of, tmp_path, body, knobs):
    shapes = dict(zip("xyz", BROADCAST[body], strict=False))
    [candidate] = proposed(graph_of, body, **shapes)
    assert "rows" in candidate.idea
    function = eval(f"lambda {', '.join(shapes)}: {body}", {"torch": torch, "F": F})
    given = {name: drawn(shape, at) for at, (name, shape) in enumerate(shapes.items())}
    own, exact = function(**given), function(**{n: v.double() for n, v in given.items()})
    got = CPP.built(tmp_path, candidate, **knobs)(torch.full_like(own, 77), **given)
    CPP.assert_as_exact(got, own, exact)


@pytest.mark.parametrize(
    ("body", "shapes"),
    [
        ("torch.pow(x, 2.5)", {"x": (4, 5)}),  # it is computed in float64
        ("x + y", {"x": (4, 5), "y": (5,)}),  # rows that are no vectors
        ("x + y.t()", {"x": (64, 32), "y": (32, 64)}),
        ("x.sum(-1)", {"x": (4, 5)}),
        ("x.t() + 1", {"x": (4, 5)}),
        ("x > 0", {"x": (4, 5)}),
        ("out + 1", {"out": (4, 5)}),
    ],
)
def test_what_it_does_not_know_it_leaves(graph_of, body, shapes):
    assert proposed(graph_of, body, **shapes) == []


def test_other_languages_and_dtypes_are_left_to_others(graph_of):
    assert proposed(graph_of, "x + 1", language="triton", x=(4, 5)) == []
    assert proposed(graph_of, "x + 1", dtype="float16", x=(4, 5)) == []

"""Every C++ kernel, compiled and compared with float64 at even and odd shapes."""

from __future__ import annotations

import ctypes
import itertools
import random
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from kopt.model.expressions import evaluate

torch = pytest.importorskip("torch")
F = torch.nn.functional

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on this machine")

FLAGS = ["-std=c++17", "-O3", "-march=native", "-fopenmp", "-fno-math-errno"]
FLAGS += ["-fno-trapping-math", "-Wall", "-Werror", "-shared", "-fPIC"]
ROWS = [(1, 1), (3, 7), (129, 1000), (64, 4097), (2, 40001)]
CUBES = [(1, 1, 1), (2, 3, 5), (3, 64, 129), (2, 130, 1031), (1, 3000, 17)]


def _rms(x, dim, w=None):
    y = x / torch.sqrt(torch.mean(x**2, dim=dim, keepdim=True) + 1e-5)
    return y if w is None else y * w


REFERENCES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "rms_norm": (lambda x: _rms(x, -1), ROWS),
    "rms_norm weighted": (lambda x, w: _rms(x, -1, w), ROWS),
    "rms_norm strided": (lambda x: _rms(x, 1), CUBES),
    "rms_norm strided weighted": (lambda x, w: _rms(x, 1, w[:, None]), CUBES),
    "softmax": (lambda x: torch.softmax(x, -1), ROWS),
    "softmax strided": (lambda x: torch.softmax(x, 1), CUBES),
    "layer_norm": (lambda x: F.layer_norm(x, x.shape[1:]), ROWS),
    "layer_norm weighted": (lambda x, w: F.layer_norm(x, x.shape[1:], w), ROWS),
    "layer_norm affine": (lambda x, w, b: F.layer_norm(x, x.shape[1:], w, b), ROWS),
    "layer_norm of planes": (lambda x: F.layer_norm(x, x.shape[1:]), CUBES),
    "sum": (lambda x: x.sum(-1), ROWS),
    "sum kept": (lambda x: x.sum(-1, keepdim=True), ROWS),
    "sum of all": (lambda x: x.sum(), ROWS),
    "sum strided": (lambda x: x.sum(1), CUBES),
    "sum first": (lambda x: x.sum(0), ROWS),
}
CASES = [
    pytest.param(name, shape, id=f"{name} {'x'.join(map(str, shape))}")
    for name, (_, shapes) in REFERENCES.items()
    for shape in shapes
]


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """Compile a candidate once per source and knob values; return a caller."""
    folder, built = tmp_path_factory.mktemp("built"), {}

    def call(candidate, arguments, out):
        key = candidate.id
        if key not in built:
            source, library = folder / f"{key}.cpp", folder / f"{key}.so"
            source.write_text(candidate.source)
            knobs = [f"-D{name}={value}" for name, value in candidate.chosen.items()]
            command = ["g++", *FLAGS, *knobs, str(source), "-o", str(library)]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            built[key] = ctypes.CDLL(str(library))
        names = {**arguments, "out": out}
        values = [evaluate(text, names) for text in candidate.settings["arguments"]]
        getattr(built[key], candidate.entry)(*map(_as_c, values))
        return out

    return call


def _as_c(value):
    if isinstance(value, torch.Tensor):
        return ctypes.c_void_p(value.data_ptr())
    return ctypes.c_int64(value) if isinstance(value, int) else ctypes.c_double(value)


def _arguments(reference, shape, shift=0.5):
    names = reference.__code__.co_varnames[: reference.__code__.co_argcount]
    generator = torch.Generator().manual_seed(7)
    drawn = {"x": torch.randn(shape, generator=generator) * 3 + shift}
    for name in names[1:]:
        extent = shape[1:] if len(shape) == 2 else shape[1:2]
        drawn[name] = torch.randn(extent, generator=generator)
    return drawn


def _check(got, reference, arguments):
    """Hold a result to twice PyTorch's own error against float64, as the verifier would."""
    exact = reference(*(value.double() for value in arguments.values()))
    own = (reference(*arguments.values()).double() - exact).abs()
    error = (got.double() - exact).abs()
    scale = float(exact.pow(2).mean().sqrt())
    rms, own_rms = float(error.pow(2).mean().sqrt()), float(own.pow(2).mean().sqrt())
    assert rms <= max(2 * own_rms, 2 * 2.0**-24 * scale)
    assert float(error.max()) <= max(8 * float(own.max()), 8 * 2.0**-24 * float(exact.abs().max()))


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_defaults_are_as_accurate_as_torch(trace, propose, build, name, shape):
    reference, _ = REFERENCES[name]
    arguments = _arguments(reference, shape)
    candidates = propose(trace(reference, **arguments), "cpp")
    assert candidates
    for candidate in candidates:
        out = torch.full_like(reference(*arguments.values()), float("nan"))
        _check(build(candidate, arguments, out), reference, arguments)


@pytest.mark.parametrize("name", REFERENCES)
def test_every_knob_value_is_right(trace, propose, build, name):
    reference, shapes = REFERENCES[name]
    for candidate in propose(trace(reference, **_arguments(reference, shapes[-1])), "cpp"):
        spaces = [[(n, v) for v in knob.choices] for n, knob in candidate.knobs.items()]
        settings = [dict(values) for values in itertools.product(*spaces)]
        assert len(settings) <= 60
        for values in random.Random(name).sample(settings, min(4, len(settings))):
            chosen = candidate.with_values("test", **values)
            for shape in shapes[1:]:
                arguments = _arguments(reference, shape)
                out = torch.full_like(reference(*arguments.values()), float("nan"))
                _check(build(chosen, arguments, out), reference, arguments)


@pytest.mark.parametrize("dim", [-1, 1])
@pytest.mark.parametrize("place", [0, 5, 18])
def test_softmax_keeps_infinities_and_nan_where_torch_has_them(trace, propose, build, dim, place):
    x = torch.randn(6, 19, 19) if dim == 1 else torch.randn(6, 19)
    x[0] = float("-inf")
    x.select(dim, place)[1] = float("inf")
    x.select(dim, place)[2] = float("nan")
    x.select(dim, place)[3] = float("-inf")
    x[4] *= 100
    expected = torch.softmax(x, dim)
    for candidate in propose(trace(lambda x: torch.softmax(x, dim), x=x), "cpp"):
        got = build(candidate, {"x": x}, torch.zeros_like(x))
        torch.testing.assert_close(got, expected, equal_nan=True, rtol=1e-6, atol=1e-9)


def test_a_long_sum_does_not_lose_accuracy(trace, propose, build):
    x = torch.rand(2, 3_000_001) + 1
    for candidate in propose(trace(lambda x: x.sum(-1), x=x), "cpp"):
        got = build(candidate, {"x": x}, torch.empty(2))
        torch.testing.assert_close(got.double(), x.double().sum(-1), rtol=1e-7, atol=0)


def test_layer_norm_survives_a_large_mean(trace, propose, build):
    def reference(x):
        return F.layer_norm(x, x.shape[1:])

    arguments = _arguments(reference, (8, 4096), shift=1e4)
    for candidate in propose(trace(reference, **arguments), "cpp"):
        got = build(candidate, arguments, torch.empty(8, 4096))
        _check(got, reference, arguments)


def test_few_long_rows_are_shared_by_the_threads(trace, propose):
    shapes = {(4096, 4096): "rows", (2, 1 << 16): "split"}
    for shape, expected in shapes.items():
        candidates = propose(trace(lambda x: torch.softmax(x, -1), x=torch.zeros(shape)), "cpp")
        assert ("share" in candidates[0].idea) is (expected == "split")


def test_half_types_are_left_to_other_languages(trace, propose):
    x = torch.randn(4, 8, dtype=torch.float16)
    assert propose(trace(lambda x: x.sum(-1), x=x), "cpp") == []

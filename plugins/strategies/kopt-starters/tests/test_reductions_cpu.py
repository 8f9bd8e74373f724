"""Reductions in C++: compiled, and compared with float64 and with eager PyTorch."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from kopt.model.device import Target
from kopt_starters.families.reductions_cpu import ReductionsCpu

torch = pytest.importorskip("torch")
F = torch.nn.functional
CPP = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("compiling.py"))))

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on this machine")

ROWS = {
    "x.sum(-1)": (129, 1009), "x.sum(1, keepdim=True)": (7, 1), "x.mean()": (3, 40001),
    "x.mean((0, 2))": (3, 4, 67), "x.amax(-1)": (5, 131), "x.amin()": (7, 19),
    "x.prod(1)": (5, 31), "torch.min(x, dim=1)[0]": (3, 190), "x.std(1)": (9, 1009),
    "x.var((1, 2)) + x.mean((1, 2)) ** 2": (3, 41, 7), "torch.norm(x)": (31, 67),
    "torch.linalg.vector_norm(x, 1, dim=1)": (3, 19), "torch.logsumexp(x, 1)": (5, 211),
    "torch.sqrt(x * x + 1).sum(-1).tanh().add(2)": (3, 7), "(x > 0.5).float().sum(1)": (5, 77),
    "x / x.abs().mean(dim=1, keepdim=True)": (3, 1009), "x / torch.norm(x, p='fro')": (5, 4099),
    "x / torch.norm(x, p=2, dim=1, keepdim=True)": (13, 37), "F.log_softmax(x, 1)": (5, 307),
    "F.instance_norm(x)": (2, 3, 11, 13), "F.group_norm(x, 2)": (2, 6, 3, 5),
    "F.batch_norm(x, None, None, training=True)": (3, 4, 5, 23), "F.softmax(x * 3, -1)": (1, 70001),
    "(x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-5)": (3, 190),
}  # fmt: skip
COLUMNS = {
    "x.sum(0)": (1009, 7), "x.sum(1)": (3, 67, 257), "x.mean(1, keepdim=True)": (2, 9, 1031),
    "x.amax(1)": (3, 19, 5), "x.prod(0)": (11, 130), "x.var(1)": (2, 1009, 33),
    "x.std(1, correction=0)": (3, 19, 64), "torch.linalg.vector_norm(x, float('inf'), dim=0)": (5, 19),
    "torch.max(x, dim=1)[0]": (3, 19, 5), "F.log_softmax(x, 0)": (37, 67), "F.normalize(x, dim=1)": (3, 19, 65),
    "x - x.amax(1, keepdim=True)": (3, 5, 700), "torch.logsumexp(x, 1)": (2, 33, 17),
}  # fmt: skip
SEVERAL = {
    "F.mse_loss(x, y)": [(70, 1009), (70, 1009)],
    "F.smooth_l1_loss(x, y)": [(7, 19), (7, 19)],
    "F.huber_loss(x, y, reduction='sum', delta=0.7)": [(7, 190), (7, 190)],
    "torch.mean(torch.clamp(1 - x * y, min=0))": [(7, 19), (19,)],
    "F.kl_div(torch.log(x.abs()), y.abs(), reduction='batchmean')": [(7, 190), (7, 190)],
    "F.kl_div(F.log_softmax(x, -1), y.abs(), reduction='batchmean')": [(7, 190), (7, 190)],
    "F.triplet_margin_loss(x, y, z)": [(70, 190), (70, 190), (70, 190)],
    "(1 - F.cosine_similarity(x, y, dim=1)).mean()": [(70, 190), (70, 190)],
    "F.group_norm(x, 2, y, z)": [(2, 6, 3, 5), (6,), (6,)],
    "F.layer_norm(x, (5, 9), y, z)": [(4, 5, 9), (5, 9), (5, 9)],
    "(x + y).sum(1) * z": [(4, 5, 3), (5, 1), (4, 3)],
    "(x * y.t()).sum(1)": [(7, 19), (19, 7)],
}
CASES = {**{body: [shape] for body, shape in {**ROWS, **COLUMNS}.items()}, **SEVERAL}
NOT_COVERED = [
    "x + 1", "x.cumsum(1)", "x.sum(1) @ x", "x.sum(1), x.sum(0)", "x.sum(1, dtype=torch.float64)",
    "x.double().sum(1)", "(x > 0).any(1)", "(x > 0).sum(1)", "torch.argmax(x, 1) + 1",
    "torch.argmax(x, 1).float()", "x.sum(1, keepdim=True).t() - x.t()",
]  # fmt: skip


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """Compile a candidate; return its function of arguments by name."""
    folder = tmp_path_factory.mktemp("built")
    return lambda candidate, **values: CPP.built(folder, candidate, **values)


def graph_for(graph_of, body, shapes, dtype="float32"):
    names = ", ".join("xyz"[: len(shapes)])
    return graph_of(
        f"def f({names}): return {body}", dtype=dtype, **dict(zip("xyz", shapes, strict=False))
    )


def proposed(graph_of, body, shapes):
    return list(ReductionsCpu().propose(graph_for(graph_of, body, shapes), CPP.TARGET))


def both(monkeypatch, graph_of, body, shapes):
    """Return the kernels whose threads share the work, and do not, whatever suits."""
    found = []
    for shared in (False, True):
        monkeypatch.setattr("kopt_starters.families.reductions_cpu.shares", lambda _, s=shared: s)
        found += proposed(graph_of, body, shapes)[:1]
    return found


def function_of(body, count=1):
    return eval(f"lambda {', '.join('xyz'[:count])}: {body}", {"torch": torch, "F": F})


def drawn(shapes):
    made = torch.Generator().manual_seed(7)
    return [torch.randn(shape, generator=made) * 3 + 0.5 for shape in shapes]


@pytest.mark.parametrize("body", CASES)
def test_it_is_as_exact_as_pytorch(graph_of, build, monkeypatch, body):
    shapes = CASES[body]
    function, arguments = function_of(body, len(shapes)), drawn(shapes)
    exact, own = function(*(a.double() for a in arguments)), function(*arguments)
    named = dict(zip("xyz", arguments, strict=False))
    found = both(monkeypatch, graph_of, body, shapes)
    assert [("shared" in each.idea) for each in found] == [False, True]
    for candidate in found:
        got = build(candidate)(torch.full_like(own, 77.0).contiguous(), **named)
        CPP.assert_as_exact(got, own, exact)


KNOBS = [{"THREADS": 1, "VECTOR": 8, "UNROLL": 2}, {"THREADS": 3, "VECTOR": 4, "STREAM": 1}]


@pytest.mark.parametrize("knobs", KNOBS)
@pytest.mark.parametrize("body", ["x / x.abs().mean(dim=1, keepdim=True)", "x.var(1, correction=0)",
                                  "x - x.amax(1, keepdim=True)", "torch.argmax(x, 1)"])  # fmt: skip
@pytest.mark.parametrize("shape", [(5, 1009), (3, 37, 131), (2, 1, 3)])
def test_every_element_is_right_whatever_the_knobs(
    graph_of, build, monkeypatch, body, shape, knobs
):
    function, [x] = function_of(body), drawn([shape])
    x[0, 0] = 1000.0
    own = function(x)
    for candidate in both(monkeypatch, graph_of, body, [shape]):
        got = build(candidate, **knobs)(torch.full_like(own, 77), x=x)
        CPP.assert_as_exact(got, own, function(x.double()))


@pytest.mark.parametrize("body", ["torch.argmax(x, dim=1)", "torch.argmin(x, dim=1)",
                                  "torch.argmax(x)", "torch.max(x, 1)[1]", "torch.argmin(x, 0)",
                                  "torch.argmax(x, -1)", "torch.min(x, 2)[1]"])  # fmt: skip
def test_positions_of_the_first_extreme(graph_of, build, monkeypatch, body):
    x = torch.randint(-3, 3, (4, 137, 35), generator=torch.Generator().manual_seed(1)).float()
    x[1, 5, 1] = x[1, 9, 1] = x[1, 9, 30] = float("nan")
    x[2, :, 2] = float("-inf")
    x[3, :, 3] = float("inf")
    x[0, 7, :] = float("-inf")
    own = function_of(body)(x)
    for candidate in both(monkeypatch, graph_of, body, [(4, 137, 35)]):
        assert torch.equal(build(candidate)(torch.full_like(own, -1), x=x), own), candidate.idea


@pytest.mark.parametrize("body", ["x.amax({})", "x.amin({})", "torch.logsumexp(x, {})", "x.sum({})",
                                  "x.prod({})", "F.log_softmax(x, {})"])  # fmt: skip
@pytest.mark.parametrize("dim", [0, 1])
def test_nan_and_infinities(graph_of, build, monkeypatch, body, dim):
    x = torch.randn(37, 37)
    x[0, 3], x[1, 4], x[2, 35] = float("nan"), float("inf"), float("-inf")
    x[3], x[:, 36] = float("-inf"), float("-inf")
    own = function_of(body.format(dim))(x)
    for candidate in both(monkeypatch, graph_of, body.format(dim), [(37, 37)]):
        got = build(candidate)(torch.full_like(own, 77), x=x)
        torch.testing.assert_close(got, own, equal_nan=True)


def test_variance_survives_a_large_mean_and_a_first_element_far_away(graph_of, build, monkeypatch):
    for body, shape in {"F.instance_norm(x)": (4, 3, 2111), "x.std(0)": (2111, 33)}.items():
        [x] = drawn([shape])
        function = function_of(body)
        for moved in (x + 1e4, torch.cat([torch.full_like(x[:1], 1e6), x[1:]])):
            own, exact = function(moved), function(moved.double())
            for candidate in both(monkeypatch, graph_of, body, [shape]):
                CPP.assert_as_exact(build(candidate)(torch.empty_like(own), x=moved), own, exact)
        same = torch.full(shape, 3.3)
        for candidate in both(monkeypatch, graph_of, body, [shape]):
            got = build(candidate)(torch.full_like(own, 77), x=same)
            assert not got.any()


def test_a_scalar_is_handed_over_and_others_are_required(graph_of, build):
    from kopt.model.problem import InputSpec
    from kopt.testing.problems import function_problem
    from kopt_starters.graph import Graph
    from kopt_torch.shapes import signature_by_shapes

    source = "def f(x, s, dim):\n    return (x * s).mean(dim)\n"
    inputs = (InputSpec(name="x", shape=(5, 4)), InputSpec(name="s", value=0.25))
    inputs += (InputSpec(name="dim", value=1),)
    graph = Graph.of(signature_by_shapes(function_problem(source, "f", inputs)).first)
    [candidate] = ReductionsCpu().propose(graph, CPP.TARGET)
    x, call = torch.randn(5, 4), build(candidate)
    got = call(torch.empty(5), x=x, s=3.0, dim=1)
    torch.testing.assert_close(got, (x * 3).mean(1))
    for changed in ({"x": torch.randn(5, 3), "dim": 1}, {"x": x, "dim": 0}):
        with pytest.raises(AssertionError):
            call(torch.empty(5), s=3.0, **changed)


FIRST = [
    ((128, 4096, 512), "x.sum(1)", "columns of its own"),
    ((1 << 24,), "x.mean()", "rows shared"),
    ((4096, 8192), "x.mean(1)", "rows of its own"),
    ((1 << 20, 16), "x.sum(0)", "columns shared"),
]


@pytest.mark.parametrize(("shape", "body", "idea"), FIRST)
def test_the_structure_suits_the_shape(graph_of, shape, body, idea):
    assert idea in proposed(graph_of, body, [shape])[0].idea


def test_columns_are_fetched_ahead_where_the_next_ones_follow(graph_of):
    for shape, block, ahead in [((128, 4096, 512), 2048, 2048), ((2, 4096, 70000), 2048, 0)]:
        [candidate] = proposed(graph_of, "x.sum(1)", [shape])
        assert (candidate.chosen["BLOCK"], candidate.chosen["PREFETCH"]) == (block, ahead)
    shared = proposed(graph_of, "x.sum(0)", [(1 << 18, 128)])[0]
    assert (shared.chosen["BLOCK"], shared.chosen["PREFETCH"]) == (256, 2048)


@pytest.mark.parametrize("body", NOT_COVERED)
def test_what_it_does_not_know_it_leaves(graph_of, body):
    graph = graph_for(graph_of, body, [(6, 6)])
    assert graph is None or list(ReductionsCpu().propose(graph, CPP.TARGET)) == []


def test_other_languages_dtypes_and_names_are_left_to_others(graph_of):
    triton = Target(language="triton", device=CPP.CPU)
    assert list(ReductionsCpu().propose(graph_for(graph_of, "x.sum(1)", [(4, 5)]), triton)) == []
    half = graph_for(graph_of, "x.sum(1)", [(4, 5)], "float16")
    assert list(ReductionsCpu().propose(half, CPP.TARGET)) == []
    named = graph_of("def f(out): return out.sum(1)", out=(4, 5))
    assert list(ReductionsCpu().propose(named, CPP.TARGET)) == []

"""Generated C++ at other leading extents: right there, or refused where that is not so."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from kopt.model.expressions import unmet
from kopt_starters.families.pointwise_cpu import PointwiseCpu

torch = pytest.importorskip("torch")
HERE = Path(__file__)
LED, ALL = (
    SimpleNamespace(**runpy.run_path(str(HERE.with_name(name))))
    for name in ("test_leading.py", "test_reductions_cpu.py")
)
CPP = ALL.CPP

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on this machine")

BUILT = {  # and whether threads share the rows, or the columns
    "x.sum(1)": ([(6, 19, 5)], False),
    "x.mean((1, 2))": ([(6, 4, 7)], True),
    "F.softmax(x, 1)": ([(6, 7, 5)], True),
    "F.log_softmax(x, 1)": ([(6, 37)], False),
    "F.group_norm(x, 2, y, z)": ([(6, 4, 3, 5), (4,), (4,)], False),
    "(x + y).sum(1) * z": ([(6, 5, 3), (5, 1), (6, 3)], False),
    "F.triplet_margin_loss(x, y, z, reduction='none')": ([(6, 19)] * 3, True),
    "torch.argmax(x, dim=1)": ([(6, 7, 9)], False),
    "torch.argmin(x, dim=2)": ([(6, 7, 9)], True),
}
CHAINS = {
    "torch.tanh(x * y + z)": [(6, 5, 67), (5, 1), ()],
    "F.batch_norm(x, y, z * z, training=False)": [(6, 3, 5, 7), (3,), (3,)],
}


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    folder = tmp_path_factory.mktemp("built")
    return lambda candidate: CPP.built(folder, candidate)


def proposed(monkeypatch, graph_of, body, shapes, shared):
    monkeypatch.setattr("kopt_starters.families.reductions_cpu.shares", lambda _: shared)
    return ALL.proposed(graph_of, body, shapes)[:1]


def at(extent, shapes):
    return [value.contiguous() for value in LED.at(extent, shapes)]


def check(build, candidate, body, shapes):
    """Compare at fewer rows, none included, and ask what else is refused."""
    function, run = ALL.function_of(body, len(shapes)), build(candidate)
    for extent in (6, 5, 1, 0):
        arguments = at(extent, shapes)
        own = function(*arguments)
        out = torch.full_like(own, 77).contiguous()
        got = run(out, **dict(zip("xyz", arguments, strict=False)))
        exact = function(*(a.double() for a in arguments))
        torch.testing.assert_close(got, exact.to(own.dtype), rtol=1e-5, atol=1e-5)
    for wrong in refused(shapes):
        assert reason(candidate, wrong) is not None, wrong


def reason(candidate, shapes):
    """Return the condition that does not hold for tensors of these shapes."""
    tensors = [torch.empty(shape, device="meta") for shape in shapes]
    names = {n: CPP._seen(torch.empty(t.shape)) for n, t in zip("xyz", tensors, strict=False)}
    return unmet(candidate.settings["requires"], names)


def refused(shapes):
    """Yield more rows, rows that differ, another extent, and another number of dimensions."""
    yield [(7, *shape[1:]) if shape[:1] == (6,) else shape for shape in shapes]
    led = [n for n, shape in enumerate(shapes) if shape[:1] == (6,)]
    for n, shape in enumerate(shapes):
        others = [(*shape[:d], shape[d] + 1, *shape[d + 1 :]) for d in range(len(shape))]
        others += [(1, *shape), *([shape[1:]] if shape else [])]
        others += [(5, *shape[1:])] if n in led and len(led) > 1 else []
        yield from ([*shapes[:n], other, *shapes[n + 1 :]] for other in others)


@pytest.mark.parametrize("body", BUILT)
def test_reductions_hold_for_fewer_rows_and_refuse_all_else(graph_of, build, monkeypatch, body):
    shapes, shared = BUILT[body]
    (candidate,) = proposed(monkeypatch, graph_of, body, shapes, shared)
    check(build, candidate, body, shapes)


@pytest.mark.parametrize("body", CHAINS)
def test_element_wise_chains_hold_for_fewer_rows_and_refuse_all_else(graph_of, build, body):
    shapes = CHAINS[body]
    (candidate,) = PointwiseCpu().propose(ALL.graph_for(graph_of, body, shapes), CPP.TARGET)
    check(build, candidate, body, shapes)


@pytest.mark.parametrize("body", LED.FIXED)
@pytest.mark.parametrize("shared", [False, True])
def test_reductions_that_hold_for_their_own_leading_extent_alone(
    graph_of, monkeypatch, body, shared
):
    shapes = LED.FIXED[body]
    for candidate in proposed(monkeypatch, graph_of, body, shapes, shared):
        own = [value.shape for value in at(6, shapes)]
        fewer = [value.shape for value in at(5, shapes)]
        assert reason(candidate, own) is None
        assert reason(candidate, fewer) is not None


def test_a_number_without_dimensions_leaves_one_row_alone(graph_of, build):
    """All elements are one row then: its length is in the kernel."""
    shapes = [(6, 32), ()]
    (candidate,) = PointwiseCpu().propose(ALL.graph_for(graph_of, "x * y", shapes), CPP.TARGET)
    x, y = at(6, shapes)
    torch.testing.assert_close(build(candidate)(torch.empty_like(x), x=x, y=y), x * y)
    assert reason(candidate, [(5, 32), ()]) is not None

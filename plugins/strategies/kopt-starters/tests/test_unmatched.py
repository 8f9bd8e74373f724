"""What no family knows is named."""

from __future__ import annotations

import io
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kopt import logs
from kopt_starters.families import FAMILIES
from kopt_starters.unmatched import unmatched

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

CHECK = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("checking.py"))))


def names(graph_of, body, **shapes):
    graph = graph_of(f"def reference({', '.join(shapes)}): return {body}", **shapes)
    return unmatched(graph, FAMILIES, CHECK.TARGET)


def test_the_operators_that_are_not_known_are_named_once_and_in_order(graph_of):
    body = "torch.linalg.det(torch.relu(x @ w)) + torch.linalg.det(x).median()"
    found = names(graph_of, body, x=(4, 8, 8), w=(8, 8))
    assert found == ["_linalg_det.default", "median.default"]


def test_nothing_is_named_where_each_is_known(graph_of):
    assert (
        names(graph_of, "torch.relu(F.conv2d(x, w)).sum(1)", x=(2, 8, 9, 9), w=(8, 8, 3, 3)) == []
    )
    assert names(graph_of, "F.max_pool2d(x, 2)", x=(2, 8, 9, 9)) == []


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is logged."""
    monkeypatch.setattr(logs, "_settings", logs._Settings())
    stream = io.StringIO()
    logs.configure(json=True, stream=stream)
    return stream


def test_the_strategy_warns_where_it_has_nothing(said, trace, propose):
    signature = trace(lambda x: torch.linalg.det(x), x=torch.rand(2, 4, 4))
    assert propose(signature, "triton") == []
    assert '"event": "no_starter"' in said.getvalue()


def test_it_says_nothing_where_it_has_something(said, trace, propose):
    assert propose(trace(lambda x: torch.softmax(x, -1), x=torch.rand(8, 64)), "triton")
    assert said.getvalue() == ""

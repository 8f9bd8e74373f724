"""What a reference searches in stays sorted, whatever is drawn for it."""

from __future__ import annotations

import pytest
import torch

from kopt.model.problem import InputSpec, Problem, ReferenceSource, Workload
from kopt.model.reference import Change
from kopt_torch.drawing import Draw
from kopt_torch.ordered import in_order, searched, sorted_rows
from kopt_torch.sharp import SHARPER
from kopt_torch.trace import traced

_MODEL = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("inner", torch.linspace(0.1, 0.9, 40))

    def forward(self, edges, x):
        return {result}


def get_inputs():
    return [torch.rand(100).sort().values, torch.rand(64, 50)]


def get_init_inputs():
    return []
"""


def a_model(result="torch.searchsorted(edges, x).float()"):
    source = ReferenceSource(kind="kernelbench", source=_MODEL.format(result=result), entry="Model")
    return Problem(name="model", format="kernelbench", reference=source)


SEARCHES = {
    "torch.searchsorted(edges, x)": {"edges"},
    "torch.bucketize(x, edges)": {"edges"},
    "torch.bucketize(x, edges.double()[2:])": {"edges"},
    "torch.searchsorted(edges.view(1, -1).expand(4, -1).contiguous(), x)": {"edges"},
    "torch.searchsorted(edges, x, sorter=edges.argsort())": set(),
    "torch.searchsorted(edges.sort().values, x)": set(),
    "torch.searchsorted(x.sort(-1).values, edges.expand(4, -1).contiguous())": set(),
    "torch.bucketize(x, edges) + torch.bucketize(edges, x.flatten()).sum()": {"edges", "x"},
    "torch.histogram(x, edges)[0]": {"edges"},
    "torch.histogram(x, 10)[0]": set(),
    "torch.searchsorted(edges, 0.5)": {"edges"},
    "x.sort(-1).values + edges[:6]": set(),
}


@pytest.mark.parametrize("result", SEARCHES)
def test_what_is_searched_in_is_known_by_name(result):
    def function(values, keywords, state):
        return eval(result, {"torch": torch, "edges": values[0], "x": values[1]})

    drawn = Draw(["edges", "x"], [torch.rand(30).sort().values, torch.rand(4, 6)], {})
    calls, _ = traced(function, drawn, {})
    assert searched(calls) == SEARCHES[result]


def test_rows_are_sorted_by_name_in_nestings_too():
    values = [torch.tensor([[3.0, 1.0], [0.0, 2.0]]), [torch.tensor([2, 1])], torch.tensor(1.0)]
    drawn = in_order(
        Draw(["a", "b", "c"], values, {"d": torch.tensor([2.0, 1.0])}), {"a", "b[0]", "c"}
    )
    assert [drawn.values[0].tolist(), drawn.values[1][0].tolist()] == [[[1, 3], [0, 2]], [1, 2]]
    assert drawn.keywords["d"].tolist() == [2, 1]
    assert sorted_rows(torch.tensor(1.0)) == 1


def ascends(tensor):
    return bool((tensor[..., 1:] >= tensor[..., :-1]).all())


@pytest.mark.parametrize("distribution", ["native", "signed", *SHARPER])
def test_boundaries_stay_sorted_in_every_distribution(opened, distribution):
    reference = opened(a_model("torch.searchsorted(edges, x) + torch.bucketize(x, self.inner)"))
    inputs = reference.inputs("default", 5, distribution)
    edges, inner = (inputs.tensors[name].clone() for name in ("edges", "inner"))
    assert ascends(edges) and ascends(inner)
    assert len(edges.unique()) > 90
    assert not ascends(inputs.tensors["x"])
    assert all(inputs.perturb(seed) for seed in range(4))
    assert torch.equal(inputs.tensors["edges"], edges)
    inputs.close()
    assert "kept sorted, as the reference searches in it: edges, inner" in reference.input_notes


CHANGES = [
    Change(name="shorter", extents={"100": 33}), Change(name="longer", extents={"100": 150}),
    *(Change(name=each, content=each)
      for each in ("scale:1e3", "offset:1e3", "alternating", "constant", "infinite:+", "infinite:-")),
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_changed_boundaries_are_sorted_again(opened, change):
    inputs = opened(a_model()).changed_inputs("default", 3, change)
    assert inputs is not None
    assert ascends(inputs.tensors["edges"])
    inputs.close()


def test_declared_boundaries_are_sorted_when_they_are_drawn(opened):
    problem = Problem(
        name="search", format="kopt",
        reference=ReferenceSource(
            kind="function", entry="search",
            source="import torch\n\ndef search(x, edges):\n    return torch.bucketize(x, edges)\n",
        ),
        inputs=(InputSpec(name="x", shape=("n",)), InputSpec(name="edges", shape=("m",))),
        workloads=(Workload(name="only", sizes={"n": 500, "m": 60}),),
    )  # fmt: skip
    inputs = opened(problem).inputs("only", 1)
    assert ascends(inputs.tensors["edges"]) and not ascends(inputs.tensors["x"])
    inputs.close()


def test_what_is_not_searched_in_is_not_sorted(opened):
    """Kernels that rely on rows which happen to be sorted are found out by others."""
    reference = opened(a_model("edges.amax() + x"))
    inputs = reference.inputs("default", 5, "signed")
    assert not ascends(inputs.tensors["edges"])
    inputs.close()
    assert not [note for note in reference.input_notes if "sorted" in note]

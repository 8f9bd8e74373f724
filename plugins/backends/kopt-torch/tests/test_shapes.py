"""Signatures from shapes alone, beside those of an opened reference."""

from __future__ import annotations

import pytest
import torch

from kopt.errors import ProblemError
from kopt.formats.pickled import problem_from_function
from kopt.model.problem import InputSpec, Problem, ReferenceSource, Workload
from kopt.model.work import MatrixFlops, per_output, work_of
from kopt_torch.shapes import signature_by_shapes

HUGE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        return torch.relu(self.linear(x))

def get_inputs():
    return [torch.rand(1 << 20, 1 << 18)]

def get_init_inputs():
    return [1 << 18]
"""


def same(shapes, opened):
    return shapes == opened.model_copy(
        update={
            "workloads": {
                name: workload.model_copy(update={"memory_bytes": 0})
                for name, workload in opened.workloads.items()
            }
        }
    )


def kernelbench(source):
    given = ReferenceSource(kind="kernelbench", source=source, entry="Model")
    return Problem(name="model", format="kernelbench", reference=given)


def test_a_model_has_the_signature_of_the_opened_one(opened, model):
    assert same(signature_by_shapes(model), opened(model).signature)


def test_a_function_has_the_signature_of_the_opened_one(opened, problem):
    workloads = (Workload(name="small", sizes={"n": 3}), Workload(name="large", sizes={"n": 5}))
    given = problem(
        "def f(x, w, *, scale):\n    return (x @ w) * scale, x.sum(-1)",
        InputSpec(name="x", shape=(6, "n")), InputSpec(name="w", shape=("n", "n * 2")),
        InputSpec(name="scale", value=0.5, keyword=True), workloads=workloads,
    )  # fmt: skip
    found = signature_by_shapes(given)
    assert same(found, opened(given).signature)
    assert set(per_output(found.workloads["large"])) == {"out0", "out1"}


def test_a_pickled_module_has_the_signature_of_the_opened_one(opened):
    given = problem_from_function(torch.nn.Linear(10, 4), [torch.randn(6, 10)], name="layer")
    assert same(signature_by_shapes(given), opened(given).signature)


def test_a_model_that_looks_at_a_value_when_it_is_made(opened):
    source = HUGE.replace("1 << 18", "8").replace("1 << 20", "4").replace(
        "self.linear =", "self.rate = torch.linspace(0, 1, 3)[1].item()\n        self.linear ="
    )  # fmt: skip
    given = kernelbench(source)
    assert same(signature_by_shapes(given), opened(given).signature)


def test_what_no_machine_has_memory_for_is_analysed_all_the_same():
    work = work_of(signature_by_shapes(kernelbench(HUGE)).first)
    rows, features = 1 << 20, 1 << 18
    assert work.compulsory_bytes == 4 * (2 * rows * features + features * features + features)
    assert work.matrix == (
        MatrixFlops(kind="product", dtype="float32", flops=2 * rows * features**2),
    )
    assert work.vector_ops == rows * features


def test_what_depends_on_values_is_said(problem):
    given = problem("def f(x):\n    return x * float(x.abs().max().item() > 0)")
    with pytest.raises(ProblemError, match="DataDependent"):
        signature_by_shapes(given)


def test_inputs_that_cannot_be_made_are_said():
    broken = HUGE.replace("torch.rand(1 << 20, 1 << 18)", "torch.rand(4) @ torch.rand(5)")
    with pytest.raises(ProblemError, match="cannot be analysed by shapes alone: RuntimeError"):
        signature_by_shapes(kernelbench(broken))


@pytest.mark.parametrize(
    ("body", "mutates", "nbytes"),
    [
        ("z = y.clone()\n    z[:4] = x\n    return z", (), 4 * (4 + 8 + 8)),
        ("z = torch.zeros(8)\n    z[:4].copy_(x)\n    return z, y[:2].exp()", (), 4 * (4 + 8 + 4)),
        ("return x.mul(2).add_(1)", (), 4 * 8),  # y is not read
        ("x.add_(y[4:])", ("x",), 4 * (4 + 4 + 4)),
    ],
)
def test_what_is_changed_in_place_is_followed(problem, body, mutates, nbytes):
    inputs = InputSpec(name="x", shape=(4,)), InputSpec(name="y", shape=(8,))
    given = problem(f"def f(x, y):\n    {body}", *inputs, mutates=mutates)
    assert work_of(signature_by_shapes(given).first).compulsory_bytes == nbytes

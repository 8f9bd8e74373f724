"""What a run takes of a device's memory, known from shapes before any of it is taken."""

from __future__ import annotations

import pytest

from kopt.model.problem import InputSpec
from kopt_torch.preflight import memory_needed, room_needed
from kopt_torch.source import ReferenceFunction

N = 1 << 20
TENSOR = 4 * N
X = InputSpec(name="x", shape=(1024, 1024))


@pytest.mark.parametrize(
    ("body", "tensors"),
    [
        ("    return x + 1.0", 1),
        ("    y = x + 1.0\n    y = y * 2.0\n    return y - 1.0", 2),  # the first is gone by then
        ("    a, b, c = x + 1.0, x + 2.0, x + 3.0\n    return a + b + c", 5),  # all are still named
        ("    return x.t().reshape(-1)[:4] + 1.0", 1),  # laid out anew, as it is no view
        ("    return x.view(-1)[:4].neg()", 0),
        ("    y = x + 1.0\n    return y.view(-1)[5:], y.t()", 1),  # views of one result
    ],
    ids=["one", "chain", "branches", "transposed", "views of an input", "views of a result"],
)
def test_each_process_has_the_intermediate_results_that_live_together(problem, body, tensors):
    made = problem(f"def f(x):\n{body}", X)
    function = ReferenceFunction(made, "cpu")
    workload = made.workloads[0]
    needed = memory_needed(made, function, workload)
    beside = room_needed(made, function, workload, needed) - needed
    copied = TENSOR  # of the input, in another layout
    assert beside == pytest.approx(3 * (tensors * TENSOR + copied), rel=0.01)


def test_weights_are_not_results(problem):
    body = (
        "m = torch.nn.Linear(1024, 1024)\nm.requires_grad_(False)\ndef f(x):\n    return m(x[:1])"
    )
    made = problem(body, X)
    function = ReferenceFunction(made, "cpu")
    workload = made.workloads[0]
    needed = memory_needed(made, function, workload)
    beside = room_needed(made, function, workload, needed) - needed
    assert beside < 3 * TENSOR * 1.1


def test_what_shapes_do_not_tell_is_not_waited_for(problem):
    made = problem("def f(x):\n    return x[: int(x.abs().sum())]", X)
    function, workload = ReferenceFunction(made, "cpu"), made.workloads[0]
    needed = memory_needed(made, function, workload)
    assert needed == room_needed(made, function, workload, needed) == 0

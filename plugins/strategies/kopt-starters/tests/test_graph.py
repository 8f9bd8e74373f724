"""A reference as a graph: everything that an operator was given, and nothing that nobody needs."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from kopt.model.problem import (
    ArgumentInfo,
    Operand,
    OperatorCall,
    TensorInfo,
    WorkloadSignature,
)
from kopt_starters.graph import Graph, Value


@pytest.fixture
def of(graph_of):
    """Return the graph of a function's body."""

    def made(body: str, **shapes: tuple[int, ...]):
        return graph_of(f"def reference({', '.join(shapes)}):\n    {body}\n", **shapes)

    return made


def test_operators_with_what_they_were_given(of):
    graph = of("return torch.clamp(2 - x, min=0.5).sum(-1, keepdim=True)", x=(3, 4))
    rsub, clamp, total = graph.nodes
    x = Value("x", (3, 4), "float32")
    assert (rsub.operator, rsub.overload) == ("rsub", "Scalar")
    assert rsub.given == (x, 2)
    assert clamp.given == (rsub.output, 0.5)
    assert total.given == (clamp.output, (-1,), True)
    assert graph.result == total.output
    assert graph.producer(clamp.output) is clamp
    assert graph.producer(x) is None
    assert graph.users(rsub.output) == [clamp]
    assert total.output.elements == 3


def test_arguments_by_position_and_by_name(of):
    (node,) = of("return x.sum(1, dtype=torch.float64)", x=(3, 4)).nodes
    assert node.argument(1, "dim") == (1,)
    assert node.argument(2, "keepdim", False) is False
    assert node.argument(9, "dtype") == "torch.float64"
    assert node.output.dtype == "float64"


def test_lists_of_tensors(of):
    (node,) = of("return torch.cat([x, y], 1)", x=(3, 4), y=(3, 2)).nodes
    (pair, dim) = node.given
    assert [value.name for value in pair] == ["x", "y"]
    assert dim == 1
    assert [value.name for value in node.tensors] == ["x", "y"]


def test_what_nobody_needs_is_left_out(of):
    graph = of("y = x.exp(); return x * 2", x=(3,))
    assert [node.operator for node in graph.nodes] == ["mul"]


def test_several_outputs(of):
    graph = of("return x + 1, x * 2", x=(3,))
    assert graph.result is None
    assert [graph.producer(value).operator for value in graph.results] == ["add", "mul"]


def test_a_module_has_its_state_behind_the_arguments(of):
    graph = of("return F.linear(x, w)", x=(3, 4), w=(5, 4))
    assert [argument.name for argument in graph.arguments] == ["x", "w"]
    assert graph.tensor("w") == Value("w", (5, 4), "float32")
    assert graph.tensor("b") is None


@pytest.mark.parametrize(
    "body",
    ["y = x + 1; z = y.view(-1); y.mul_(2); return z", "x.add_(1); return x * 1", "return x"],
    ids=["a view of what changes", "argument in place", "nothing done"],
)
def test_what_is_no_graph(of, body):
    assert of(body, x=(3,)) is None


def test_what_changes_in_place_is_a_new_value_from_there_on(of):
    graph = of("y = x + 1; z = y * 3; y.relu_(); return y + z", x=(3,))
    plus, times, relu, total = graph.nodes
    assert [node.operator for node in graph.nodes] == ["add", "mul", "relu", "add"]
    assert times.given[0] == plus.output == relu.given[0]
    assert relu.output != plus.output
    assert total.tensors == (relu.output, times.output)
    assert graph.producer(relu.output) is relu


def test_a_result_that_was_changed_in_place(of):
    graph = of("y = F.linear(x, w); return F.relu(y, inplace=True)", x=(3, 4), w=(5, 4))
    assert graph.nodes[-1].operator == "relu"
    assert graph.result == graph.nodes[-1].output


def test_the_result_is_not_what_stands_last_but_what_has_its_form(of):
    """Of a pooling in one dimension the trace ends with the indices, which nobody asked for."""
    graph = of("return F.max_pool1d(x, 3)", x=(2, 3, 9))
    assert graph.result.dtype == "float32"
    assert graph.result.shape == (2, 3, 3)


@pytest.mark.parametrize("known", [True, False])
def test_a_number_that_the_reference_holds(known):
    """As ``torch.minimum(x, torch.tensor(0.5))``, where a trace says which number it is."""
    x = TensorInfo(name="x", dtype="float32", shape=(3,))
    number = Operand(value=0.5) if known else Operand(tensor="%1")
    lift = OperatorCall(name="aten.lift_fresh.default", inputs=("%1",), outputs=("%2",),
                        shapes=((),), operands=(number,), dtypes=("float32",))  # fmt: skip
    given = (Operand(tensor="x"), Operand(tensor="%2"))
    least = OperatorCall(name="aten.minimum.default", inputs=("x", "%2"), outputs=("%3",),
                         shapes=((3,),), operands=given, dtypes=("float32",))  # fmt: skip
    call = WorkloadSignature(
        arguments=(ArgumentInfo(name="x", kind="tensor", tensor=x),),
        outputs=(x.model_copy(update={"name": "out0"}),), compulsory_bytes=24, trace=(lift, least),
    )  # fmt: skip
    graph = Graph.of(call)
    if not known:
        assert graph is None
        return
    assert [node.operator for node in graph.nodes] == ["scalar_tensor", "minimum"]
    assert graph.nodes[0].given == (0.5,)
    assert graph.result.name == "%3"

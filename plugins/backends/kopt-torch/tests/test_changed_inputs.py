"""Inputs that a workload does not have: other extents, layouts and values."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kopt.errors import ProblemError
from kopt.model.problem import InputSpec, ReferenceSource, Workload
from kopt.model.reference import Change
from kopt.testing.problems import function_problem
from kopt_torch.drawing import Draw
from kopt_torch.reference import TorchReference
from kopt_torch.source import ReferenceFunction
from kopt_torch.tensors import Placement
from kopt_torch.variants import cropped, pointing_inside

KERNELBENCH = """\
import torch


class Model(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = torch.nn.Linear(features, 5)

    def forward(self, x):
        return self.linear(x)


def get_inputs():
    return [torch.rand(12, 8)]


def get_init_inputs():
    return [8]
"""


def matmul(**sizes):
    """A product of matrices whose extents have names."""
    return function_problem(
        "def product(a, b):\n    return a @ b\n", "product",
        (InputSpec(name="a", shape=("m", "k")), InputSpec(name="b", shape=("k", "n", ))),
        workloads=(Workload(sizes=sizes or {"m": 8, "n": 8, "k": 16}),),
    )  # fmt: skip


def rows(dtype="float32", **how):
    spec = InputSpec(name="x", shape=(6, 10), dtype=dtype, **how)
    return function_problem("def f(x):\n    return x * 1\n", "f", (spec,))


@pytest.fixture
def changed():
    """Return a function that opens a problem and draws changed inputs; all are closed."""
    opened = []

    def draw(problem, *args, **kwargs):
        reference = TorchReference(problem, "cpu")
        inputs = reference.changed_inputs("default", 3, Change("changed", *args, **kwargs))
        opened.extend(x for x in (inputs, reference) if x)
        return inputs, reference

    yield draw
    for each in opened:
        each.close()


def test_sizes_vary_by_name_even_where_they_are_equal(changed):
    inputs, reference = changed(matmul(), {"m": 7, "k": 5})
    assert dict(reference.extents("default")) == {"m": 8, "n": 8, "k": 16}
    assert inputs.tensors["a"].shape == (7, 5) and inputs.tensors["b"].shape == (5, 8)
    assert inputs.outputs[0].shape == (7, 8)
    (answer,) = reference.answers(inputs)
    a, b = (inputs.tensors[name] for name in "ab")
    assert torch.equal(answer.expected[0], a @ b)
    assert answer.oracle[0].dtype == torch.float64


def test_what_a_file_draws_is_cut_and_goes_around(changed):
    problem = matmul().model_copy(update={
        "inputs": (), "format": "kernelbench",
        "reference": matmul().reference.model_copy(
            update={"kind": "kernelbench", "source": KERNELBENCH, "entry": "Model"}
        ),
    })  # fmt: skip
    inputs, reference = changed(problem, {"12": 30})
    assert dict(reference.extents("default")) == {"12": 12, "8": 8}
    (x,) = (inputs.tensors[name] for name in ("x",))
    assert x.shape == (30, 8) and torch.equal(x[:12], x[12:24])
    assert inputs.outputs[0].shape == (30, 5)
    assert changed(problem, {"8": 7})[0] is None  # the weights say otherwise


def test_cutting_leaves_scalars_and_other_extents_alone():
    drawn = Draw(["x", "n"], [torch.arange(6).view(2, 3), 3], {})
    assert cropped(drawn, {"3": 2}).values[1] == 3
    assert cropped(drawn, {"3": 2}).values[0].tolist() == [[0, 1], [3, 4]]
    assert cropped(drawn, {}) is drawn


@pytest.mark.parametrize(
    ("layout", "strides"),
    [("contiguous", (10, 1)), ("transposed", (1, 6)), ("spaced", (11, 1)), ("misaligned", (10, 1))],
)
def test_layouts_hold_the_same_values(changed, layout, strides):
    plain, _ = changed(rows())
    inputs, _ = changed(rows(), layout=layout)
    x = inputs.tensors["x"]
    assert x.stride() == strides
    assert torch.equal(x, plain.tensors["x"])
    assert (x.data_ptr() - inputs.tensors["x"].untyped_storage().data_ptr()) % 64 == (
        4 if layout == "misaligned" else 0
    )
    assert inputs.changed() == [] and inputs.canaries_hurt() == []
    assert inputs.outputs[0].is_contiguous()
    ref = inputs.call.arguments[0].value
    assert (ref.shape, ref.strides) == ((6, 10), strides)
    inputs.redraw(4)
    assert not torch.equal(x, plain.tensors["x"]) and inputs.changed() == []


@pytest.mark.parametrize("layout", ["transposed", "spaced", "misaligned"])
def test_placements_do_not_overlap(layout):
    for shape in ((5,), (3, 4), (2, 3, 4), (1, 7), (), (0, 3)):
        place = Placement.of(shape, layout)
        storage = torch.arange(place.elements)
        seen = storage.as_strided(shape, place.strides, place.offset).flatten()
        assert seen.unique().numel() == seen.numel() == torch.Size(shape).numel()


def test_a_change_in_a_gap_between_elements_is_noticed(changed):
    inputs, _ = changed(rows(), layout="spaced")
    x = inputs.tensors["x"]
    x.as_strided((6, 11), (11, 1))[2, 10] = 1.0
    assert inputs.changed() == ["x"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_values_are_strained_as_named(changed, dtype):
    plain = changed(rows(dtype))[0].tensors["x"].double()
    for content, expected in (
        ("scale:100", plain * 100), ("offset:1000", plain + 1000),
        ("constant", plain[:, :1].expand(6, 10)),
    ):  # fmt: skip
        found = changed(rows(dtype), content=content)[0].tensors["x"]
        assert torch.allclose(found.double(), expected.to(found.dtype).double())
    cancelling = changed(rows(dtype), content="alternating")[0].tensors["x"].double()
    assert float(cancelling.abs().min()) > 900
    assert float(cancelling.sum(0).abs().max()) < 40 > float(cancelling.sum(1).abs().max())


def test_a_declared_range_is_kept_and_integers_go_to_the_ends_of_it(changed):
    assert changed(rows(distribution="uniform"), content="scale:100")[0] is None
    found = changed(rows(distribution="uniform"), content="constant")[0].tensors["x"]
    assert bool((found == found[:, :1]).all())
    whole = rows("int64", distribution="integers", low=0, high=9)
    plain = changed(whole)[0].tensors["x"]
    for content, end in (("lowest", plain.min()), ("highest", plain.max())):
        assert bool((changed(whole, content=content)[0].tensors["x"] == end).all())
    assert changed(rows(), content="lowest")[0] is None


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_few_values_become_infinite_at_places_drawn_from_the_seed(changed, dtype):
    wide = function_problem(
        "def f(x, y):\n    return x + y\n", "f",
        (InputSpec(name="x", shape=(40, 30), dtype=dtype), InputSpec(name="y", shape=(30,), dtype=dtype)),
    )  # fmt: skip
    plain = changed(wide)[0].tensors
    for content, infinity in (("infinite:+", float("inf")), ("infinite:-", float("-inf"))):
        inputs = changed(wide, content=content)[0]
        before = inputs.tensors["x"] == infinity
        assert 1 < int(before.sum()) <= 4
        assert torch.equal(inputs.tensors["x"][~before], plain["x"][~before])
        assert torch.equal(inputs.tensors["y"], plain["y"])  # the first argument alone
        inputs.redraw(4)
        assert not torch.equal(inputs.tensors["x"] == infinity, before)
        inputs.redraw(3)
        assert torch.equal(inputs.tensors["x"] == infinity, before)


def test_infinities_are_of_use_unless_all_of_a_result_is_nan(changed):
    for body, useful in (("x * 0", True), ("(x * 0).sum()", False), ("x.sum()", True)):
        problem = function_problem(f"def f(x):\n    return {body}\n", "f", rows().inputs)
        found = changed(problem, content="infinite:+")[0]
        assert (found is not None) == useful, body
    assert changed(rows(distribution="uniform"), content="infinite:+")[0] is None
    whole = rows("int32", distribution="integers", low=0, high=9)
    assert changed(whole, content="infinite:-")[0] is None


def test_there_are_no_inputs_where_the_reference_gives_nan(changed):
    spec = InputSpec(name="x", shape=(6, 10), distribution="uniform", low=1.0, high=2.0)
    mean = function_problem("def f(x):\n    return x.mean(-1)\n", "f", (spec,))
    assert changed(mean, {"10": 0})[0] is None
    inputs, _ = changed(mean, {"6": 0})
    assert inputs.outputs[0].shape == (0,)


def test_the_oracle_takes_values_that_are_wider_than_the_problems(changed):
    inputs, reference = changed(rows())
    moved = inputs.tensors["x"].double() * (1 + 2.0**-30)
    (near,) = reference.oracle_with(inputs, {"x": moved}, {})
    assert near.dtype == torch.float64 and torch.equal(near, moved)
    assert not torch.equal(near, reference.oracle(inputs)[0])


PICK = function_problem(
    "def pick(table, index):\n    return table[index]\n",
    "pick",
    (
        InputSpec(name="table", shape=(50, 8)),
        InputSpec(name="index", shape=(300,), dtype="int64", distribution="integers", low=0, high=50),
    ),
)  # fmt: skip
LABELLED = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, logits, labels):
        return nn.functional.cross_entropy(logits, labels)


def get_inputs():
    return [torch.rand(64, 40), torch.randint(0, 40, (64,))]


def get_init_inputs():
    return []
"""


def test_integers_point_into_an_extent_that_was_made_smaller(changed):
    inputs, _ = changed(PICK, {"50": 17})
    assert inputs.tensors["table"].shape == (17, 8)
    assert int(inputs.tensors["index"].max()) == 16
    labelled = function_problem("", "", ()).model_copy(
        update={"reference": ReferenceSource(kind="kernelbench", source=LABELLED, entry="Model")}
    )
    inputs, _ = changed(labelled, {"40": 7, "64": 33})
    logits, labels = inputs.tensors.values()
    assert logits.shape == (33, 7)
    assert int(labels.max()) == 6
    inputs, _ = changed(labelled, {"40": 0})
    assert inputs is None, "no label is right where there are no classes"


def test_integers_that_point_outside_are_found_before_a_gpu_sees_them():
    reference = TorchReference(PICK, "cpu")
    table, index = torch.rand(10, 8).half(), torch.full((3,), 9)
    reference.try_on_cpu(Draw(["table", "index"], [table, index], {}), {})
    with pytest.raises(ProblemError, match="out of bounds"):
        reference.try_on_cpu(Draw(["table", "index"], [table, index + 1], {}), {})
    reference.close()


@pytest.mark.parametrize(
    "body",
    [
        # Half is half: widened, it does not fit what the reference makes itself.
        "torch.zeros(40, 8, dtype=torch.float16).index_add_(0, index, table[index])",
        "table[index].to('meta').sum().item()",
    ],
    ids=["dtype", "not-on-a-cpu"],
)
def test_what_else_goes_wrong_on_a_cpu_says_nothing_of_the_reference(body):
    problem = function_problem(
        f"import torch\n\ndef pick(table, index):\n    return {body}\n", "pick", PICK.inputs
    )
    reference = TorchReference.__new__(TorchReference)
    reference.problem, reference._function = problem, ReferenceFunction(problem, "cpu")
    table, index = torch.rand(10, 8).half(), torch.full((3,), 9)
    reference.try_on_cpu(Draw(["table", "index"], [table, index], {}), {})
    with pytest.raises(ProblemError, match="out of bounds"):
        reference.try_on_cpu(Draw(["table", "index"], [table, index + 1], {}), {})


@given(st.lists(st.integers(-2, 40), min_size=1), st.integers(0, 60), st.integers(0, 60))
def test_wrapped_integers_stay_below_the_new_extent_and_others_are_left(values, extent, other):
    value = torch.tensor(values)
    drawn = Draw(["x"], [value], {})
    (found,) = pointing_inside(drawn, {"a": extent, "b": 60}, {"a": other}).values
    if min(values) >= 0 and other <= max(values) < extent and other > 0:
        assert int(found.max()) < other
    else:
        assert torch.equal(found, value)

"""A reference as the judge runs it: signature, arguments, state, changes in place."""

from __future__ import annotations

import pytest
import torch

import kopt
from kopt.errors import ProblemError
from kopt.formats.pickled import problem_from_function
from kopt.model.problem import (
    InputSpec,
    Operand,
    OperatorCall,
    Problem,
    ReferenceSource,
    Workload,
)
from kopt.model.reference import Alone
from kopt.testing import problems
from kopt_torch import TorchBackend
from kopt_torch.reference import TorchReference


def spec(name="x", *shape, **more):
    return InputSpec(name=name, shape=shape or (6, 10), **more)


# --- the three kinds ---


def test_a_function_gives_its_signature(opened):
    workloads = (
        Workload(name="small", sizes={"n": 3}),
        Workload(name="large", sizes={"n": 5}, role="check"),
    )
    reference = opened(
        "def f(x, y, *, scale):\n    return x * scale + y",
        InputSpec(name="x", shape=("n", "n * 2")), InputSpec(name="y", shape=("n", 1)),
        InputSpec(name="scale", value=0.5, keyword=True), workloads=workloads,
    )  # fmt: skip
    for name, n in (("small", 3), ("large", 5)):
        signature = reference.signature.workloads[name]
        assert [(a.name, a.kind) for a in signature.arguments] == [
            ("x", "tensor"), ("y", "tensor"), ("scale", "scalar"),
        ]  # fmt: skip
        assert signature.arguments[2].value == 0.5
        assert [(o.name, o.shape, o.dtype) for o in signature.outputs] == [
            ("out0", (n, 2 * n), "float32")
        ]
        assert signature.structure == "tensor"
        assert signature.compulsory_bytes == 4 * (2 * n * n + n + 2 * n * n)


def test_a_kernelbench_model_has_its_state_apart(opened, model):
    reference = opened(model)
    kinds = {a.name: a.kind for a in reference.signature.first.arguments}
    assert kinds["x"] == "tensor"
    assert {name for name, kind in kinds.items() if kind == "state"} == {
        "linear.weight", "linear.bias", "norm.weight", "norm.bias", "norm.running_mean",
        "norm.running_var", "norm.num_batches_tracked",
    }  # fmt: skip
    inputs = reference.inputs("default", 1)
    assert [argument.value.value for argument in inputs.call.init] == [24, 16]
    assert set(inputs.call.state) == {name for name, kind in kinds.items() if kind == "state"}


def test_a_pickled_function_and_a_pickled_module_run(opened):
    offset = torch.arange(10.0)
    plain = opened(problem_from_function(lambda x: x + offset, [torch.randn(6, 10)], name="shift"))
    inputs = plain.inputs("default", 3)
    assert torch.equal(plain.expected(inputs)[0], inputs.tensors["x"] + offset)
    layer = torch.nn.Sequential(torch.nn.Linear(10, 4), torch.nn.Dropout(0.9))
    module = opened(problem_from_function(layer, [torch.randn(6, 10)], name="layer"))
    inputs = module.inputs("default", 3)
    wanted = torch.nn.functional.linear(
        inputs.tensors["input"], inputs.tensors["0.weight"], inputs.tensors["0.bias"]
    )
    assert torch.allclose(module.expected(inputs)[0], wanted)


def test_another_kind_is_left_to_other_backends(problem):
    backend = TorchBackend(TorchBackend.Options())
    known = problem("def f(x):\n    return x")
    foreign = known.reference.model_copy(update={"kind": "of another framework"})
    assert (
        backend.kopt_open_reference(known.model_copy(update={"reference": foreign}), "cpu", Alone())
        is None
    )
    assert (
        list(backend.kopt_baselines(known.model_copy(update={"reference": foreign}), "cpu")) == []
    )
    assert isinstance(backend.kopt_open_reference(known, "cpu", Alone()), TorchReference)


def test_memory_is_reserved_once_before_any_is_taken(problem):
    """Once: who asks for more while it holds some could wait for another that does so too."""
    asked: list[int] = []

    class Ledger:
        def reserve(self, nbytes: int) -> None:
            asked.append(nbytes)

    known = problem("def f(x):\n    return x + 1")
    reference = TorchBackend(TorchBackend.Options()).kopt_open_reference(known, "cpu", Ledger())
    assert reference is not None
    most = max(each.memory_bytes for each in reference.signature.workloads.values())
    assert len(asked) == 1
    assert asked[0] > most > 0


# --- what is wrong with a reference is said before any candidate is judged ---


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("def f(x):\n    return missing", "NameError: name 'missing'"),
        ("def f(y, x):\n    return x", "TypeError"),
        ("def g(x):\n    return x", "AttributeError"),
        ("def f(x):\n    return 'no tensor'", "returns other:str, no tensor"),
        ("def f(x):\n    return x.to(torch.complex64)", "complex64"),
        ("def f(x):\n    return x + torch.rand_like(x)", "draws random numbers"),
        ("def f(x):\n    return torch.nn.functional.dropout(x)", "different results"),
        ("def f(x):\n    x.add_(1)\n    return x", "mutates = ['x']"),
        ("def f(x):\n    x.data.add_(1)\n    return x * 1", "mutates = ['x']"),
        ("def f(x):\n    x.numpy()[0] = 7\n    return x * 1", "mutates = ['x']"),
    ],
)
def test_a_wrong_reference_is_a_problem_error(opened, body, words):
    with pytest.raises(ProblemError) as caught:
        opened(body)
    assert words in str(caught.value)
    assert "'f'" in str(caught.value) or "out0" in str(caught.value)


def test_only_what_is_undeclared_is_refused(opened):
    body = "def f(x, y):\n    x.add_(y)\n    y.mul_(2)"
    inputs = (spec("x"), spec("y"))
    with pytest.raises(ProblemError, match=r"mutates = \['x', 'y'\]"):
        opened(body, *inputs, mutates=("x",))
    assert opened(body, *inputs, mutates=("x", "y")).signature.first.structure == "none"


def test_a_module_that_changes_its_buffers_is_refused(opened):
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            return x * 2

    with pytest.raises(ProblemError, match="buffers \\(calls\\)"):
        opened(problem_from_function(Counting(), [torch.randn(3)], name="counting"))


def test_an_argument_named_as_a_parameter_is_refused(opened):
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))

        def forward(self, x, weight):
            return x * self.weight + weight

    sample = [torch.randn(3), torch.randn(3)]
    with pytest.raises(ProblemError, match="rename the argument"):
        opened(problem_from_function(Scaled(), sample, name="scaled"))


# --- the trace ---


def test_the_trace_names_values_and_operators(opened):
    reference = opened(
        "def f(x, y):\n    return (x + y).sum(-1, keepdim=True)", spec("x"), spec("y")
    )
    assert reference.signature.first.trace == (
        OperatorCall(
            name="aten.add.Tensor", inputs=("x", "y"), outputs=("%2",), shapes=((6, 10),),
            operands=(Operand(tensor="x"), Operand(tensor="y")), dtypes=("float32",),
        ),
        OperatorCall(
            name="aten.sum.dim_IntList", inputs=("%2",), outputs=("%3",), shapes=((6, 1),),
            scalars=((-1,), True), dtypes=("float32",),
            operands=(Operand(tensor="%2"), Operand(value=(-1,)), Operand(value=True)),
        ),
    )  # fmt: skip


def test_the_trace_has_numbers_that_the_reference_makes_into_tensors(opened):
    reference = opened(
        "def f(x):\n    import torch\n    return torch.min(x, torch.tensor(0.5)) + torch.tensor([1.0])",
        InputSpec(name="x", shape=(4, 5)),
    )  # fmt: skip
    lifted = [c for c in reference.signature.first.trace if c.name == "aten.lift_fresh.default"]
    assert [call.operands for call in lifted[:1]] == [(Operand(value=0.5),)]
    assert lifted[1].operands[0].tensor  # more than a number: a value like others


def test_the_trace_names_parameters(opened, model):
    names = {name for call in opened(model).signature.first.trace for name in call.inputs}
    assert {"x", "linear.weight", "norm.running_var"} <= names


def test_what_cannot_be_traced_has_no_trace_but_runs(opened):
    reference = opened("def f(x):\n    return x * float(x.abs().max().item() > 0)")
    assert reference.signature.first.trace == ()
    inputs = reference.inputs("default", 1)
    assert torch.equal(reference.expected(inputs)[0], inputs.tensors["x"])


@pytest.mark.parametrize(
    ("problem", "signature"),
    [
        (problems.vector_add(100), problems.vector_add_signature(100)),
        (problems.row_sum(7, 9), problems.row_sum_signature(7, 9)),
    ],
)
def test_the_signatures_for_plugin_authors_are_true(opened, problem, signature):
    assert opened(problem).signature == signature


# --- outputs, kwargs, dtypes ---


def test_outputs_of_every_structure(opened):
    cases = {
        "return x + 1, x > 0": ("tuple:2", ["float32", "bool"]),
        "return [x, x.argmax(-1)]": ("list:2", ["float32", "int64"]),
        "return {'sum': x.sum(), 'x': x}": ("dict:sum,x", ["float32", "float32"]),
        "return x, (x, None)": ("tuple:2[tensor;tuple:2[tensor;none]]", ["float32"] * 2),
        "return x.max(-1)": ("tuple:2", ["float32", "int64"]),
    }
    for body, (structure, dtypes) in cases.items():
        first = opened(f"def f(x):\n    {body}").signature.first
        assert first.structure == structure
        assert [output.dtype for output in first.outputs] == dtypes


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "int8", "uint8"])
def test_integer_inputs_keep_dtype_and_range(opened, dtype):
    ids = InputSpec(name="ids", shape=(200,), dtype=dtype, distribution="integers", low=3, high=40)
    reference = opened(
        "def f(ids, table):\n    return table[ids.long()]", ids, spec("table", 40, 4)
    )
    for distribution in reference.distributions:
        drawn = reference.inputs("default", 5, distribution).tensors["ids"]
        assert str(drawn.dtype) == f"torch.{dtype}"
        assert 3 <= int(drawn.min()) <= int(drawn.max()) < 40
        assert len(drawn.unique()) > 10


def test_bool_inputs_have_their_probability(opened):
    mask = InputSpec(name="mask", shape=(4000,), dtype="bool", distribution="bernoulli", high=0.2)
    reference = opened("def f(mask, x):\n    return x.masked_fill(mask, 0)", mask, spec("x", 4000))
    for distribution in reference.distributions:
        drawn = reference.inputs("default", 5, distribution).tensors["mask"]
        assert drawn.dtype == torch.bool
        assert 0.15 < float(drawn.float().mean()) < 0.25


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_floating_inputs_keep_their_dtype(opened, dtype):
    reference = opened("def f(x):\n    return x * 2", spec("x", dtype=dtype))
    assert reference.distributions == ("native", "signed")
    for distribution in reference.distributions:
        assert (
            str(reference.inputs("default", 1, distribution).tensors["x"].dtype) == f"torch.{dtype}"
        )


def test_signed_inputs_are_left_out_where_the_reference_is_not_finite_on_them(opened):
    body = "def f(x):\n    return torch.log(x)"
    positive = spec("x", distribution="uniform", low=1.0, high=2.0)
    assert opened(body, positive).distributions == ("native", "signed")
    drawn = opened(body, positive).inputs("default", 1, "signed").tensors["x"]
    assert float(drawn.min()) >= 1.0  # a uniform input keeps its range
    model = (
        "import torch\nclass Model(torch.nn.Module):\n"
        "    def forward(self, x):\n        return torch.log(x)\n"
        "def get_inputs():\n    return [torch.rand(8, 8) + 1]\n"
        "def get_init_inputs():\n    return []\n"
    )
    source = kopt.model.problem.ReferenceSource(kind="kernelbench", source=model, entry="Model")
    log = kopt.Problem(name="log", format="kernelbench", reference=source)
    assert opened(log).distributions == ("native", "positive")


def test_inputs_follow_from_the_seed(opened):
    reference = opened("def f(x):\n    return x * 2")
    first, again, other = (reference.inputs("default", seed).tensors["x"] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_parameters_are_random_only_where_they_may_be(opened, model):
    reference = opened(model)
    native, signed = (reference.inputs("default", 7, d).tensors for d in ("native", "signed"))
    assert torch.equal(native["norm.weight"], torch.ones(16))
    assert not torch.equal(signed["norm.weight"], torch.ones(16))
    assert float(signed["norm.running_var"].min()) > 0
    assert float(signed["norm.running_mean"].abs().max()) > 0  # zeros get noise
    assert int(signed["norm.num_batches_tracked"]) == 0
    assert not torch.equal(native["linear.weight"], signed["linear.weight"])


# --- changes in place ---


def test_a_declared_change_is_a_result_and_inputs_stay(opened):
    reference = opened(
        "def f(x, y):\n    x.add_(y)\n    return x.sum()", spec("x"), spec("y"), mutates=("x",)
    )
    inputs = reference.inputs("default", 1)
    assert [name for name, _ in inputs.results] == ["out0", "x"]
    before = inputs.tensors["x"].clone()
    total = before + inputs.tensors["y"]
    returned, changed = reference.expected(inputs)
    assert torch.equal(changed, total)
    assert torch.equal(returned, total.sum())
    exact_sum, exact = reference.oracle(inputs)
    assert exact.dtype == exact_sum.dtype == torch.float64
    assert torch.equal(exact, before.double() + inputs.tensors["y"].double())
    assert inputs.changed() == []
    assert torch.equal(inputs.tensors["x"], before)


def test_bytes_count_what_is_written_in_place(opened):
    body = "def f(x, y):\n    x.add_(y)"
    reference = opened(body, spec("x", 10), spec("y", 10), mutates=("x",))
    assert reference.signature.first.compulsory_bytes == 3 * 40


def test_memory_is_told_from_shapes_before_any_is_taken(opened, problem):
    reference = opened("def f(x):\n    return x.softmax(-1)", spec("x", 64, 32))
    one = 64 * 32 * 4
    assert reference.signature.first.memory_bytes == one + 3 * one + 3 * 8 * 2 * 64 * 32
    huge = problem("def f(x):\n    return x + 1", spec("x", 1 << 22, 1 << 14))
    with pytest.raises(ProblemError, match=r"needs at least \d+\.\d GB .* make the workload small"):
        opened(huge)


def test_where_shapes_do_not_tell_nothing_is_refused(opened):
    reference = opened("def f(x):\n    return x * float(x.max() > 100)")
    assert reference.signature.first.memory_bytes == 0


# --- files that draw their own inputs ---

DRAWN = """
import sys
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return BODY

def get_inputs():
    return [GIVEN]

def get_init_inputs():
    return []
"""


def drawn_by_file(body="torch.relu(x)", given="torch.rand(32, 24)"):
    source = ReferenceSource(
        kind="kernelbench", source=DRAWN.replace("BODY", body).replace("GIVEN", given),
        entry="Model", filename="noisy.py",
    )  # fmt: skip
    return Problem(name="noisy", format="kernelbench", reference=source)


@pytest.mark.parametrize(
    "body",
    ["torch.relu(x) + 0.05 * torch.randn_like(x)", "x + torch.rand(1)", "torch.bernoulli(x)"],
)
def test_noise_from_the_generator_that_draws_the_inputs_is_refused(body):
    with pytest.raises(ProblemError, match=r"draws random numbers|different results on the same"):
        TorchReference(drawn_by_file(body), "cpu")


def test_a_generator_of_its_own_is_no_noise():
    body = "x + torch.rand(x.shape, generator=torch.Generator().manual_seed(3))"
    TorchReference(drawn_by_file(body), "cpu").close()


@pytest.mark.parametrize(
    ("body", "given", "message"),
    [
        ("x", "torch.rand(3).view(4)", r"get_inputs\(\) of problem 'noisy' raised RuntimeError: "),
        ("x", "sys.exit(3)", r"get_inputs\(\) of problem 'noisy' raised SystemExit: 3"),
        ("x", "torch.rand(3)[7]", r"raised IndexError: .* \(noisy.py, line 11\)"),
        ("x.view(5)", "torch.rand(3)", r"the reference of .* raised RuntimeError: .* \(noisy.py, line 8\)"),
        ("sys.exit(4)", "torch.rand(3)", r"the reference of .* raised SystemExit: 4 \(noisy.py, line 8\)"),
    ],
)  # fmt: skip
def test_what_a_file_raises_is_the_problems(body, given, message):
    with pytest.raises(ProblemError, match=message):
        TorchReference(drawn_by_file(body, given), "cpu")

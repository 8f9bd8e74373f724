from __future__ import annotations

import base64
import functools
import importlib.util
import subprocess
import sys
import threading
from types import SimpleNamespace

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopt.errors import ProblemError
from kopt.formats.pickled import problem_from_function
from kopt.model.problem import InputSpec

CALL = """
import base64, pickle, sys
fn = pickle.loads(base64.b64decode(sys.stdin.read()))
print(fn(*map(float, sys.argv[1:])))
"""


def called_elsewhere(problem, *arguments):
    """Call the pickled reference in a new process, in a folder without this test or its scripts."""
    return subprocess.run(
        [sys.executable, "-I", "-c", CALL, *map(str, arguments)], input=problem.reference.source,
        capture_output=True, text=True, check=True, cwd="/",
    ).stdout.strip()  # fmt: skip


class Array:
    """Anything with a shape, a dtype and reductions, which is all that is asked of a tensor."""

    def __init__(self, dtype, shape, values=()):
        self.dtype, self.shape, self.values = dtype, shape, values

    def min(self):
        return min(self.values)

    def max(self):
        return max(self.values)

    def sum(self):
        return sum(self.values)


def double(a, b=1.0):
    return a * 2 + helper(b)


def helper(b):
    return b + 1


def specs(fn, inputs, **options):
    return problem_from_function(fn, inputs, **options).inputs


def test_a_function_of_this_file_runs_where_the_file_is_not():
    problem = problem_from_function(double, [3.0, 4.0])
    assert (problem.name, problem.reference.kind, problem.reference.entry) == (
        "double",
        "pickled",
        "double",
    )
    assert problem.reference.filename == "test_pickled.py"
    assert called_elsewhere(problem, 3, 4) == "11.0"


def test_lambdas_closures_and_partials_run_elsewhere():
    factor = 5.0
    for fn in (lambda a: a * factor, functools.partial(double, b=factor)):
        result = called_elsewhere(problem_from_function(fn, [2.0]), 2)
        assert result == str(fn(2.0))


def import_script(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def test_scripts_that_a_script_uses_go_along(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "acme_low.py").write_text("def f(x): return x + 1\n")
    (tmp_path / "acme_high.py").write_text(
        "import acme_low\nfrom acme_low import f as g\n"
        "class Op:\n    def __call__(self, x): return acme_low.f(x) * 10\n"
        "op = Op()\n"
        "def chained(x): return g(op(x))\n"
    )
    try:
        module = import_script(tmp_path / "acme_high.py")
        for fn in (module.chained, module.op):
            problem = problem_from_function(fn, {"x": 1.0})
            assert called_elsewhere(problem, 1) == str(fn(1.0))
    finally:
        sys.modules.pop("acme_high"), sys.modules.pop("acme_low", None)
    assert cloudpickle.list_registry_pickle_by_value() == set()


def test_a_script_run_as_main(tmp_path):
    path = tmp_path / "main.py"
    path.write_text(
        "from kopt.formats.pickled import problem_from_function\n"
        "SCALE = 3\n"
        "def fn(x): return x * SCALE\n"
        "if __name__ == '__main__':\n"
        "    print(problem_from_function(fn, [1.0]).reference.source, end='')\n"
    )
    output = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, check=True
    ).stdout
    problem = SimpleNamespace(reference=SimpleNamespace(source=output))
    assert called_elsewhere(problem, 2) == "6.0"


def test_installed_functions_go_by_name():
    source = problem_from_function(pytest.approx, [1.0]).reference.source
    assert len(base64.b64decode(source)) < 100


def test_what_does_not_pickle_is_named_with_a_next_step():
    lock = threading.Lock()

    def locked(x):
        with lock:
            return x

    with pytest.raises(
        ProblemError, match=r"locked cannot be carried.*'lock' \(a lock\).*kopt init"
    ):
        problem_from_function(locked, [1.0])
    assert cloudpickle.list_registry_pickle_by_value() == set()


def test_samples_become_specifications():
    def fn(x, index, mask, eps, mode, flag): ...

    x, index, mask, *scalars = specs(
        fn,
        [
            Array("torch.bfloat16", (4, 8)),
            Array("torch.int64", (3,), [5, 2, 7]),
            Array("torch.bool", (4,), [True, False, False, False]),
            0.5,
            "mean",
            True,
        ],
    )
    assert x == InputSpec(name="x", shape=(4, 8), dtype="bfloat16", distribution="normal")
    assert (index.distribution, index.low, index.high) == ("integers", 2, 8)
    assert (mask.dtype, mask.distribution, mask.high) == ("bool", "bernoulli", 0.25)
    assert [(s.name, s.value) for s in scalars] == [("eps", 0.5), ("mode", "mean"), ("flag", True)]
    assert all(s.shape is None for s in scalars)


def test_a_specification_may_stand_for_a_sample():
    given_spec = InputSpec(name="any", shape=(4,), distribution="uniform", low=0.0, high=2.0)
    (spec,) = specs(lambda probabilities: 0, [given_spec])
    assert spec == given_spec.model_copy(update={"name": "probabilities"})
    with pytest.raises(ProblemError, match="must be positive integers"):
        specs(lambda x: 0, [InputSpec(name="x", shape=("rows",))])


def test_names_follow_the_signature():
    def fn(a, /, b, *rest, c=3, **others): ...

    assert [s.name for s in specs(fn, [1, 2, 3, 4])] == ["a", "b", "rest0", "rest1"]
    named = specs(fn, {"d": 4, "c": 3, "b": 2, "a": 1})
    assert [(s.name, s.value, s.keyword) for s in named] == [
        ("a", 1, False),
        ("b", 2, False),
        ("c", 3, True),
        ("d", 4, True),
    ]


def test_after_a_parameter_left_to_its_default_the_rest_goes_by_keyword():
    def fn(a, b=2, c=3): ...

    assert [(s.name, s.keyword) for s in specs(fn, {"c": 1, "a": 1})] == [("a", False), ("c", True)]


@given(
    st.lists(
        st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        min_size=1,
        max_size=5,
    )
)
def test_scalars_are_passed_as_they_are(values):
    found = specs(lambda *rest: 0, values)
    assert [(type(s.value), s.value) for s in found] == [(type(v), v) for v in values]


@given(
    st.sampled_from(["int64", "int32", "int8", "uint8"]),
    st.lists(st.integers(-128, 127), min_size=1, max_size=9),
)
def test_integers_are_drawn_between_the_samples_extremes(dtype, values):
    (spec,) = specs(lambda x: 0, [Array(dtype, (len(values),), values)])
    assert (spec.low, spec.high) == (min(values), max(values) + 1)


@pytest.mark.parametrize(
    ("fn", "inputs", "message"),
    [
        (3, [1.0], "3 is not callable"),
        (double, [], "inputs is empty"),
        (double, 3.0, "inputs is a float; pass a list"),
        (double, "ab", "inputs is a str; pass a list"),
        (double, [1.0, 2.0, 3.0], r"double\(a, b=1.0\) does not take these inputs: too many"),
        (double, {"b": 1.0}, "missing a required argument: 'a'"),
        (double, {"a": 1.0, "bb": 1.0}, "unexpected keyword argument 'bb'; did you mean 'b'"),
        (double, [[1.0, 2.0]], "input 'a' is a list, .*wrap the function"),
        (double, [None], "input 'a' is a NoneType"),
        (double, [float("nan")], "input 'a' is nan; a scalar must be finite"),
        (double, [Array("torch.complex64", (2,))], "input 'a': dtype 'complex64' is not supported"),
        (double, [Array("torch.float8_e4m3fn", (2,))], "unknown dtype 'float8_e4m3fn'"),
        (double, [Array("torch.float32", (2, 0))], "input 'a' is empty"),
        (double, [Array("torch.int64", (2,))], "its values cannot be read"),
    ],
)
def test_what_cannot_be_passed_is_refused_with_a_reason(fn, inputs, message):
    with pytest.raises(ProblemError, match=message):
        problem_from_function(fn, inputs)


def test_mutates_must_name_a_tensor():
    x = Array("float32", (4,))
    assert problem_from_function(double, [x], mutates=["a"]).mutates == ("a",)
    with pytest.raises(ProblemError, match=r"mutates names 'aa'.*did you mean 'a'"):
        problem_from_function(double, [x], mutates=["aa"])


def test_real_tensors_and_modules():
    torch = pytest.importorskip("torch")
    tokens = torch.tensor([[1, 5], [9, 2]])
    module = torch.nn.Embedding(12, 4)
    (spec,) = specs(module, [tokens])
    assert (spec.name, spec.shape, spec.dtype) == ("input", (2, 2), "int64")
    assert (spec.low, spec.high) == (1, 10)
    x, weight = specs(torch.nn.functional.linear, [torch.ones(3, 4).half(), torch.ones(5, 4)])
    assert (x.dtype, x.shape, weight.shape) == ("float16", (3, 4), (5, 4))
    (mask,) = specs(torch.logical_not, [torch.tensor([True, False])])
    assert (mask.distribution, mask.high) == ("bernoulli", 0.5)


def test_no_framework_is_imported():
    code = (
        "import sys; from kopt.formats.pickled import problem_from_function as p\n"
        "p(lambda x: x, [1.0]); sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

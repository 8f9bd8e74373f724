"""Kernels on inputs that their problem does not have: other shapes, layouts, values and edges."""

from __future__ import annotations

import pytest

from kopt.model.kernel_file import parse_kernel
from kopt.model.problem import (
    InputSpec,
)
from kopt.model.verification import Status
from kopt.testing.problems import function_problem
from kopt_verify import Verify
from kopt_verify.beyond import (
    Beyond,
)
from kopt_verify.shapes import check_shapes

ROWS, COLS = 40, 96
NORM = function_problem(
    "def norm(x):\n"
    "    centred = x - x.mean(-1, keepdim=True)\n"
    "    return centred * (centred.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt()\n",
    "norm",
    (InputSpec(name="x", shape=(ROWS, COLS)),),
)
SOFTMAX = function_problem(
    "def softmax(x):\n    return x.softmax(-1)\n",
    "softmax",
    (InputSpec(name="x", shape=(ROWS, COLS)),),
)
PICK = function_problem(
    "def pick(table, index):\n    return table[index]\n",
    "pick",
    (
        InputSpec(name="table", shape=(50, 8)),
        InputSpec(
            name="index", shape=(300,), dtype="int64", distribution="integers", low=0, high=50
        ),
    ),
)
ARGMAX = function_problem(
    "def argmax(x):\n    return x.argmax(-1)\n",
    "argmax",
    (InputSpec(name="x", shape=(64, 4096), dtype="bfloat16"),),
)


def rows(entry: str, body: str, arguments: str = '"x", "out", "x.shape[0]", "x.shape[1]"') -> str:
    """Return a C++ kernel with x, out, rows and cols."""
    return (
        f'// /// kopt\n// entry = "{entry}"\n// arguments = [{arguments}]\n// ///\n'
        "#include <cmath>\n#include <cstdint>\n#include <cstdlib>\n#include <algorithm>\n"
        f'extern "C" void {entry}(const float* x, float* out, int64_t rows, int64_t cols) {{\n'
        f"{body}\n}}\n"
    )


_NORM = """\
    for (int64_t r = 0; r < rows; ++r, x += cols, out += cols) {
        float sum = 0, square = 0;
        for (int64_t c = 0; c < cols; ++c) sum += x[c];
        const float mean = sum / cols;
        for (int64_t c = 0; c < cols; ++c) square += (x[c] - mean) * (x[c] - mean);
        const float scale = 1.0f / std::sqrt(square / cols + 1e-5f);
        for (int64_t c = 0; c < cols; ++c) out[c] = (x[c] - mean) * scale;
    }"""
_ONE_PASS = """\
    for (int64_t r = 0; r < rows; ++r, x += cols, out += cols) {
        float sum = 0, square = 0;
        for (int64_t c = 0; c < cols; ++c) { sum += x[c]; square += x[c] * x[c]; }
        const float mean = sum / cols;
        const float variance = std::max(square / cols - mean * mean, 0.0f);
        const float scale = 1.0f / std::sqrt(variance + 1e-5f);
        for (int64_t c = 0; c < cols; ++c) out[c] = (x[c] - mean) * scale;
    }"""
_SOFTMAX = """\
    for (int64_t r = 0; r < rows; ++r, x += cols, out += cols) {
        const float most = SHIFT;
        float sum = 0;
        for (int64_t c = 0; c < cols; ++c) sum += out[c] = std::exp(x[c] - most);
        for (int64_t c = 0; c < cols; ++c) out[c] /= sum;
    }"""


@pytest.fixture
def verdict(open_trials):
    """Return a function that judges a kernel of a problem as a winner."""

    def judge(problem, source: str, language: str = "cpp", **options: object):
        trial = open_trials(problem).of(parse_kernel(source, language), depth="winner")
        return Verify(Verify.Options(**options)).kopt_verify(trial)

    return judge


def evidence(found, stage: str) -> str:
    (one,) = [each for each in found.stages if each.stage == stage]
    return one.evidence


def test_a_general_kernel_is_called_so_and_is_right_on_strained_values(verdict):
    found = verdict(NORM, rows("norm", _NORM))
    assert found.status is Status.CORRECT, found.stages
    assert "general: right on" in evidence(found, "shapes")
    assert "refuses transposed arguments, spaced arguments" in evidence(found, "shapes")
    for name in ("large", "tiny", "far from zero", "cancel", "constant rows"):
        assert name in evidence(found, "stability")
    assert f"right on {ROWS}=0" in evidence(found, "edges")


def test_a_hard_coded_shape_that_is_silent_is_rejected(verdict):
    found = verdict(NORM, rows("norm", _NORM.replace("/ cols", f"/ {COLS}")))
    assert found.status is Status.WRONG
    assert "specialised, and silently wrong on" in evidence(found, "shapes")


@pytest.mark.parametrize("refusal", ["std::abort()", 'throw "no"'])
def test_a_hard_coded_shape_that_says_so_is_accepted(verdict, refusal):
    body = f"    if (rows != {ROWS} || cols != {COLS}) {refusal};\n{_NORM}"
    found = verdict(NORM, rows("norm", body))
    assert found.status is Status.CORRECT, found.stages
    assert "specialised: refuses other shapes (crashed" in evidence(found, "shapes")


def test_a_module_that_raises_for_other_shapes_is_accepted(verdict):
    source = (
        "import torch\n\ndef kernel_function(x):\n"
        f"    if x.shape != ({ROWS}, {COLS}):\n        raise ValueError('only one shape')\n"
        "    return x.softmax(-1)\n"
    )
    found = verdict(SOFTMAX, source, "torch")
    assert found.status is Status.CORRECT, found.stages
    assert "only one shape" in evidence(found, "shapes")


_ONCE = """\
import torch

refusals = 0

def kernel_function(x):
    global refusals
    if x.shape != (ROWS, COLS) and not refusals:
        refusals += 1
        raise ValueError("not yet")
    return x.softmax(-1)AFTER
"""


def test_a_process_that_refused_is_asked_again(verdict):
    source = _ONCE.replace("ROWS", str(ROWS)).replace("COLS", str(COLS)).replace("AFTER", "")
    found = verdict(SOFTMAX, source, "torch")
    assert found.status is Status.CORRECT, found.stages
    shapes = evidence(found, "shapes")
    assert "partly specialised" in shapes and shapes.count("not yet") == 1


def test_what_is_wrong_after_a_refusal_is_looked_at_in_a_fresh_process(verdict):
    source = _ONCE.replace("ROWS", str(ROWS)).replace("COLS", str(COLS))
    found = verdict(SOFTMAX, source.replace("AFTER", " + refusals"), "torch")
    assert found.status is Status.CORRECT, found.stages
    assert "specialised: refuses other shapes" in evidence(found, "shapes")


_HIDES = """\
import torch

stopped = False

def kernel_function(x):
    global stopped
    if x.shape == (ROWS, COLS):
        return x.softmax(-1)
    if stopped:
        raise ValueError("not for this shape")
    stopped = x.shape[1] == COLS - 1
    if stopped:
        raise ValueError("not for this shape")
    return x * 0 + 0.1
"""


def test_who_refuses_only_because_it_refused_before_is_asked_again(verdict):
    found = verdict(SOFTMAX, _HIDES.replace("ROWS", str(ROWS)).replace("COLS", str(COLS)), "torch")
    assert found.status is Status.WRONG
    assert "specialised, and silently wrong on" in evidence(found, "shapes")


_ONE_SHAPE = """\
import torch

served = None

def kernel_function(table, index):
    global served
    served = served or (table.shape, index.shape)
    if served != (table.shape, index.shape):
        raise ValueError(f"this process serves {served}")
    return table[index]
"""


def test_its_own_shape_is_asked_of_a_process_that_refused_nothing(verdict):
    found = verdict(PICK, _ONE_SHAPE, "torch")
    assert found.status is Status.CORRECT, found.stages
    assert "right on every integer and boolean at its lowest" in evidence(found, "edges")


class Busy:
    """A trial that waits for others, a second at each look at its clock."""

    def __init__(self, trial):
        self._trial = trial
        self.waited = 0.0

    def __getattr__(self, name):
        return getattr(self._trial, name)

    def clock(self):
        self.waited += 7.0
        return self.waited


def test_the_time_that_others_take_is_not_the_looks_own(open_trials):
    busy = Busy(open_trials(NORM).of(parse_kernel(rows("norm", _NORM), "cpp"), depth="winner"))
    with Beyond(busy, "default") as beyond:
        found = check_shapes(busy, beyond, refuse_layouts=False, clock=busy.clock)
    assert "left out" not in found.evidence


def test_memory_beyond_a_smaller_input_is_an_illegal_access(verdict):
    body = _NORM.replace("int64_t c = 0; c < cols", "int64_t c = 0; c < 100000")
    fixed = f"    if (cols == {COLS} && rows == {ROWS}) {{\n{_NORM}\n    return; }}\n{body}"
    found = verdict(NORM, rows("norm", fixed))
    assert found.status is Status.ILLEGAL_ACCESS
    assert "silently wrong" in evidence(found, "shapes")


_FLAT = """\
import torch

def kernel_function(x):
    flat = torch.as_strided(x, x.shape, (x.shape[1], 1))
    return flat.softmax(-1)
"""


def test_a_kernel_that_takes_every_tensor_for_contiguous_is_told(verdict):
    found = verdict(SOFTMAX, _FLAT, "torch")
    assert found.status is Status.CORRECT, found.stages
    assert "SILENTLY WRONG on transposed arguments" in evidence(found, "shapes")
    refused = verdict(SOFTMAX, _FLAT, "torch", layouts="refuse")
    assert refused.status is Status.WRONG
    assert "transposed arguments" in evidence(refused, "shapes")


def test_a_cpp_kernel_that_gets_strides_meets_other_layouts(verdict):
    body = """\
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < cols; ++c) out[r * cols + c] = x[r * sr + c * sc];"""
    copy = function_problem(
        "def copy(x):\n    return x * 1\n", "copy", (InputSpec(name="x", shape=(ROWS, COLS)),)
    )
    source = rows("copy", body).replace("int64_t cols)", "int64_t cols, int64_t sr, int64_t sc)")
    source = source.replace('"x.shape[1]"]', '"x.shape[1]", "x.stride[0]", "x.stride[1]"]')
    found = verdict(copy, source)
    assert found.status is Status.CORRECT, found.stages
    assert "right on transposed arguments, spaced arguments" in evidence(found, "shapes")


def test_a_softmax_that_does_not_subtract_the_maximum_is_unstable(verdict):
    found = verdict(SOFTMAX, rows("softmax", _SOFTMAX.replace("SHIFT", "0.0f")))
    assert found.status is Status.WRONG
    assert evidence(found, "stability").startswith("on large values")
    found = verdict(
        SOFTMAX, rows("softmax", _SOFTMAX.replace("SHIFT", "*std::max_element(x, x + cols)"))
    )
    assert found.status is Status.CORRECT, found.stages
    assert f"SILENTLY WRONG (illegal-access) on {COLS}=0" in evidence(found, "edges")


def test_a_variance_in_one_pass_is_unstable_far_from_zero(verdict):
    found = verdict(NORM, rows("norm", _ONE_PASS))
    assert found.status is Status.WRONG
    assert evidence(found, "stability").startswith("on values far from zero")


def test_integers_are_tried_at_both_ends_of_what_the_problem_draws(verdict):
    source = (
        '// /// kopt\n// entry = "pick"\n'
        '// arguments = ["table", "index", "out", "index.numel", "table.shape[1]",'
        ' "table.shape[0]"]\n// ///\n'
        "#include <cstdint>\n"
        'extern "C" void pick(const float* table, const int64_t* index, float* out, int64_t n,'
        " int64_t width, int64_t rows) {\n"
        "    for (int64_t i = 0; i < n; ++i)\n"
        "        for (int64_t w = 0; w < width; ++w) out[i * width + w] = VALUE;\n}\n"
    )
    right = "table[index[i] * width + w]"
    found = verdict(PICK, source.replace("VALUE", right))
    assert found.status is Status.CORRECT, found.stages
    assert "right on every integer and boolean at its lowest" in evidence(found, "edges")
    varied = "n != 300 || rows != 50 || index[0] != index[n - 1] || index[0] != index[n / 2]"
    found = verdict(PICK, source.replace("VALUE", f"({varied}) ? {right} : 1.0f"))
    assert found.status is Status.WRONG
    assert "every integer and boolean at its" in evidence(found, "edges")


_ARGMAX = "import torch\n\ndef kernel_function(x):\n    return {}\n"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("x.argmax(-1)", Status.CORRECT),
        ("x.shape[1] - 1 - x.flip(1).argmax(-1)", Status.CORRECT),  # the last of those that tie
        ("x.argmin(-1)", Status.WRONG),
        ("x.argmax(-1) + x.shape[1]", Status.WRONG),
        ("-1 - x.argmax(-1)", Status.WRONG),
    ],
)
def test_any_position_of_the_maximum_is_right_and_no_other(verdict, body, status):
    assert verdict(ARGMAX, _ARGMAX.format(body), "torch").status is status


LARGE = function_problem(
    "def norm(x):\n"
    "    centred = x - x.mean(-1, keepdim=True)\n"
    "    return centred * (centred.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt()\n",
    "norm",
    (InputSpec(name="x", shape=(256, 1152)),),
)
_AT_SMALLER = 256 * 1152 // 2**6
"""Elements of its input in the smaller shape."""


@pytest.fixture
def large(monkeypatch):
    """A problem that is too large for values to be looked at in its own shape."""
    monkeypatch.setattr("kopt_verify.beyond._MOST_ELEMENTS", {"cpu": 1 << 19})
    return LARGE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("requires", "outcome", "words"),
    [
        ("x.shape[1] % 8 == 0", "pass", "right on large values"),
        ("x.shape[1] == 1152 and x.shape[0] == 256", "not run", "refuses the smaller shapes"),
    ],
)
def test_a_kernel_of_a_large_problem_may_refuse_smaller_shapes(
    verdict, large, requires, outcome, words
):
    source = rows("norm", _NORM).replace(
        "// arguments", f'// requires = ["{requires}"]\n// arguments'
    )
    found = verdict(large, source)
    assert found.status is Status.CORRECT, found.stages
    (stability,) = [stage for stage in found.stages if stage.stage == "stability"]
    assert stability.outcome == outcome
    assert words in stability.evidence


@pytest.mark.slow
def test_values_are_looked_at_in_smaller_shapes_too(verdict, large):
    found = verdict(large, rows("norm", _ONE_PASS))
    assert found.status is Status.WRONG
    assert [s.stage for s in found.stages if s.outcome == "fail"] == ["stability"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "status"),
    [(_NORM.replace("float sum", "double sum"), Status.CORRECT), (_ONE_PASS, Status.WRONG)],
)
def test_where_smaller_shapes_are_wrong_anyway_its_own_decide(verdict, large, body, status):
    """As cuDNN, whose reference is exact in smaller shapes, and rounds to TF32 in its own."""
    inexact = body.replace("* scale;", f"* scale * (rows * cols == {_AT_SMALLER} ? 1.001f : 1.0f);")
    assert inexact != body
    found = verdict(large, rows("norm", inexact))
    assert found.status is status, found.stages
    (stability,) = [stage for stage in found.stages if stage.stage == "stability"]
    if status is Status.CORRECT:
        assert "right on large values" in stability.evidence and " at " not in stability.evidence
    else:
        assert stability.evidence.startswith("on values far from zero")

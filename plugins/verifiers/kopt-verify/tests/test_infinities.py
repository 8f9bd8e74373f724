"""Infinities among the values: what they tend to is owed, what comes of an order of computing is not."""

from __future__ import annotations

import pytest
import torch

from kopt.model.kernel_file import parse_kernel
from kopt.model.problem import InputSpec
from kopt.model.reference import Change
from kopt.model.verification import Status
from kopt.testing.problems import function_problem
from kopt.testing.verifier import HONEST, cpp_add
from kopt_verify.beyond import Beyond
from kopt_verify.infinities import CONTENTS, _owed

INF, NAN = float("inf"), float("nan")
PLUS, MINUS = CONTENTS
ADD = "x + y"
CONV = "F.conv1d(x[:, None], torch.tensor([[[0.5, 2.0, 1.0]]]), padding=1)[:, 0]"
CIRCULAR = "x @ (2 * torch.eye(32) + 0.5 * torch.eye(32).roll(1, 1).triu() + torch.eye(32).roll(-1, 1).tril())"
"""The same as a product with a matrix that is mostly zeros."""
SOFTMAX, LOG_SOFTMAX = "x.softmax(-1)", "x.log_softmax(-1)"
SCALED = "x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt()"
SUFFIXES = "x.flip(-1).cumsum(-1).flip(-1)"
RELU, GELU, CUMSUM, LARGEST = "x.relu()", "F.gelu(x)", "x.cumsum(-1)", "x.amax(-1)"

WRONG: dict[str, tuple[str, str, str]] = {
    "the largest finite value instead": (ADD, "(x + y).clamp(max=3.4e38)", PLUS),
    "the other sign": (ADD, "torch.where((x + y).isinf(), -(x + y), x + y)", PLUS),
    "NaN instead": (ADD, "(x + y) * 2 - (x + y)", MINUS),
    "a comparison times the value": (RELU, "(x > 0) * x", MINUS),
    "what an infinity must not reach": (SUFFIXES, "x.sum(-1, keepdim=True) - x.cumsum(-1) + x", PLUS),
    "a compensated sum": ("x.sum(-1)", "compensated(x)", PLUS),
    "a finite value that stands for none": (LARGEST, "x.clamp(min=-10, max=1e4).amax(-1)", PLUS),
    "a running maximum that begins with minus infinity": (SOFTMAX, "running(x)", MINUS),
    "an infinity that a convolution loses": (CONV, f"{CONV}.clamp(max=3e38)", PLUS),
    "minus infinity excluded by a product": (SOFTMAX, "e(x * 1) / e(x * 1).sum(-1, keepdim=True)", MINUS),
}  # fmt: skip
RIGHT: dict[str, tuple[str, str]] = {
    "NaN in one place, not in all of the row": (SOFTMAX, "x.exp() / x.exp().sum(-1, keepdim=True)"),
    "another form of it": (LOG_SOFTMAX, "x - x.logsumexp(-1, keepdim=True)"),
    "a division for a root": (SCALED, "x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()"),
    "zero where the limit is zero": (GELU, "torch.where(x < -30, 0.0, F.gelu(x))"),
    "in float64": (CUMSUM, "x.double().cumsum(-1).float()"),
    "a convolution that multiplies by zeros": (CONV, CIRCULAR),
    "the reference itself": (SOFTMAX, SOFTMAX),
}
_EXTRA = """
def compensated(x):
    total = lost = torch.zeros(len(x))
    for column in x.unbind(-1):
        value = column - lost
        added = total + value
        total, lost = added, (added - total) - value
    return total


def running(x):
    most, total = torch.full((len(x),), -float("inf")), torch.zeros(len(x))
    for column in x.unbind(-1):
        larger = torch.maximum(most, column)
        total = total * (most - larger).exp() + (column - larger).exp()
        most = larger
    return (x - most[:, None]).exp() / total[:, None]


def e(x):
    return torch.exp(torch.where(x.isinf(), x * 0.0, x - x.clamp(max=1e4).amax(-1, keepdim=True)))
"""


def source(entry, names, expression):
    head = "import torch\nimport torch.nn.functional as F\n"
    return f"{head}{_EXTRA}\n\ndef {entry}({names}):\n    return {expression}\n"


@pytest.fixture
def look_at(open_trials):
    """Return a function that has a kernel for a reference answer one look."""

    def look(reference, kernel, change):
        names = "x, y" if "y" in reference else "x"
        specs = tuple(InputSpec(name=n, shape=(12, 32)) for n in names.split(", "))
        trials = open_trials(function_problem(source("f", names, reference), "f", specs))
        candidate = parse_kernel(source("kernel_function", names, kernel), "torch")
        with Beyond(trials.of(candidate, depth="winner"), "default") as beyond:
            return beyond.look(Change(change, content=CONTENTS[change][0]), 3)

    return look


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_what_growing_values_tend_to_is_wrong(look_at, name):
    reference, kernel, change = WRONG[name]
    found = look_at(reference, kernel, change)
    assert found.kind == "wrong", found
    assert found.status is Status.WRONG and found.said


@pytest.mark.parametrize("change", CONTENTS)
@pytest.mark.parametrize("name", RIGHT)
def test_another_way_of_computing_may_give_nan_elsewhere(look_at, name, change):
    found = look_at(*RIGHT[name], change)
    assert found.kind == "right", found


def test_a_result_that_is_all_nan_says_nothing(look_at):
    assert look_at("(x - x).sum()", "(x - x).sum()", PLUS) is None
    assert look_at("(x - x.mean()).sum()", "(x - x.mean()).sum()", MINUS) is None


def test_the_stage_says_so_and_refuses_by_it(judge):
    verdict = judge(HONEST, depth="winner")
    (stage,) = [stage for stage in verdict.stages if stage.stage == "stability"]
    assert stage.outcome == "pass"
    assert all(name in stage.evidence for name in CONTENTS)
    body = "for (int64_t i = 0; i < n; ++i) out[i] = std::fmin(x[i] + y[i], 3.4e38f);"
    clamped = cpp_add(body).replace("#include <cstdint>", "#include <cstdint>\n#include <cmath>")
    verdict = judge(clamped, depth="winner")
    assert verdict.status is Status.WRONG
    (failed,) = [stage for stage in verdict.stages if stage.outcome == "fail"]
    assert failed.stage == "stability" and failed.evidence.startswith(f"on {PLUS}")


OWED = {
    "finite, and untouched": (2.0, 2.0, 2.0, 2.0, True),
    "finite, as the limit is": (1.0, 1.0, 1.0 - 1e-30, 1.0, True),
    "finite, by overflow of what grows": (0.0, 0.0, 1e30, 1e120, False),
    "NaN, where the limit is finite": (NAN, NAN, 1.0, 1.0, False),
    "NaN, where the limit is infinite": (NAN, NAN, 1e30, 1e120, False),
    "NaN all the way": (NAN, NAN, NAN, NAN, False),
    "infinite, and it grows": (INF, INF, 1e30, 1e120, True),
    "infinite, and it grows slowly": (INF, INF, 69.1, 276.3, True),
    "infinite, and it overflows": (-INF, -INF, -INF, -INF, True),
    "infinite, the other way": (-INF, -INF, 1e30, 1e120, False),
    "infinite in the narrow type alone": (INF, 70000.0, 70000.0, 70000.0, False),
    "finite in the narrow type alone": (7.0, INF, 1e30, 1e120, False),
}


@pytest.mark.parametrize("name", OWED)
def test_what_is_owed(name):
    *values, owed = OWED[name]
    rest = [torch.tensor([value, 3.0], dtype=torch.float64) for value in values]
    assert _owed(rest[0].float(), *rest[1:]).tolist() == [owed, True]


def test_positions_are_owed_where_large_values_give_the_same():
    usual = torch.tensor([3, 4, 5])
    assert _owed(usual, usual, usual, torch.tensor([3, 4, 6])).tolist() == [True, True, False]

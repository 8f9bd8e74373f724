"""Python candidates and baselines in a process of their own: results, state, failures."""

from __future__ import annotations

import compileall
from pathlib import Path

import pytest
import torch

from kopt.errors import CandidateError
from kopt.formats.pickled import problem_from_function
from kopt.model.kernel_file import parse_kernel
from kopt.model.problem import InputSpec
from kopt.model.verification import Status
from kopt.worker.trial import TimedTrial
from kopt_torch import TorchBackend
from kopt_torch.backend import uncompiled
from kopt_torch.executable import _constructed
from kopt_verify import Verify

MODEL_NEW = """
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def __init__(self, features, out):
        super().__init__()
        self.linear = nn.Linear(features, out)
        self.norm = nn.BatchNorm1d(out)

    def forward(self, x):
        scale = self.norm.weight * torch.rsqrt(self.norm.running_var + self.norm.eps)
        shift = (self.linear.bias - self.norm.running_mean) * scale + self.norm.bias
        return torch.addmm(shift, x, (self.linear.weight * scale[:, None]).t()).relu_()
"""
FUNCTION = """
import torch

def kernel_function(
    x, linear_weight, linear_bias, norm_weight, norm_bias, norm_running_mean, norm_running_var
):
    scale = norm_weight * torch.rsqrt(norm_running_var + 1e-5)
    y = x @ linear_weight.t() + linear_bias
    return torch.relu((y - norm_running_mean) * scale + norm_bias)
"""
CPP = """
// /// kopt
// entry = "forward"
// arguments = ["x", "linear_weight", "linear_bias", "norm_weight", "norm_bias",
//              "norm_running_mean", "norm_running_var", "out", "x.shape[0]", "x.shape[1]",
//              "out.shape[1]"]
// ///
#include <cmath>
#include <cstdint>
extern "C" void forward(const float* x, const float* w, const float* b, const float* gain,
                        const float* shift, const float* mean, const float* var, float* out,
                        int64_t rows, int64_t in, int64_t features) {
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t f = 0; f < features; ++f) {
            double total = b[f];
            for (int64_t i = 0; i < in; ++i) total += double(x[r * in + i]) * w[f * in + i];
            const double y = (total - mean[f]) / std::sqrt(var[f] + 1e-5) * gain[f] + shift[f];
            out[r * features + f] = y > 0 ? float(y) : 0.0f;
        }
}
"""


def verdict(trials, source, language="torch"):
    candidate = source if not isinstance(source, str) else parse_kernel(source, language)
    return Verify(Verify.Options()).kopt_verify(trials.of(candidate))


def kernel(result, parameters="x"):
    return f"import torch\n\n\ndef kernel_function({parameters}):\n    {result}\n"


# --- checks ---


def test_a_package_without_bytecode_is_named(tmp_path, monkeypatch):
    """uv leaves packages so, and no candidate process may write beside them."""
    (tmp_path / "slow_to_import").mkdir()
    (tmp_path / "slow_to_import" / "__init__.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert uncompiled("slow_to_import") == tmp_path
    compileall.compile_dir(tmp_path, quiet=1)
    assert uncompiled("slow_to_import") is None
    assert uncompiled("not_installed_at_all") is None


@pytest.mark.parametrize(("place", "state"), [(None, "ok"), (Path("/site"), "warn")])
def test_the_check_says_how_to_compile(monkeypatch, place, state):
    monkeypatch.setattr("kopt_torch.backend.uncompiled", lambda package: place)
    (row,) = TorchBackend(TorchBackend.Options()).kopt_check()
    assert row.state == state
    assert (place is None) or f"-m compileall -q -j 0 {place}" in row.fix


# --- modules ---


class LooksAtItsValues(torch.nn.Linear):
    def __init__(self):
        super().__init__(3, 2)
        self.most = float(self.weight.detach().max().numpy())


@pytest.mark.parametrize(
    ("module", "place"), [(lambda: torch.nn.Linear(3, 2), "meta"), (LooksAtItsValues, "cpu")]
)
def test_a_module_is_made_where_its_parameters_will_be_unless_it_cannot(module, place):
    """A thousand million weights took a CPU 10 s, for each set of inputs of each baseline."""
    assert _constructed(module, [], {}, torch.device("meta")).weight.device.type == place
    assert _constructed(module, [], {}, torch.device("cpu")).weight.device.type == "cpu"
    assert _constructed(module, [], {}, None).weight.device.type == "cpu"


# --- baselines ---


def test_the_baselines_have_names(model):
    def names(device, **options):
        backend = TorchBackend(TorchBackend.Options(**options))
        return [c.idea for c in backend.kopt_baselines(model, device)]

    assert names("cpu") == ["eager", "torch.compile", "eager-pooled", "torch.compile-pooled"]
    tuned = "torch.compile-max-autotune"
    assert names("cuda") == ["eager", "torch.compile", tuned]
    assert names("cuda", max_autotune=False) == ["eager", "torch.compile"]
    assert tuned in names("cpu", max_autotune=True)
    assert names("cpu", compile=False) == ["eager", "eager-pooled"]
    assert names("cuda", compile=False) == ["eager"]


def test_baselines_are_distinct_candidates(model):
    backend = TorchBackend(TorchBackend.Options())
    baselines = list(backend.kopt_baselines(model, "cpu"))
    assert len({c.id for c in baselines}) == 4
    assert [c.settings["pooled"] for c in baselines] == [False, False, True, True]


def _module():
    import torch

    return torch.nn.Sequential(torch.nn.Linear(10, 4), torch.nn.Dropout(0.5))


def _samples():
    import torch

    return [torch.randn(6, 10)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["function", "kernelbench", "pickled", "pickled module"])
def test_every_baseline_is_correct_by_the_rule_it_sets(trials, problem, model, kind):
    made = {
        "function": lambda: problem("def f(x):\n    return x / 3, x.sum()"),
        "kernelbench": lambda: model,
        "pickled": lambda: problem_from_function(lambda x: x / 3, _samples(), name="p"),
        "pickled module": lambda: problem_from_function(_module(), _samples(), name="m"),
    }[kind]()
    opened = trials(made)
    # The pooled ones differ by the environment of their process alone.
    eager, compiled, *_ = TorchBackend(TorchBackend.Options()).kopt_baselines(made, "cpu")
    found = verdict(opened, eager)
    assert found.status is Status.CORRECT
    assert found.error_ratio == pytest.approx(1.0)
    assert verdict(opened, compiled).status is Status.CORRECT


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # PyTorch's own imports
def test_max_autotune_is_a_mode_of_the_same_function():
    import torch

    from kopt_torch.compiled import compiled

    def third(x):
        return x / 3

    x = torch.randn(6, 10)
    assert torch.allclose(compiled(third, tuned=True)(x), x / 3)


# --- state ---


@pytest.mark.parametrize(
    ("source", "language"), [(MODEL_NEW, "torch"), (FUNCTION, "torch"), (CPP, "cpp")]
)
def test_a_candidate_gets_the_references_state(trials, model, source, language):
    assert verdict(trials(model), source, language).status is Status.CORRECT


@pytest.mark.parametrize(
    ("source", "status"),
    [
        (FUNCTION.replace(" + linear_bias", ""), Status.WRONG),
        (FUNCTION.replace("norm_running_mean) * scale", "0) * scale"), Status.WRONG),
        (
            FUNCTION.replace("return torch", "norm_weight.mul_(2); return torch"),
            Status.MUTATES_INPUT,
        ),
        (MODEL_NEW.replace("self.norm.bias", "0"), Status.WRONG),
    ],
)
def test_ignored_or_changed_state_is_found(trials, model, source, status):
    assert verdict(trials(model), source).status is status


def test_a_model_with_other_parameters_is_told_so(trials, model):
    other = MODEL_NEW.replace("self.norm", "self.normalise")
    with pytest.raises(CandidateError, match=r"Missing key.*normalise\.weight") as caught:
        verdict(trials(model), other)
    assert caught.value.status is Status.LAUNCH_FAILED


# --- how candidates end ---


@pytest.mark.parametrize(
    ("source", "status", "words"),
    [
        (kernel("return x *"), Status.PARSE_ERROR, "line 5"),
        ("import no_such_module\n" + kernel("return x"), Status.LAUNCH_FAILED, "no_such_module"),
        ("raise SystemExit(0)\n" + kernel("return x"), Status.LAUNCH_FAILED, "SystemExit"),
        (kernel("return x @ x"), Status.LAUNCH_FAILED, "mat1 and mat2"),
        (kernel("raise SystemExit(0)"), Status.LAUNCH_FAILED, "SystemExit"),
        (kernel("raise MemoryError('full')"), Status.OOM, "full"),
        (kernel("return x", "x, y"), Status.LAUNCH_FAILED, "'y'"),
        (kernel("import os; os._exit(0)"), Status.CRASHED, "code 0"),
        (kernel("import os; os.abort()"), Status.CRASHED, "SIGABRT"),
        (kernel("import ctypes; ctypes.string_at(0)"), Status.ILLEGAL_ACCESS, "SIGSEGV"),
    ],
)  # fmt: skip
def test_failures_have_their_own_status(trials, problem, source, status, words):
    opened = trials(problem("def f(x):\n    return x * 2"))
    with pytest.raises(CandidateError) as caught:
        verdict(opened, source)
    assert caught.value.status is status
    assert words in caught.value.detail
    assert verdict(opened, kernel("return x + x")).status is Status.CORRECT


@pytest.mark.parametrize(
    "result",
    [
        "None", "(x * 2,)", "[x * 2]", "{'out': x * 2}", "(x * 2)[None]", "(x * 2).flatten()",
        "(x * 2).double()", "(x * 2).to('meta')", "(x * 2).to_sparse()", "'PASS'", "2.0",
        "torch.empty(0)", "(x * 2).sum()",
    ],
)  # fmt: skip
def test_results_of_another_form_are_invalid(trials, problem, result):
    opened = trials(problem("def f(x):\n    return x * 2"))
    assert verdict(opened, kernel(f"return {result}")).status is Status.INVALID_OUTPUT


def test_views_and_strided_results_are_fine(trials, problem):
    opened = trials(problem("def f(x):\n    return x * 2"))
    for result in ("(x.t() * 2).t()", "torch.stack([x * 2, x], -1)[..., 0]", "(x[None] * 2)[0]"):
        assert verdict(opened, kernel(f"return {result}")).status is Status.CORRECT


def test_knobs_and_keywords_reach_a_function(trials, problem):
    made = problem(
        "def f(x, *, power):\n    return x ** power", InputSpec(name="x", shape=(6, 10)),
        InputSpec(name="power", value=2, keyword=True),
    )  # fmt: skip
    source = "# /// kopt\n# [knobs]\n# PARTS = [2, 3]\n# ///\n" + kernel(
        "return torch.cat([p ** power for p in x.split(x.shape[0] // PARTS)])", "x, *, power, PARTS"
    )
    opened = trials(made)
    candidate = parse_kernel(source, "torch")
    assert verdict(opened, candidate).status is Status.CORRECT
    assert verdict(opened, candidate.with_values("test", PARTS=3)).status is Status.CORRECT


def test_an_operator_in_place_is_judged_on_what_it_changed(trials, problem):
    inputs = [InputSpec(name=name, shape=(6, 10)) for name in "xy"]
    opened = trials(problem("def f(x, y):\n    x.add_(y)", *inputs, mutates=("x",)))
    assert verdict(opened, kernel("x += y", "x, y")).status is Status.CORRECT
    assert verdict(opened, kernel("x[1:] += y[1:]", "x, y")).status is Status.WRONG
    assert verdict(opened, kernel("y += x", "x, y")).status is Status.MUTATES_INPUT
    assert verdict(opened, kernel("return x + y", "x, y")).status is Status.INVALID_OUTPUT
    assert verdict(opened, kernel("pass", "x, y")).status is Status.WRONG


# --- memory ---

COUNTING = """
import torch
import weakref

made = []

def kernel_function(x):
    alive = sum(each() is not None for each in made)
    out = torch.full_like(x, float(alive))
    made.append(weakref.ref(out))
    return out
"""


def test_earlier_results_make_way_where_they_are_large(trials, problem):
    opened = trials(problem("def f(x):\n    return x * 1.0"))
    trial = opened.of(parse_kernel(COUNTING, "torch"))
    sets = [opened.reference.inputs("default", seed) for seed in range(3)]
    try:

        def alive(inputs, *, large):
            subject = TimedTrial(trial, [inputs], large=large)
            subject.block(1, walled=True)
            trial.collect(inputs)
            return float(inputs.results[0][1].flatten()[0])

        def launch(inputs):
            TimedTrial(trial, [inputs]).block(1)

        launch(sets[0])
        launch(sets[1])
        assert alive(sets[2], large=False) == 2
        launch(sets[2])
        assert alive(sets[0], large=True) == 0, "nor its own last one"
        launch(sets[1])
        trial.order("trim")
        assert alive(sets[0], large=False) == 0
    finally:
        for each in sets:
            trial.release(each)
            each.close()

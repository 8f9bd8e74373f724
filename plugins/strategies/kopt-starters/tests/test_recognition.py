"""What is recognised, however it is spelt, and what is not, however alike it looks."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kopt.model.problem import Signature
from kopt_starters.expression import size
from kopt_starters.flow import expression_of
from kopt_starters.operators import OPERATORS
from kopt_starters.recognition import recognise

torch = pytest.importorskip("torch")
F = torch.nn.functional


def _rms(x, w, eps=1e-5, dim=-1):
    return x * torch.rsqrt(x.pow(2).mean(dim, keepdim=True) + eps) * w


def _llama(x, w):
    wide = x.to(torch.float32)
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
    return w * wide.to(x.dtype)


def _mean_by_count(x, w):
    return x / torch.sqrt((x * x).sum(dim=-1, keepdim=True) / x.shape[-1] + 1e-5) * w


def _in_place(x, w):
    scale = x.square().mean(-1, keepdim=True)
    scale += 1e-5
    return x * scale.rsqrt() * w


RMS_SPELLINGS = {
    "framework": lambda x, w: F.rms_norm(x, (x.shape[-1],), w, 1e-5),
    "rsqrt": _rms,
    "llama": _llama,
    "mean by count": _mean_by_count,
    "in place": _in_place,
    "power": lambda x, w: w * (x * (torch.mean(x**2, -1, True) + 1e-5) ** -0.5),
    "reciprocal": lambda x, w: x * (1.0 / torch.sqrt(x.square().mean(-1, True) + 1e-5)) * w,
    "unsqueezed": lambda x, w: x / torch.sqrt((x**2).mean(-1) + 1e-5).unsqueeze(-1) * w,
    "viewed": lambda x, w: w.view(1, -1) * (x * torch.rsqrt((x**2).mean(-1).unsqueeze(-1) + 1e-5)),
    "weight first": lambda x, w: (w * x) / torch.sqrt(1e-5 + (x * x).mean(-1, keepdim=True)),
}


def _exp_sum(x, dim):
    power = torch.exp(x - x.max(dim=dim, keepdim=True)[0])
    return power / power.sum(dim=dim, keepdim=True)


def _bare_exp(x, dim):
    return torch.exp(x) / torch.sum(torch.exp(x), dim=dim, keepdim=True)


def _amax(x, dim):
    power = (x - torch.amax(x, dim, keepdim=True)).exp()
    return power * power.sum(dim, keepdim=True).reciprocal()


def _exp_in_place(x, dim):
    power = (x - x.amax(dim, True)).exp_()
    return power.div_(power.sum(dim, True))


SOFTMAX_SPELLINGS = {
    "framework": torch.softmax, "functional": F.softmax, "exp": _exp_sum, "bare": _bare_exp,
    "amax": _amax, "in place": _exp_in_place,
    "upcast": lambda x, dim: F.softmax(x, dim, dtype=torch.float32).to(x.dtype),
}  # fmt: skip


def _task(signature: Signature) -> Any:
    return recognise(signature, OPERATORS)


def _is(signature: Signature, name: str, first: int, last: int) -> Any:
    task = _task(signature)
    assert task is not None, f"{name} not recognised"
    assert (task.operator.name, task.match.first, task.match.last) == (name, first, last)
    return task.match


@pytest.mark.parametrize("spelling", RMS_SPELLINGS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_rms_norm_is_found_in_every_spelling(trace, spelling, dtype):
    x, w = torch.randn(3, 5, 8).to(getattr(torch, dtype)), torch.ones(8).to(getattr(torch, dtype))
    match = _is(trace(RMS_SPELLINGS[spelling], x=x, w=w), "rms_norm", 2, 2)
    assert (match.x, match.weight) == ("x", "w")
    assert match.eps == pytest.approx(1e-5, rel=1e-6)


@given(
    shape=st.lists(st.integers(2, 6), min_size=2, max_size=4),
    dim=st.integers(0, 3),
    negative=st.booleans(),
    spelling=st.sampled_from(["div", "rsqrt"]),
)
@settings(max_examples=60, deadline=None)
def test_rms_norm_over_any_dimension(trace, shape, dim, negative, spelling):
    dim %= len(shape)
    given = dim - len(shape) if negative else dim

    def reference(x):
        mean = torch.mean(x**2, dim=given, keepdim=True)
        if spelling == "div":
            return x / torch.sqrt(mean + 1e-6)
        return torch.rsqrt(mean + 1e-6) * x

    match = _is(trace(reference, x=torch.randn(shape)), "rms_norm", dim, dim)
    assert match.weight is None
    assert match.eps == pytest.approx(1e-6)


def test_rms_norm_with_the_default_eps_takes_that_of_float32(trace):
    for dtype in (torch.float32, torch.float16):
        found = _is(trace(lambda x: F.rms_norm(x, (8,)), x=torch.randn(4, 8, dtype=dtype)),
                    "rms_norm", 1, 1)  # fmt: skip
        assert found.eps == pytest.approx(2.0**-23)


def test_weight_of_a_strided_norm_must_run_along_its_dimension(trace):
    x, right, wrong = torch.randn(2, 6, 6, 5), torch.ones(6, 1, 1), torch.ones(6, 1)
    assert _is(trace(lambda x, w: _rms(x, w, dim=1), x=x, w=right), "rms_norm", 1, 1).weight == "w"
    assert _task(trace(lambda x, w: _rms(x, w, dim=1), x=x, w=wrong)) is None


@pytest.mark.parametrize("spelling", SOFTMAX_SPELLINGS)
@pytest.mark.parametrize("dim", [-1, 1, 0])
def test_softmax_is_found_in_every_spelling(trace, spelling, dim):
    signature = trace(lambda x: SOFTMAX_SPELLINGS[spelling](x, dim), x=torch.randn(4, 4))
    _is(signature, "softmax", dim % 2, dim % 2)


@given(shape=st.lists(st.integers(1, 5), min_size=1, max_size=4), dim=st.integers(0, 3))
@settings(max_examples=30, deadline=None)
def test_softmax_over_any_dimension(trace, shape, dim):
    dim %= len(shape)
    _is(trace(lambda x: torch.softmax(x, dim), x=torch.randn(shape)), "softmax", dim, dim)


def _ln_var(x, w, b):
    mean = x.mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-5) * w + b


def _ln_spelt(x, w, b):
    centred = x - x.mean(-1, keepdim=True)
    return w * (centred * torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + 1e-5)) + b


@pytest.mark.parametrize("spelt", [_ln_var, _ln_spelt, lambda x, w, b: F.layer_norm(x, (8,), w, b)])
def test_layer_norm_is_found_in_every_spelling(trace, spelt):
    match = _is(trace(spelt, x=torch.randn(3, 8), w=torch.ones(8), b=torch.ones(8)),
                "layer_norm", 1, 1)  # fmt: skip
    assert (match.weight, match.bias, match.eps) == ("w", "b", pytest.approx(1e-5))


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("trailing", [1, 2, 3])
def test_layer_norm_module_keeps_its_state_names(trace, trailing, affine):
    module = torch.nn.LayerNorm((4, 5, 6)[3 - trailing :], elementwise_affine=affine)
    state = {f"norm.{name}": value for name, value in module.state_dict(keep_vars=True).items()}
    match = _is(trace(module, state, x=torch.randn(2, 4, 5, 6)), "layer_norm", 4 - trailing, 3)
    assert match.weight == ("norm.weight" if affine else None)
    assert match.bias == ("norm.bias" if affine else None)


@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    dim=st.integers(0, 3),
    keep=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_sum_over_any_dimension(trace, shape, dim, keep):
    dim %= len(shape)
    signature = trace(lambda x: x.sum(dim, keepdim=keep), x=torch.randn(shape))
    assert _is(signature, "sum", dim, dim).keep is (keep and True)


def test_sum_over_adjacent_or_all_dimensions(trace):
    x = torch.randn(2, 3, 4)
    _is(trace(lambda x: x.sum((1, 2)), x=x), "sum", 1, 2)
    _is(trace(lambda x: x.sum(), x=x), "sum", 0, 2)
    assert _task(trace(lambda x: x.sum((0, 2)), x=x)) is None


LOOK_ALIKES = {
    "x times its mean": lambda x: x * x.mean(-1, keepdim=True),
    "scaled softmax": lambda x: torch.softmax(x * 2, -1),
    "scaled result": lambda x: torch.softmax(x, -1) * 2,
    "log softmax": lambda x: torch.log_softmax(x, -1),
    "double softmax": lambda x: torch.softmax(torch.softmax(x, -1), -1),
    "softmax plus x": lambda x: torch.softmax(x, -1) + x,
    "softmax of the transpose": lambda x: torch.softmax(x.t(), -1),
    "softmin": lambda x: F.softmin(x, -1),
    "sums without keepdim": lambda x: torch.exp(x) / torch.exp(x).sum(-1),
    "sums over another dimension": lambda x: torch.exp(x) / torch.exp(x).sum(0, keepdim=True).t(),
    "max over another dimension": lambda x: _shifted(x, x.amax(0, keepdim=True)),
    "exp of half the sum": lambda x: torch.exp(x) / torch.exp(x * 0.5).sum(-1, keepdim=True),
    "rms norm of another tensor": lambda x: x * torch.rsqrt((x + 1).pow(2).mean(-1, True) + 1e-5),
    "root of the sum": lambda x: x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-5),
    "cubes": lambda x: x * torch.rsqrt(x.pow(3).mean(-1, keepdim=True) + 1e-5),
    "square root missing": lambda x: x / (x.pow(2).mean(-1, keepdim=True) + 1e-5),
    "mean misaligned": lambda x: x * torch.rsqrt(x.pow(2).mean(-1) + 1e-5),
    "unbiased variance": lambda x: (
        (x - x.mean(-1, True)) / torch.sqrt(x.var(-1, True, keepdim=True) + 1e-5)
    ),
    "mean": lambda x: x.mean(-1),
    "sum of squares": lambda x: (x * x).sum(-1),
    "negative sum": lambda x: -x.sum(-1),
    "sum of integers": lambda x: x.to(torch.int64).sum(-1),
    "rounded on the way": lambda x: torch.softmax(x.to(torch.bfloat16), -1).to(torch.float32),
    "sum of one row": lambda x: x[0].sum(-1),
    "scaled twice": lambda x: F.rms_norm(x, (6,), None, 1e-5) * x,
}


def _shifted(x, most):
    power = torch.exp(x - most)
    return power / power.sum(-1, keepdim=True)


@pytest.mark.parametrize("look_alike", LOOK_ALIKES)
def test_look_alikes_are_left_alone(trace, look_alike):
    assert _task(trace(LOOK_ALIKES[look_alike], x=torch.randn(6, 6))) is None


def test_a_change_of_an_argument_is_left_alone(trace):
    def reference(x):
        x.add_(1)
        return torch.softmax(x, -1)

    assert _task(trace(reference, x=torch.randn(4, 4))) is None


def test_a_change_seen_through_a_view_is_left_alone(trace):
    def reference(x):
        power = torch.exp(x)
        seen = power.view(4, 4)
        power.mul_(2)
        return seen / power.sum(-1, keepdim=True)

    assert _task(trace(reference, x=torch.randn(4, 4))) is None


def test_float64_is_left_alone(trace):
    assert _task(trace(lambda x: x.sum(-1), x=torch.randn(4, 4, dtype=torch.float64))) is None


def test_all_workloads_must_agree(trace):
    first = trace(lambda x: x.sum(1), x=torch.randn(4, 4)).first
    same = trace(lambda x: x.sum(-1), x=torch.randn(3, 9)).first
    other = trace(lambda x: x.sum(0), x=torch.randn(4, 4)).first
    assert _task(Signature(workloads={"a": first, "b": same})) is not None
    assert _task(Signature(workloads={"a": first, "b": other})) is None


def test_eps_given_as_an_argument_stays_one(trace, propose):
    x, w = torch.randn(4, 8), torch.ones(8)
    signature = trace(_rms, x=x, w=w, eps=1e-3)
    for kernel in propose(signature, "cpp"):
        assert kernel.settings["arguments"][-1] == "eps"
    for kernel in propose(signature, "triton"):
        assert "_launch(x, w, eps, " in kernel.source


def test_state_is_named_with_underscores(trace, propose):
    module = torch.nn.LayerNorm(8)
    state = {f"norm.{name}": value for name, value in module.state_dict(keep_vars=True).items()}
    signature = trace(module, state, x=torch.randn(4, 8))
    assert propose(signature, "cpp")[0].settings["arguments"][:4] == [
        "x", "norm_weight", "norm_bias", "out",
    ]  # fmt: skip
    assert "def layer_norm(x, norm_weight, norm_bias, *, " in propose(signature, "triton")[0].source


def test_nothing_is_proposed_beyond_the_first_round_or_for_another_language(trace, propose):
    signature = trace(lambda x: x.sum(-1), x=torch.randn(4, 8))
    assert propose(signature, "cpp")
    assert propose(signature, "cuda")
    assert propose(signature, "torch") == []


def test_options_limit_operators_and_structures(trace, propose):
    signature = trace(lambda x: torch.softmax(x, -1), x=torch.randn(512, 8192))
    assert len(propose(signature, "triton")) > 1
    assert len(propose(signature, "triton", structures=1)) == 1
    assert propose(signature, "triton", operators=("sum",)) == []


def test_the_best_kernel_in_another_language_of_the_run_is_second(trace, propose):
    signature = trace(lambda x: torch.softmax(x, -1), x=torch.randn(512, 8192))
    alone = propose(signature, "triton")
    both = propose(signature, "triton", beside=("cuda",))
    assert [each.language for each in both] == ["triton", "cuda", "triton", "triton"]
    assert both[0] == alone[0]
    assert both[1] == propose(signature, "cuda")[0]
    assert propose(signature, "triton", beside=("cuda",), structures=1) == alone[:1]


def test_products_are_not_asked_for_beside_triton(signature_in_a_run, propose):
    signature = signature_in_a_run("def f(x, y): return x @ y", x=(64, 64), y=(64, 64))
    assert propose(signature, "cuda")
    assert {each.language for each in propose(signature, "triton", beside=("cuda",))} == {"triton"}


def test_a_recurrence_does_not_double_its_expression_with_each_step(trace, propose):
    def average(x):
        state = x
        for _ in range(16):
            state = state + 0.25 * (x - state)
        return state

    signature = trace(average, x=torch.randn(4, 8))
    expression = expression_of(signature.first)
    assert expression is not None
    assert size(expression) < 1000
    assert propose(signature, "cpp") == []


def test_importing_brings_in_neither_torch_nor_triton():
    code = "import sys, kopt_starters; print({'torch', 'triton', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"

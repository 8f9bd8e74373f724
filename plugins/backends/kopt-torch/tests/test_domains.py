"""What is inferred of inputs that code draws, and what sharper inputs keep of it."""

from __future__ import annotations

import pytest
import torch

from kopt.model.problem import InputSpec, Problem, ReferenceSource
from kopt_torch.domains import infer, look_at
from kopt_torch.sharp import SHARPER

_MODEL = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        return {result}


def get_inputs():
    return [{x}]


def get_init_inputs():
    return []
"""


def a_model(x, result="x * 2", init="pass"):
    source = ReferenceSource(
        kind="kernelbench", source=_MODEL.format(x=x, result=result, init=init), entry="Model"
    )
    return Problem(name="model", format="kernelbench", reference=source)


def drawn(reference, distribution, seed=5):
    inputs = reference.inputs("default", seed, distribution)
    x = inputs.tensors["x"].clone()
    inputs.close()
    return x


KINDS = {
    "torch.rand(40, 40)": ("free", False, False),
    "torch.randn(40, 40)": ("free", False, False),
    "torch.rand(())": ("free", False, False),
    "torch.randint(0, 2, (64,)).float() * 2 - 1": ("labels", False, False),
    "torch.randint(0, 500, (64,)).float()": ("labels", False, False),
    "torch.arange(1.0, 65.0) / 7": ("constant", False, False),
    "torch.rand(8, 30).softmax(-1)": ("probabilities", False, False),
    "torch.rand(8, 30).log_softmax(-1)": ("log-probabilities", False, False),
    "torch.rand(40, 40).triu()": ("free", False, True),
    "torch.rand(40).diag()": ("free", True, True),
    "(lambda a: a + a.T)(torch.rand(40, 40))": ("free", True, False),
    "(lambda a: a + a.mT)(torch.rand(3, 40, 40))": ("free", True, False),
}


@pytest.mark.parametrize("x", KINDS)
def test_the_kind_of_a_tensor_is_seen_in_two_draws(x):
    looks = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        looks.append(look_at([("x", eval(x, {"torch": torch}))]))
    domain = infer(*looks)["x"]
    assert (domain.kind, domain.symmetric, domain.zeros) == KINDS[x]


@pytest.mark.parametrize("distribution", ["signed", *SHARPER[:-1]])
def test_sharper_inputs_keep_labels_probabilities_and_structure(opened, distribution):
    labels = opened(a_model("torch.randint(0, 2, (64,)).float() * 2 - 1"))
    assert set(drawn(labels, distribution).tolist()) == {-1.0, 1.0}
    shares = drawn(opened(a_model("torch.rand(8, 30).softmax(-1)")), distribution)
    assert bool((shares >= 0).all())
    assert torch.allclose(shares.sum(-1), torch.ones(8))
    assert float(shares.max()) > 2 / 30 or distribution == "unit"
    upper = drawn(opened(a_model("torch.rand(40, 40).triu()")), distribution)
    assert not bool(upper.tril(-1).any()) and bool(upper.triu().any())
    even = drawn(opened(a_model("(lambda a: a + a.T)(torch.rand(40, 40))")), distribution)
    assert torch.equal(even, even.T) and len(even.unique()) > 40


def test_each_sharper_distribution_is_what_it_says(opened):
    reference = opened(a_model("torch.rand(64, 100)"))
    found = {name: drawn(reference, name) for name in ("signed", *SHARPER)}
    for name, x in found.items():
        assert (float(x.min()) < 0) == (name != "positive"), name
    needles = found["needle"].abs().sort(-1).values
    assert bool((needles[:, -1] > 16).all()) and bool((needles[:, -2] < 1).all())
    assert len(found["needle"].abs().argmax(-1).unique()) > 10  # at another place in each row
    assert float((found["unit"].abs() - 1).abs().max()) < 0.1
    assert float(found["shifted"].mean(-1).std()) > 1
    spread = found["shifted"].std(-1)
    assert float(spread.max() / spread.min()) > 4


def test_what_is_drawn_positive_stays_so_where_the_reference_needs_it(opened):
    reference = opened(a_model("torch.rand(64, 100) + 0.01", "x.log()"))
    assert reference.distributions == ("native", "positive")
    for name in ("positive", *reference.sharper):
        assert float(drawn(reference, name).min()) > 0, name
    assert any("positive stays so" in note for note in reference.input_notes)


def test_what_is_drawn_within_bounds_stays_there_where_the_reference_needs_it(opened):
    reference = opened(a_model("torch.rand(64, 100) * 0.8 + 0.1", "(1 - x).log() + x.log()"))
    assert reference.distributions == ("native", "within")
    x = drawn(reference, "within")
    assert 0.09 < float(x.min()) < 0.2 and 0.8 < float(x.max()) < 0.91


def test_what_refuses_values_of_both_signs_gets_positive_ones(opened):
    """A Cholesky factorisation raises where a matrix is not positive definite."""
    x = "torch.diag(torch.rand(8) + 1)"
    reference = opened(a_model(x, "torch.linalg.cholesky(x)"))
    assert reference.distributions == ("native", "positive")
    dense = "(lambda a: a @ a.T + torch.eye(8))(torch.rand(8, 8))"
    assert opened(a_model(dense, "torch.linalg.cholesky(x)")).distributions == ("native",)


def test_a_declared_range_is_a_promise(opened):
    spec = InputSpec(name="x", shape=(64, 100), distribution="uniform", low=2.0, high=5.0)
    reference = opened("def f(x):\n    return x.log()", spec)
    for name in (*reference.distributions, *reference.sharper):
        x = drawn(reference, name)
        assert float(x.min()) >= 2.0 and float(x.max()) <= 5.0, name
    needles = drawn(reference, "needle").sort(-1).values
    assert bool((needles[:, -1] > 4.6).all()) and bool((needles[:, -2] < 2.2).all())
    assert float(drawn(reference, "shifted").mean(-1).std()) > 0.3
    assert reference.input_notes == ()


def test_loud_state_is_large_and_keeps_its_signs(opened):
    init = "self.n, self.a = torch.nn.BatchNorm1d(16), torch.nn.Linear(24, 16)"
    reference = opened(a_model("torch.rand(32, 24)", "self.n(self.a(x))", init))
    quiet, loud = (reference.inputs("default", 3, name).tensors for name in ("native", "loud"))
    assert float(loud["n.running_var"].min()) > 0
    assert float(loud["n.bias"].abs().max()) > 1
    assert torch.equal(loud["a.weight"].sign(), quiet["a.weight"].sign())
    assert float(loud["a.weight"].std() / quiet["a.weight"].std()) > 4
    assert "loud" not in opened(a_model("torch.rand(4, 4)")).sharper


def test_sharpening_adds_what_the_reference_is_finite_on(opened):
    reference = opened(a_model("torch.rand(8, 3000)", "x.cumprod(-1)"))
    assert reference.distributions == ("native", "signed")
    reference.sharpen(["unit", "shifted"])
    assert reference.distributions == ("native", "signed", "unit")
    reference.sharpen(["unit"])
    assert reference.distributions == ("native", "signed", "unit")


def test_sharp_inputs_follow_from_the_seed(opened):
    reference = opened(a_model("[torch.rand(8, 9), torch.rand(8, 9)]", "x[0] + x[1]"))
    for name in ("signed", *reference.sharper):
        first, again, other = (
            reference.inputs("default", seed, name).tensors["x[1]"] for seed in (1, 1, 2)
        )
        assert torch.equal(first, again) and not torch.equal(first, other)

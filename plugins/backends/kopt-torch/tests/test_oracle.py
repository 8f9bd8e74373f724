"""The float64 oracle: casts inside a reference do not round it, slices of it are the whole."""

from __future__ import annotations

import pytest
import torch

from kopt.formats.pickled import problem_from_function
from kopt.model.problem import InputSpec
from kopt_torch import slices as module


def spec(name="x", *shape, **more):
    return InputSpec(name=name, shape=shape or (6, 10), **more)


EXACT = {
    "x / 3": lambda x: x / 3,
    "x.float() / 3": lambda x: x / 3,
    "(x.half().float() / 3).to(x.dtype)": lambda x: x / 3,
    "torch.softmax(x.to(torch.float32), -1).to(torch.bfloat16)": lambda x: x.softmax(-1),
    "torch.nn.functional.softmax(x, -1, dtype=torch.float32).half()": lambda x: x.softmax(-1),
    "x.sum(-1, dtype=torch.float32)": lambda x: x.sum(-1),
    "x * torch.tensor(0.1)": lambda x: x * 0.1,
    "x + torch.full((10,), 0.1)": lambda x: x + 0.1,
    "x * torch.arange(10, dtype=torch.float32).div(3)": lambda x: (
        x * torch.arange(10.0).double() / 3
    ),
    "torch.zeros(6, 10).copy_(x / 3)": lambda x: x / 3,
    "torch.empty_like(x, dtype=torch.float16).copy_(x / 3)": lambda x: x / 3,
    "torch.linspace(0, 1, 10) + x": lambda x: torch.linspace(0, 1, 10, dtype=torch.float64) + x,
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("expression", EXACT)
def test_it_does_not_round_where_the_reference_does(opened, expression, dtype):
    reference = opened(f"def f(x):\n    return {expression}", spec(dtype=dtype))
    for distribution in reference.distributions:
        inputs = reference.inputs("default", 3, distribution)
        (found,) = reference.oracle(inputs)
        wanted = EXACT[expression](inputs.tensors["x"].double())
        assert found.dtype == torch.float64
        assert torch.allclose(found, wanted, rtol=1e-14, atol=1e-14)


def test_the_default_dtype_is_put_back(opened):
    reference = opened("def f(x):\n    return x * torch.tensor(0.1)")
    reference.oracle(reference.inputs("default", 1))
    assert torch.get_default_dtype() == torch.float32


def test_it_is_of_the_rounded_inputs(opened):
    reference = opened("def f(x):\n    return x.clone()", spec(dtype="bfloat16"))
    inputs = reference.inputs("default", 1)
    assert torch.equal(reference.oracle(inputs)[0], inputs.tensors["x"].double())


def test_a_models_parameters_are_widened_too(opened, model):
    reference = opened(model)
    inputs = reference.inputs("default", 4, "signed")
    at = {name: value.double() for name, value in inputs.tensors.items()}
    linear = at["x"] @ at["linear.weight"].T + at["linear.bias"]
    scale = at["norm.weight"] / (at["norm.running_var"] + 1e-5).sqrt()
    wanted = ((linear - at["norm.running_mean"]) * scale + at["norm.bias"]).relu()
    (found,) = reference.oracle(inputs)
    assert torch.allclose(found, wanted, rtol=1e-13, atol=1e-13)
    (own,) = reference.expected(inputs)
    assert own.dtype == torch.float32
    assert 0 < float((own.double() - found).abs().max()) < 1e-4


def test_integers_stay_what_they_are(opened):
    ids = InputSpec(name="ids", shape=(9,), dtype="int64", distribution="integers", high=5)
    reference = opened("def f(ids):\n    return ids * 2, ids > 2", ids)
    inputs = reference.inputs("default", 1)
    assert [result.dtype for result in reference.oracle(inputs)] == [torch.int64, torch.bool]


def test_a_pickled_closure_over_a_float32_tensor_is_run_in_float64(opened):
    weight = torch.full((10,), 0.1)
    reference = opened(problem_from_function(lambda x: x * weight, [torch.randn(6, 10)], name="w"))
    inputs = reference.inputs("default", 1)
    wanted = inputs.tensors["x"].double() * weight.double()
    assert torch.equal(reference.oracle(inputs)[0], wanted)


# --- slices of what is large ---


def whole_and_parts(reference, distribution="native"):
    inputs = reference.inputs("default", 2, distribution)
    answers = list(reference.answers(inputs))
    columns = zip(*(answer.oracle for answer in answers), strict=True)
    joined = [torch.cat(column) if len(answers) > 1 else column[0] for column in columns]
    return reference.oracle(inputs), joined, answers, inputs


@pytest.mark.parametrize(
    "body",
    [
        "return x / 3",
        "return x.softmax(-1), x.sum(1), x > 0",
        "return (x.float() ** 2).mean(-1, keepdim=True)",
        "return x.argmax(-1)",
    ],
)
def test_slices_equal_the_whole(opened, monkeypatch, body):
    monkeypatch.setattr(module, "CHUNK_BYTES", 3000)
    reference = opened(
        f"def f(x):\n    return ({body.removeprefix('return ')})", spec("x", 101, 13)
    )
    for distribution in reference.distributions:
        whole, joined, answers, inputs = whole_and_parts(reference, distribution)
        assert len(answers) > 3
        covered = [i for answer in answers for i in range(*answer.rows.indices(101))]
        assert covered == list(range(101))
        assert all(torch.equal(one, other) for one, other in zip(whole, joined, strict=True))
        for answer in answers:
            for own, result in zip(answer.expected, reference.expected(inputs), strict=True):
                assert torch.allclose(own, result[answer.rows])


@pytest.mark.parametrize(
    ("body", "inputs"),
    [
        ("return x.cumsum(0)", [spec("x", 64, 8)]),
        ("return x.flip(0).cumsum(0).flip(0)", [spec("x", 64, 8)]),
        ("return x - x.mean(0)", [spec("x", 64, 8)]),
        ("return x + x.roll(1, 0)", [spec("x", 64, 8)]),
        ("return x * 2, x.sum()", [spec("x", 64, 8)]),
        ("return x.t() * 2", [spec("x", 64, 64)]),
        ("return x.sort(0).values", [spec("x", 64, 8)]),
        ("return x @ y", [spec("x", 64, 64), spec("y", 64, 64)]),
        ("return x * y", [spec("x", 64, 64), spec("y", 64)]),
        ("return torch.nn.functional.pad(x, (0, 0, 1, 0))[:-1]", [spec("x", 64, 8)]),
    ],
)
def test_what_depends_on_other_rows_is_not_sliced(opened, monkeypatch, body, inputs):
    monkeypatch.setattr(module, "CHUNK_BYTES", 1000)
    names = ", ".join(i.name for i in inputs)
    whole, joined, answers, _ = whole_and_parts(opened(f"def f({names}):\n    {body}", *inputs))
    assert len(answers) == 1
    assert answers[0].rows == slice(None)
    assert all(torch.equal(one, other) for one, other in zip(whole, joined, strict=True))


def test_small_inputs_and_changes_in_place_are_not_sliced(opened, monkeypatch):
    assert len(whole_and_parts(opened("def f(x):\n    return x * 2"))[2]) == 1
    monkeypatch.setattr(module, "CHUNK_BYTES", 100)
    changing = opened("def f(x):\n    x.mul_(2)", spec("x", 64, 8), mutates=("x",))
    whole, joined, answers, _ = whole_and_parts(changing)
    assert len(answers) == 1
    assert torch.equal(whole[0], joined[0])


# --- numbers that are reduced from all of what is large ---

TWO = [spec("x", 61, 17), spec("y", 61, 17)]


@pytest.mark.parametrize(
    ("body", "inputs", "how"),
    [
        ("return ((x - y) ** 2).mean()", TWO, "mean"),
        ("return torch.nn.functional.smooth_l1_loss(x, y)", TWO, "mean"),
        ("return (x * y).abs().sum(), (x - y).mean().abs() + x.abs().sum()", TWO, None),
        ("return (x * y).abs().sum() / 7", TWO, "sum"),
        ("return torch.clamp(1 - x * y, min=0).mean()", [spec("x", 61, 61), spec("y", 61)], "mean"),
        ("return torch.nn.functional.kl_div(x, y.abs(), reduction='batchmean')", TWO, "mean"),
        ("return (x * x).mean().sqrt()", TWO[:1], None),
        ("return (x[:5] * x[:5]).mean()", TWO[:1], None),
        ("return x.abs().max()", TWO[:1], None),
        ("return x.abs().mean(0)", TWO[:1], None),
        ("return x.mean() * 0", TWO[:1], None),
        ("return (x.abs().mean() * 1000).bfloat16()", TWO[:1], None),
    ],
)
def test_what_adds_up_is_computed_in_slices(opened, monkeypatch, body, inputs, how):
    """A loss over 8 GB was widened whole: 43 GB."""
    names = ", ".join(i.name for i in inputs)
    source = f"def f({names}):\n    {body}"
    whole, _, _, _ = whole_and_parts(opened(source, *inputs))
    monkeypatch.setattr(module, "CHUNK_BYTES", 2000)
    reference = opened(source, *inputs)
    terms = reference._terms.get("default")
    assert (terms.how if terms else None) == how
    seen: list[int] = []
    in_float64 = reference._function.in_float64

    def watched(arguments, keywords, state):
        seen.append(sum(each.numel() for each in arguments))
        return in_float64(arguments, keywords, state)

    monkeypatch.setattr(reference._function, "in_float64", watched)
    added, _, answers, given = whole_and_parts(reference)
    assert len(answers) == 1 and answers[0].rows == slice(None)
    assert all(
        one.dtype == other.dtype and torch.allclose(one, other, rtol=1e-12, atol=0)
        for one, other in zip(whole, added, strict=True)
    )
    assert all(torch.equal(a, b) for a, b in zip(answers[0].oracle, added, strict=True))
    if terms is not None:
        assert max(seen) <= sum(each.numel() for each in given.tensors.values()) // 2
        changed = {"x": given.tensors["x"].double() * 1.5}
        (other,) = reference.oracle_with(given, changed, {})
        assert other != added[0]

"""Operation counts of traced operators, against formulas written out by hand."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kopt.model.problem import InputSpec
from kopt_torch.trace import TraceMode, traced


def count(function, *tensors):
    """Operations and dtypes of what a function runs."""
    mode = TraceMode({})
    with torch.no_grad(), mode:
        function(*tensors)
    costly = [call for call in mode.calls if call.flops]
    assert all(bool(call.dtype) == bool(call.flops) for call in mode.calls)
    return sum(call.flops for call in costly), {call.dtype for call in costly}


def r(*shape, **more):
    return torch.randn(*shape, **more)


# --- products ---


@pytest.mark.parametrize(
    ("function", "tensors", "multiply_adds"),
    [
        (torch.mm, (r(3, 4), r(4, 5)), 3 * 4 * 5),
        (torch.matmul, (r(3, 4), r(4)), 3 * 4),
        (torch.matmul, (r(4), r(4, 5)), 4 * 5),
        (torch.dot, (r(7), r(7)), 7),
        (torch.matmul, (r(2, 3, 4, 5), r(5, 6)), 2 * 3 * 4 * 5 * 6),
        (torch.matmul, (r(2, 1, 4, 5), r(3, 5, 6)), 2 * 3 * 4 * 5 * 6),  # broadcast
        (torch.bmm, (r(2, 3, 4), r(2, 4, 5)), 2 * 3 * 4 * 5),
        (torch.addmm, (r(5), r(3, 4), r(4, 5)), 3 * 4 * 5),
        (torch.addmv, (r(3), r(3, 4), r(4)), 3 * 4),
        (torch.baddbmm, (r(2, 3, 5), r(2, 3, 4), r(2, 4, 5)), 2 * 3 * 4 * 5),
        (torch.addbmm, (r(3, 5), r(2, 3, 4), r(2, 4, 5)), 2 * 3 * 4 * 5),
        (lambda a, b, c: a.addmm_(b, c), (r(3, 5), r(3, 4), r(4, 5)), 3 * 4 * 5),
        (lambda a, b, c: a.baddbmm_(b, c), (r(2, 3, 5), r(2, 3, 4), r(2, 4, 5)), 2 * 3 * 4 * 5),
        (lambda a, b, c: torch.mm(a, b, out=c), (r(3, 4), r(4, 5), r(3, 5)), 3 * 4 * 5),
        (F.linear, (r(2, 3, 4), r(5, 4), r(5)), 2 * 3 * 4 * 5),
        (lambda a, b: torch.einsum("bijl,lk->bijk", a, b), (r(2, 3, 4, 5), r(5, 6)), 720),
        (lambda a, b: torch.tensordot(a, b, 2), (r(3, 4, 5), r(4, 5, 6)), 3 * 4 * 5 * 6),
        (F.bilinear, (r(2, 3), r(2, 4), r(5, 3, 4)), 2 * 5 * (3 * 4 + 4)),
    ],
)
def test_a_product(function, tensors, multiply_adds):
    assert count(function, *tensors) == (2 * multiply_adds, {"float32"})


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int32])
def test_the_dtype_is_that_of_the_operands(dtype):
    ones = torch.ones(3, 3, dtype=dtype)
    assert count(torch.mm, ones, ones) == (54, {str(dtype).removeprefix("torch.")})


def test_other_operators_cost_nothing():
    assert count(lambda x: torch.outer(x, x).softmax(-1).sum(), r(8)) == (0, set())


def test_composite_operators_in_inference_mode_are_taken_apart():
    def infer(x, w):
        with torch.inference_mode():
            return F.relu(F.linear(x, w))

    assert count(infer, r(2, 3, 4), r(5, 4)) == (2 * 2 * 3 * 4 * 5, {"float32"})


# --- convolutions: groups, strides, dilations and padding change the extents alone ---


def convolution_by_hand(x, weight, *, stride, padding, dilation):
    """Multiply-adds one output at a time: each sees its group's channels under the whole filter."""
    channels_out, channels_of_group, *filters = weight.shape
    spatial = [
        (extent + 2 * padding - dilation * (width - 1) - 1) // stride + 1
        for extent, width in zip(x.shape[2:], filters, strict=True)
    ]
    outputs = x.shape[0] * channels_out * math.prod(spatial)
    return outputs * channels_of_group * math.prod(filters)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 0, 1), (2, 1, 1), (1, 2, 2)])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_convolution(groups, stride, padding, dilation, rank):
    x, weight = r(2, 4, *(9, 8, 7)[:rank]), r(8, 4 // groups, *(3, 2, 3)[:rank])
    function = (F.conv1d, F.conv2d, F.conv3d)[rank - 1]
    flops, _ = count(
        lambda a, b: function(a, b, None, stride, padding, dilation, groups), x, weight
    )
    wanted = convolution_by_hand(x, weight, stride=stride, padding=padding, dilation=dilation)
    assert flops == 2 * wanted


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 0, 1), (2, 1, 1), (1, 2, 2)])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_transposed_convolution_sends_each_input_through_its_groups_filters(
    groups, stride, padding, dilation, rank
):
    x, weight = r(2, 4, *(9, 8, 7)[:rank]), r(4, 8 // groups, *(3, 2, 3)[:rank])
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]
    flops, _ = count(
        lambda a, b: function(a, b, None, stride, padding, 0, groups, dilation), x, weight
    )
    assert flops == 2 * x.numel() * (8 // groups) * math.prod(weight.shape[2:])


def test_a_depthwise_convolution_and_one_without_a_batch():
    assert count(lambda x, w: F.conv2d(x, w, groups=6), r(6, 5, 5), r(6, 1, 3, 3)) == (
        2 * 6 * 9 * 9, {"float32"},
    )  # fmt: skip


# --- attention and recurrent layers ---


def test_attention_costs_scores_and_weighted_sums():
    query, key, value = r(2, 4, 8, 16), r(2, 4, 10, 16), r(2, 4, 10, 16)
    assert count(F.scaled_dot_product_attention, query, key, value) == (
        2 * 2 * 4 * 8 * 10 * (16 + 16), {"float32"},
    )  # fmt: skip


@pytest.mark.parametrize(("rows", "columns"), [(8, 8), (5, 8)])
def test_causal_attention_costs_what_is_not_masked(rows, columns):
    given = r(2, 4, rows, 16), r(2, 4, columns, 16), r(2, 4, columns, 16)
    pairs = sum(column <= row for row in range(rows) for column in range(columns))
    flops, _ = count(lambda *a: F.scaled_dot_product_attention(*a, is_causal=True), *given)
    assert flops == 2 * 2 * 4 * pairs * (16 + 16)


def test_shared_heads_of_keys_meet_each_head_of_the_query():
    given = r(2, 4, 8, 16), r(2, 2, 8, 16), r(2, 2, 8, 16)
    flops, _ = count(lambda *a: F.scaled_dot_product_attention(*a, enable_gqa=True), *given)
    assert flops == 2 * 2 * 4 * 8 * 8 * (16 + 16)


@pytest.mark.parametrize(("layer", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
def test_a_recurrent_layer(layer, gates):
    flops, _ = count(layer(5, 8, 2), r(7, 3, 5))
    assert flops == 2 * 7 * 3 * gates * 8 * ((5 + 8) + (8 + 8))


class Calls:
    """What trace() needs of a reference."""

    def __init__(self, function):
        self.function = function

    def __call__(self, arguments, keywords, state):
        with torch.no_grad():
            return self.function(*arguments)


def test_a_transformer_layer_is_taken_apart():
    from kopt_torch.drawing import Draw

    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    x = r(3, 5, 16)
    calls, result = traced(Calls(layer), Draw(["x"], [x], {}), {})
    projections, attention, feed_forward = 4 * 16 * 16, 2 * 5 * 16, 2 * 16 * 32
    assert sum(call.flops for call in calls) == 2 * 15 * (projections + attention + feed_forward)
    assert torch.allclose(result, layer(x), atol=1e-5)
    assert torch.backends.mha.get_fastpath_enabled()


# --- in the signature of a reference ---


def test_the_trace_of_a_reference_has_operations(opened, model):
    trace = opened(model).signature.first.trace
    assert [(c.name, c.flops, c.dtype) for c in trace if c.flops] == [
        ("aten.addmm.default", 2 * 32 * 24 * 16, "float32")
    ]


def test_several_results_have_their_names_in_the_trace(opened):
    reference = opened(
        "def f(x, y):\n    s = x + y\n    return s, s.exp(), x",
        InputSpec(name="x", shape=(6, 10)), InputSpec(name="y", shape=(6, 10)),
    )  # fmt: skip
    assert [(c.inputs, c.outputs) for c in reference.signature.first.trace] == [
        (("x", "y"), ("out0",)), (("out0",), ("out1",)),
    ]  # fmt: skip

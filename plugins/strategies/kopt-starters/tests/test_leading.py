"""Generated kernels at other leading extents: right there, or refused where that is not so."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kopt_starters.families.pointwise import Pointwise
from kopt_starters.families.reductions import Reductions

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
F = torch.nn.functional
CHECK = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("checking.py"))))
ALL = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("test_reductions.py"))))

LED = {
    "x.sum(1)": [(6, 19, 5)],
    "x.mean((1, 2))": [(6, 4, 7)],
    "torch.linalg.vector_norm(x, 1, dim=2)": [(6, 3, 19)],
    "torch.logsumexp(x, 1)": [(6, 19)],
    "x.reshape(-1, 5).sum(-1)": [(6, 3, 5)],
    "x.var(1)": [(6, 19)],
    "x.squeeze(1).sum(-1)": [(6, 1, 19)],
    "F.log_softmax(x, 1)": [(6, 37)],
    "F.softmax(x, 1)": [(6, 7, 5)],
    "x / torch.norm(x, p=2, dim=1, keepdim=True)": [(6, 37)],
    "(x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-5)": [(6, 19)],
    "F.instance_norm(x, weight=y, bias=z)": [(6, 3, 5, 7), (3,), (3,)],
    "F.group_norm(x, 2, y, z)": [(6, 4, 3, 5), (4,), (4,)],
    "F.layer_norm(x, (3, 5), y, z)": [(6, 3, 5), (3, 5), (3, 5)],
    "(x + y).sum(1) * z": [(6, 5, 3), (5, 1), (6, 3)],
    "F.cosine_similarity(x, y, dim=1)": [(6, 19), (6, 19)],
    "F.triplet_margin_loss(x, y, z, reduction='none')": [(6, 19)] * 3,
    "(x.amax(2) * y).sum(1)": [(6, 5, 7), (6, 5)],
}
"""Bodies with shapes; tensors that begin with 6 have the leading axis."""
FIXED = {
    "x.sum(0)": [(6, 5)],
    "x.mean()": [(6, 5)],
    "x / torch.norm(x)": [(6, 5)],
    "F.mse_loss(x, y)": [(6, 5), (6, 5)],
    "F.batch_norm(x, None, None, training=True)": [(6, 4, 5)],
    "F.softmax(x, 0)": [(6, 5)],
    "x.sum(1) / x.shape[0]": [(6, 5)],
    "x.sum(1) * (1 / x.numel())": [(6, 5)],
    "x.view(2, 3, 5).sum(1)": [(6, 5)],
    "x.t().sum(1)": [(6, 5)],
    "x.squeeze().sum(1)": [(6, 1, 5)],
    "x.squeeze(0).sum(1)": [(6, 5)],
    "(x[:, None] - x[None, :]).abs().sum(2)": [(6, 5)],
    "x.unsqueeze(1).expand(6, x.shape[0], 5).sum(1)": [(6, 5)],
    "x.sum(1) / (x.shape[0] * x.shape[2])": [(6, 4, 5)],
}
"""Bodies whose kernels hold for their own leading extent alone."""


def proposed(graph_of, body, shapes):
    """Return a kernel of each structure, whether it suits the shapes or not."""
    return ALL.candidates(ALL.graph_for(graph_of, body, shapes))


def small(candidate):
    """Return knobs for tiles that do not hold all of a row, and do not divide the rows."""
    found = {
        n: k.choices[0] for n, k in candidate.knobs.items() if n in ("BLOCK", "PARTS", "PIECE")
    }
    return found | ({"ROWS": 4} if "ROWS" in candidate.knobs else {})


def at(extent, shapes):
    """Return arguments with another leading extent where the shapes begin with 6."""
    changed = [(extent, *shape[1:]) if shape[:1] == (6,) else shape for shape in shapes]
    return [ALL.draw(shape, seed=seed) for seed, shape in enumerate(changed)]


@pytest.mark.parametrize("body", LED)
def test_reductions_hold_for_fewer_rows(graph_of, body):
    shapes = LED[body]
    found = proposed(graph_of, body, shapes)
    function = ALL.reference(body, len(shapes))
    assert found
    for candidate in found:
        for extent in (1, 5, 6):
            arguments = at(extent, shapes)
            exact = function(*(a.double() for a in arguments))
            got = CHECK.interpreted(candidate, *arguments, **small(candidate))
            CHECK.assert_accurate(got, exact, units=16)
        got = CHECK.interpreted(candidate, *at(0, shapes))
        assert (got.shape, got.dtype) == ((0, *exact.shape[1:]), torch.float32)


def refuses(candidate, shapes):
    """Check what is refused: more rows, rows that differ, another extent than the first."""
    refused = [[(7, *shape[1:]) if shape[:1] == (6,) else shape for shape in shapes]]
    for position, shape in enumerate(shapes):
        for dim in range(len(shape)):
            other = (*shape[:dim], shape[dim] + 1, *shape[dim + 1 :])
            refused.append([*shapes[:position], other, *shapes[position + 1 :]])
        refused.append([*shapes[:position], (1, *shape), *shapes[position + 1 :]])
        if shape:
            refused.append([*shapes[:position], shape[1:], *shapes[position + 1 :]])
    led = [position for position, shape in enumerate(shapes) if shape[:1] == (6,)]
    for position in led if len(led) > 1 else ():
        other = (5, *shapes[position][1:])
        refused.append([*shapes[:position], other, *shapes[position + 1 :]])
    for each in refused:
        with pytest.raises(ValueError, match="only"):
            CHECK.interpreted(candidate, *(torch.randn(shape) for shape in each))


@pytest.mark.parametrize("body", LED)
def test_reductions_refuse_all_else(graph_of, body):
    for candidate in proposed(graph_of, body, LED[body]):
        refuses(candidate, LED[body])


@pytest.mark.parametrize("body", FIXED)
def test_reductions_that_hold_for_their_own_leading_extent_alone(graph_of, body):
    shapes = FIXED[body]
    found = proposed(graph_of, body, shapes)
    assert found
    for candidate in found:
        with pytest.raises(ValueError, match="only"):
            CHECK.interpreted(candidate, *at(5, shapes))


@pytest.mark.parametrize("body", ["torch.argmax(x, dim=1)", "torch.argmin(x, dim=2)"])
def test_positions_in_fewer_rows(graph_of, body):
    found = proposed(graph_of, body, [(6, 7, 9)])
    assert found
    for candidate in found:
        for extent in (1, 5):
            (x,) = at(extent, [(6, 7, 9)])
            assert torch.equal(CHECK.interpreted(candidate, x), ALL.reference(body)(x))


def test_rows_between_groups_of_16_bytes_where_fewer_of_them_end_in_between(graph_of):
    """Of 8 rows of 37 all elements are whole groups, of 5 they are not."""
    body = "F.log_softmax(x, 1)"
    found = proposed(graph_of, body, [(8, 37)])
    waiting = [candidate for candidate in found if "near = at" in candidate.source]
    assert waiting
    for candidate in waiting:
        for extent in (1, 5, 8):
            x = ALL.draw((extent, 37))
            got = CHECK.interpreted(candidate, x)
            CHECK.assert_accurate(got, F.log_softmax(x.double(), 1), units=16)


@pytest.mark.parametrize("body", ["F.group_norm(x, 8)", "F.softmax(x, 3)", "x.sum(1)"])
def test_the_own_shape_compiles_as_before_and_so_do_fewer_rows(graph_of, body):
    shape = (112, 64, 512, 512)
    for candidate in Reductions().propose(ALL.graph_for(graph_of, body, [shape]), CHECK.TARGET):
        own = entry_with_numbers(candidate.source, shape[0])
        fixed = candidate.model_copy(update={"source": own}) if own else candidate
        x = torch.empty(shape, device="meta")
        (before,), (now,) = CHECK.compiled(fixed, [x]), CHECK.compiled(candidate, [x])
        assert now.asm["ptx"] == before.asm["ptx"]
        assert CHECK.compiled(candidate, [x[:13]])


def entry_with_numbers(source, extent):
    """Return a kernel whose launcher has the extent's number in place of its variable."""
    return re.sub(r"\b_n\b(?! =)", str(extent), source)


SPREAD = {
    "x * y + z": [(6, 5, 8), (5, 1), (6, 1, 1)],
    "torch.tanh(x * y + z)": [(6, 5, 67), (5, 1), ()],
    "x.transpose(1, 2) + y": [(6, 4, 5), (6, 5, 4)],
    "F.prelu(x, y)": [(6, 5, 7), (5,)],
    "(x.reshape(-1, 2, 4) * y).reshape(-1, 4) + z": [(6, 8), (2, 4), (4,)],
    "F.batch_norm(x, y, z * z, training=False)": [(6, 3, 5, 7), (3,), (3,)],
    "x.unsqueeze(1) - y.unsqueeze(0)": [(6, 3), (4, 3)],
    "F.hardtanh(x).to(torch.float16) * y": [(6, 70), (70,)],
}
TIED = {
    "x / x.shape[0] + y": [(6, 5), (5,)],
    "x.t() + y": [(6, 5), (5, 1)],
    "x.repeat(2, 1) + y": [(6, 5), (5,)],
    "x.unsqueeze(1) - x.unsqueeze(0)": [(6, 3)],
    "x.unsqueeze(1).expand(6, x.shape[0], 5) + y": [(6, 5), (5,)],
    "y.expand(x.shape[0], 5) * 2 + x[0]": [(6, 5), (5,)],
    "(x.view(3, 2, 5) * y)": [(6, 5), (5,)],
}


def chains(graph_of, body, shapes):
    return list(Pointwise().propose(ALL.graph_for(graph_of, body, shapes), CHECK.TARGET))


@pytest.mark.parametrize("body", SPREAD)
def test_element_wise_chains_hold_for_fewer_rows_and_refuse_all_else(graph_of, body):
    shapes = SPREAD[body]
    function = ALL.reference(body, len(shapes))
    found = chains(graph_of, body, shapes)
    assert found
    for candidate in found:
        for extent in (0, 1, 5, 6):
            arguments = at(extent, shapes)
            exact = function(*(a.double() for a in arguments)).double()
            got = CHECK.interpreted(candidate, *arguments, **small(candidate))
            assert got.shape == exact.shape
            torch.testing.assert_close(got.double(), exact, rtol=1e-3, atol=1e-5)
        refuses(candidate, shapes)
        arguments = at(6, shapes)
        assert CHECK.compiled(candidate, arguments) and CHECK.compiled(candidate, at(5, shapes))


@pytest.mark.parametrize("body", TIED)
def test_chains_that_hold_for_their_own_leading_extent_alone(graph_of, body):
    for candidate in chains(graph_of, body, TIED[body]):
        with pytest.raises(ValueError, match="only"):
            CHECK.interpreted(candidate, *at(5, TIED[body]))


SET_APART = {
    "(torch.relu(x) + 1.0)[None]": {"x": (64, 48)},
    "torch.softmax(x, 1)[None]": {"x": (64, 48)},
    "x.mean(1)[None]": {"x": (64, 48)},
    "torch.cumsum(x, 1)[None]": {"x": (64, 48)},
    "torch.relu(x @ w)[None] * 0.3": {"x": (64, 48), "w": (48, 32)},
    "torch.relu(F.conv2d(x, w)).view(1, -1, 6, 6) * 0.3": {"x": (64, 4, 8, 8), "w": (8, 4, 3, 3)},
    "F.instance_norm(F.conv2d(x, w) * 2.0) * 0.3": {"x": (64, 4, 8, 8), "w": (8, 4, 3, 3)},
    "F.max_pool2d(x, 2)[None] * 0.3": {"x": (64, 4, 8, 8)},
    "F.conv_transpose2d(x, w, stride=2)[None] + 1.0": {"x": (64, 4, 8, 8), "w": (4, 8, 3, 3)},
}
"""Results with a dimension of one before what is the leading axis of the arguments."""


@pytest.mark.parametrize("language", ["triton", "cuda", "cpp"])
@pytest.mark.parametrize("body", SET_APART)
def test_a_dimension_of_one_may_come_first(signature_in_a_run, propose, body, language):
    """It was an AssertionError, and with it nothing was proposed for a model with InstanceNorm."""
    shapes = SET_APART[body]
    signature = signature_in_a_run(f"def f({', '.join(shapes)}): return {body}", **shapes)
    found = propose(signature, language, structures=99)
    assert found or language != "triton"
    for candidate in found:
        assert candidate.source

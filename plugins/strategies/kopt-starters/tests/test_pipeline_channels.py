"""Reductions over channels in a convolution's own kernel: against float64, and what is refused."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kopt_starters.pipeline.channels import ChannelReductions
from kopt_starters.pipeline.tidying import tidied

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

F = torch.nn.functional
CHECK = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("checking.py"))))

DENSE = {"x": (2, 3, 7, 6), "w": (18, 3, 3, 2), "b": (18,), "c": (18, 1, 1)}
PHASES = {"x": (2, 18, 4, 3), "w": (18, 5, 3, 3), "b": (5,), "c": (5, 1, 1)}
VOLUME = {"x": (1, 3, 4, 5, 6), "w": (7, 3, 2, 3, 2), "b": (7,), "c": (7, 1, 1, 1)}
FUSED = {
    "torch.tanh(torch.min(F.conv2d(x, w, b) * c, dim=1, keepdim=True)[0])": DENSE,
    "torch.sigmoid(torch.softmax(F.conv2d(x, w, b), 1) + c)": DENSE,
    "F.relu(torch.logsumexp(F.conv2d(x, w, b) + c, 1, True))": DENSE,
    "torch.max(F.gelu(F.conv_transpose2d(x, w, b, stride=2, padding=1)), 1)[0]": PHASES,
    "torch.softmax(F.conv_transpose2d(x, w, stride=2, padding=1) + b.view(1, 5, 1, 1), 1) * c": PHASES,
    "F.conv3d(x, w, b).sum(1) * 0.5": VOLUME,
}  # fmt: skip
REFUSED = {
    "torch.sum(F.conv2d(x, w, b), 2)": DENSE,
    "torch.sum(F.conv2d(x, w, b), (1, 2))": DENSE,
    "torch.max(F.conv2d(x, w, b), 1)[1]": DENSE,
    "F.relu(F.conv2d(x, w, b))": DENSE,
    "torch.cumsum(F.conv2d(x, w, b), 1)": DENSE,
    "F.conv2d(x, w, groups=2).sum(1)": {"x": (2, 6, 7, 6), "w": (18, 3, 3, 2)},
    "F.conv2d(x, w).sum(1)": {"x": (2, 3, 7, 6), "w": (130, 3, 3, 2)},
}


def propose(graph_of, body, shapes, dtype="float32"):
    source = f"def reference({', '.join(shapes)}): return {body}"
    graph = tidied(graph_of(source, dtype=dtype, **shapes))
    return list(ChannelReductions().propose(graph, CHECK.TARGET))


@pytest.mark.parametrize("body", FUSED)
def test_results_are_those_of_float64(graph_of, body):
    shapes = FUSED[body]
    generator = torch.Generator().manual_seed(3)
    arguments = [torch.randn(shape, generator=generator) for shape in shapes.values()]
    exact = eval(f"lambda {', '.join(shapes)}: {body}", {"F": F, "torch": torch})(
        *(value.double() for value in arguments)
    )
    candidates = propose(graph_of, body, shapes)
    assert candidates
    for candidate in candidates:
        assert candidate.knobs["CHANNELS"].choices == (candidate.chosen["CHANNELS"],)
        got = CHECK.interpreted(candidate, *arguments, PIXELS=candidate.knobs["PIXELS"].choices[0])
        CHECK.assert_accurate(got, exact, 200)


def test_a_nan_among_channels_wins(graph_of):
    body = "torch.min(F.conv2d(x, w, b), 1)[0]"
    candidate = propose(graph_of, body, {**DENSE})[0]
    arguments = [torch.randn(shape) for shape in DENSE.values()]
    arguments[2][4] = float("nan")
    assert CHECK.interpreted(candidate, *arguments).isnan().all()


def test_other_shapes_are_refused(graph_of):
    candidate = propose(graph_of, "F.conv2d(x, w, b).sum(1) + c.sum()", DENSE)
    assert not candidate
    candidate = propose(graph_of, "F.conv2d(x, w, b).sum(1)", {**DENSE})[0]
    arguments = [torch.randn(shape) for shape in DENSE.values()]
    with pytest.raises(ValueError, match="only"):
        CHECK.interpreted(candidate, arguments[0][:, :, 1:], *arguments[1:])


@pytest.mark.parametrize("body", REFUSED)
def test_what_is_no_reduction_over_channels_is_left(graph_of, body):
    assert not propose(graph_of, body, REFUSED[body])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_it_compiles_with_as_many_channels_as_fit(graph_of, dtype):
    shapes = {"x": (4, 64, 66, 66), "w": (128, 64, 3, 3), "b": (128,)}
    given = [torch.empty(s, device="meta", dtype=getattr(torch, dtype)) for s in shapes.values()]
    candidate = propose(graph_of, "torch.softmax(F.conv2d(x, w, b), 1)", shapes, dtype)[0]
    kernels = CHECK.compiled(candidate, given)
    assert kernels and all(kernel.metadata.shared <= 227 << 10 for kernel in kernels)

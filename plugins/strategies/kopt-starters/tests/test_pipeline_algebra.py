"""Means taken before products and convolutions: against float64, and only where that is the same."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kopt_starters.families import FAMILIES
from kopt_starters.families.pipeline import Pipeline
from kopt_starters.pipeline.algebra import averaged_first
from kopt_starters.pipeline.tidying import tidied

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

F = torch.nn.functional
CHECK = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("checking.py"))))
WHOLE = tuple(family for family in FAMILIES if family.name != "pipeline")

LINEAR = {"x": (7, 33), "w": (36, 33), "b": (36,), "c": (36,)}
SWAPPED = {
    "torch.sum(F.linear(x, w) / 2, 1, True) * 1.5": LINEAR,
    "torch.mean(2.0 * F.linear(x, w, b) - c, 1)": LINEAR,
    "torch.logsumexp(torch.sum(F.linear(x, w, b), 1, True), 1)": LINEAR,
    "torch.max(F.gelu(F.avg_pool1d(F.linear(x, w, b).unsqueeze(1), 4).squeeze(1)), 1)[0]": LINEAR,
    "F.conv_transpose2d(x, w, b, stride=2, dilation=3).mean((2, 3), True) + c": {
        "x": (2, 3, 5, 4), "w": (3, 5, 2, 3), "b": (5,), "c": (5, 1, 1)},
    "F.batch_norm(F.conv_transpose3d(x, w) * 2.0, m, v * v, g, c).mean((2, 3, 4))": {
        "x": (2, 3, 3, 4, 2), "w": (3, 5, 2, 1, 3), "m": (5,), "v": (5,), "g": (5,), "c": (5,)},
    "torch.sigmoid(F.avg_pool2d(F.conv2d(x, w, b), 4)).sum((1, 2, 3))": {
        "x": (2, 3, 15, 18), "w": (5, 3, 3, 2), "b": (5,)},
    "F.avg_pool2d(F.conv2d(x, w, b, padding=2) * c, (2, 3)) - c": {
        "x": (2, 3, 9, 8), "w": (5, 3, 3, 3), "b": (5,), "c": (5, 1, 1)},
    "F.avg_pool3d(F.conv_transpose3d(x, w, b, stride=2, padding=1) * c, 2) + c": {
        "x": (2, 3, 5, 4, 3), "w": (3, 5, 3, 3, 3), "b": (5,), "c": (5, 1, 1, 1)},
    "F.avg_pool2d(F.conv_transpose2d(x, w, stride=(2, 3), padding=(1, 2)), (2, 3))": {
        "x": (2, 3, 5, 4), "w": (3, 5, 4, 5)},
    "(F.conv_transpose2d(x, w, b, padding=1) + c).mean(2)": {
        "x": (2, 3, 8, 5), "w": (3, 5, 3, 2), "b": (5,), "c": (5, 1, 1)},
    "torch.tanh(F.conv_transpose3d(x, w, b, stride=(1, 2, 1), padding=(0, 1, 1)).mean((2, 4)))": {
        "x": (2, 3, 5, 3, 7), "w": (3, 5, 2, 3, 3), "b": (5,)},
    "F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1).mean((2, 3), True) * 0.5": {
        "x": (2, 3, 7, 6), "w": (3, 5, 3, 3), "b": (5,)},
    "F.conv2d(x, w, b, padding=(2, 1)).mean((2, 3))": {
        "x": (2, 3, 9, 8), "w": (5, 3, 3, 2), "b": (5,)},
}  # fmt: skip
KEPT = {
    "a maximum": ("F.linear(x, w, b).amax(1)", LINEAR),
    "not along what is multiplied": ("F.linear(x, w, b).mean(0)", LINEAR),
    "not linear": ("torch.relu(F.linear(x, w, b)).mean(1)", LINEAR),
    "scaled by column": ("(F.linear(x, w, b) * c).mean(1)", LINEAR),
    "divided by it": ("(1.0 / F.linear(x, w, b)).mean(1)", LINEAR),
    "needed twice": ("(lambda y: y - y.mean(1, True))(F.linear(x, w, b))", LINEAR),
    "no fewer taps than places": ("F.conv_transpose2d(x, w, padding=1).mean((2, 3))",
                                  {"x": (2, 3, 3, 3), "w": (3, 5, 3, 3)}),
    "over channels": ("F.conv_transpose2d(x, w, padding=1).mean(1)",
                      {"x": (2, 3, 5, 4), "w": (3, 5, 3, 3)}),
    "a stride": ("F.conv2d(x, w, stride=2).mean((2, 3))",
                 {"x": (2, 3, 9, 8), "w": (5, 3, 3, 3)}),
    "windows overlap": ("F.avg_pool2d(F.conv2d(x, w), 3, stride=2)",
                        {"x": (2, 3, 9, 8), "w": (5, 3, 3, 3)}),
    "a padded pooling": ("F.avg_pool2d(F.conv2d(x, w), 2, padding=1)",
                         {"x": (2, 3, 9, 8), "w": (5, 3, 3, 3)}),
    "strides apart": ("F.avg_pool2d(F.conv2d(x, w, stride=2), 2)",
                      {"x": (2, 3, 9, 8), "w": (5, 3, 3, 3)}),
    "a largest": ("F.max_pool2d(F.conv2d(x, w), 2)", {"x": (2, 3, 9, 8), "w": (5, 3, 3, 3)}),
}  # fmt: skip


def graph_for(graph_of, body, shapes, dtype="float32"):
    return graph_of(f"def reference({', '.join(shapes)}): return {body}", dtype=dtype, **shapes)


@pytest.mark.parametrize("body", SWAPPED)
def test_results_are_those_of_float64(graph_of, body):
    shapes = SWAPPED[body]
    graph = graph_for(graph_of, body, shapes)
    found = Pipeline(WHOLE).propose(graph, CHECK.TARGET)
    assert averaged_first(tidied(graph)) is not None
    candidate = found[0]
    generator = torch.Generator().manual_seed(3)
    arguments = [torch.randn(shape, generator=generator) for shape in shapes.values()]
    got = CHECK.interpreted(candidate, *arguments)
    reference = eval(f"lambda {', '.join(shapes)}: {body}", {"F": F, "torch": torch})
    CHECK.assert_accurate(got, reference(*(value.double() for value in arguments)), 100)


@pytest.mark.parametrize("case", KEPT)
def test_what_is_not_the_same_is_left(graph_of, case):
    body, shapes = KEPT[case]
    graph = graph_for(graph_of, body, shapes)
    assert graph is not None and averaged_first(tidied(graph)) is None

"""Products with what follows them, at other leading extents."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kopt_starters.families.products import Products
from kopt_starters.families.vendor import Vendor

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
F = torch.nn.functional
CHECK = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("checking.py"))))
PRODUCTS = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("test_products.py"))))

LED = {
    "F.gelu(a @ b) * c + d": [(7, 19), (19, 33), (33,), (7, 33)],
    "torch.relu(F.linear(a, b, c))": [(7, 5, 19), (23, 19), (23,)],
    "torch.tanh(F.linear(a, b, c) * 0.3)": [(7, 5, 19), (23, 19), (23,)],
    "torch.sigmoid(torch.bmm(a, b.transpose(1, 2))) * c": [(7, 17, 19), (7, 23, 19), (23,)],
    "torch.relu(torch.bmm(a, b) * c + d)": [(7, 17, 19), (7, 19, 23), (7, 1, 1), (17, 1)],
    "torch.tanh(torch.addmm(c, a, b)) * 0.3": [(7, 19), (19, 33), (33,)],
    "torch.relu(a @ b + c).permute(0, 2, 1)": [(7, 5, 8), (8, 9), (5, 9)],
    "torch.relu(torch.mv(a, b)) * 0.3": [(7, 263), (263,)],
}
"""Expressions with shapes; tensors that begin with 7 have the rows, or the batches."""
FIXED = {
    "torch.relu(a @ b) * c": [(7, 19), (19, 33), (7, 1)],
    "torch.relu(a @ b) / a.shape[0]": [(7, 19), (19, 33)],
    "torch.relu(a.T @ b)": [(7, 19), (7, 33)],
    "torch.relu((a @ b).T) * 0.3": [(7, 19), (19, 33)],
    "torch.relu(a @ a.T) * 0.3": [(7, 19)],
    "F.relu(a.view(-1, 19) @ b) * 0.3": [(7, 95), (19, 33)],
}
"""Those whose kernels hold for their own leading extent alone."""


def proposed(graph_of, expression, shapes):
    named = dict(zip("abcd", shapes, strict=False))
    graph = graph_of(f"def reference({', '.join(named)}): return {expression}", **named)
    targets = [PRODUCTS.target(0), PRODUCTS.target(132)]
    found = [each for target in targets for each in Products().propose(graph, target)]
    return [*found, *Vendor().propose(graph, CHECK.TARGET)]


def at(extent, shapes):
    return PRODUCTS.drawn(*((extent, *s[1:]) if s[0] == 7 else s for s in shapes))


@pytest.mark.parametrize("expression", LED)
def test_what_follows_a_product_holds_for_fewer_rows(graph_of, expression):
    shapes = LED[expression]
    found = proposed(graph_of, expression, shapes)
    assert found
    for candidate in found:
        for extent in (1, 5, 7):
            PRODUCTS.check(candidate, expression, at(extent, shapes), **PRODUCTS.small(candidate))
        got = CHECK.interpreted(candidate, *at(0, shapes), **PRODUCTS.small(candidate))
        exact = PRODUCTS.evaluated(expression, at(7, shapes))
        assert got.shape == (0, *exact.shape[1:])


@pytest.mark.parametrize("expression", LED)
def test_what_differs_otherwise_is_refused(graph_of, expression):
    shapes = LED[expression]
    led = [position for position, shape in enumerate(shapes) if shape[0] == 7]
    refused = [[(8, *s[1:]) if s[0] == 7 else s for s in shapes]]
    for position, shape in enumerate(shapes):
        others = [(*shape[:-1], shape[-1] + 1), (1, *shape)]
        others += [(6, *shape[1:])] if position in led and len(led) > 1 else []
        refused += [[*shapes[:position], each, *shapes[position + 1 :]] for each in others]
    for candidate in proposed(graph_of, expression, shapes):
        for each in refused:
            with pytest.raises(ValueError, match="only"):
                CHECK.interpreted(candidate, *PRODUCTS.drawn(*each))


@pytest.mark.parametrize("expression", FIXED)
def test_products_that_hold_for_their_own_leading_extent_alone(graph_of, expression):
    """A column beside the rows is read without a mask, beyond the last row too."""
    shapes = FIXED[expression]
    found = [c for c in proposed(graph_of, expression, shapes) if c.language == "triton"]
    assert found
    for candidate in found:
        with pytest.raises(ValueError, match="only"):
            CHECK.interpreted(candidate, *at(5, shapes))


@pytest.mark.parametrize("expression", [*LED][:4])
def test_it_compiles_for_sm_90(graph_of, expression):
    for candidate in proposed(graph_of, expression, LED[expression]):
        assert CHECK.compiled(candidate, at(7, LED[expression]))

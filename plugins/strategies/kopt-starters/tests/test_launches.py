"""Launchers that keep what Triton compiled, and launch it again for other tensors of the same kinds."""

from __future__ import annotations

import gc
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import torch
import triton

from kopt_starters.families.convolution import ConvolutionFamily
from kopt_starters.families.products import Products
from kopt_starters.rendering import text

CHECK = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("checking.py"))))
CASES = {
    "torch.conv_transpose2d(x, w, stride=2, padding=1)": {
        "x": (2, 31, 9, 11), "w": (31, 33, 3, 3)},
    "torch.conv2d(x, w, b)": {"x": (2, 40, 9, 11), "w": (33, 40, 3, 3), "b": (33,)},
    "x @ w": {"x": (1040, 132), "w": (132, 1030)},
    "torch.relu(x.T @ w)": {"x": (133, 1040), "w": (133, 1030)},
    "x @ w  # of a short depth": {"x": (4096, 32), "w": (32, 4096)},
}  # fmt: skip


def helpers():
    found = {"torch": torch, "triton": triton}
    exec(text("launches.py.txt"), found)
    return found


def test_kinds_differ_by_what_is_compiled_for():
    kind, numbers = helpers()["_kind"], torch.zeros(64)
    assert kind(numbers[:32]) == kind(numbers[32:])
    assert (
        len({kind(numbers), kind(numbers[1:]), kind(numbers.half()), kind(numbers.to("meta"))}) == 4
    )
    assert kind(0.5) == kind(2.0) != kind(2)
    assert kind(16) != kind(17)
    assert kind(None) is None


def drawn(shapes, seed):
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


@pytest.mark.gpu
@pytest.mark.parametrize("expression", CASES)
def test_later_launches_are_right_for_other_tensors(graph_of, monkeypatch, expression):
    """Also for those that begin elsewhere, which other kernels are compiled for, and in turns."""
    monkeypatch.setattr("kopt_starters.families.products.halving_pays", lambda sizes: True)
    shapes = CASES[expression]
    graph = graph_of(f"def reference({', '.join(shapes)}): return {expression}", **shapes)
    families = (ConvolutionFamily(), Products())
    candidates = [each for family in families for each in family.propose(graph, CHECK.TARGET)]
    kept = [each for each in candidates if "class _Launch" in each.source]
    assert kept
    for candidate in kept:
        run = CHECK.entry_of(candidate)
        for seed, shifted in ((1, False), (2, False), (3, True), (4, False), (5, True)):
            given = drawn(shapes, seed)
            exact = eval(expression, {"torch": torch, **{n: t.double() for n, t in given.items()}})
            placed = [elsewhere(each) if shifted else each.cuda() for each in given.values()]
            got = run(*placed, **candidate.chosen).cpu()
            units = 16 if "PRECISION" not in candidate.knobs else 1 << 15
            CHECK.assert_accurate(got, exact, units)
        assert any(each.again is not None for each in launches_of(run))


def launches_of(run):
    return [each for each in gc.get_objects() if type(each) is run.__globals__["_Launch"]]


def elsewhere(tensor):
    """Return a copy on the GPU that begins 4 bytes after a multiple of 16."""
    memory = torch.empty(tensor.numel() + 1, device="cuda")[1:]
    return memory.copy_(tensor.flatten()).view(tensor.shape)

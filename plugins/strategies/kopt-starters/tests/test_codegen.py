"""Epilogues of heavy operators: what can be fused, and that the fused lines compute it."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kopt_starters.codegen import Epilogue, NotCoveredError, epilogue, helpers_for
from kopt_starters.codegen.axes import Axis, flat, fresh, merged, refit, strides_of

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
F = torch.nn.functional
CHECK = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("checking.py"))))

KERNEL = """
import torch
import triton
import triton.language as tl
{helpers}

@triton.jit
def _tile(y, out{parameters}, M: tl.constexpr, N: tl.constexpr):
    m, n = tl.arange(0, 32), tl.arange(0, 16)
    inside = (m < M)[:, None] & (n < N)[None, :]
    acc = tl.load(y + m[:, None] * N + n[None, :], mask=inside, other=0).to(tl.float32)
{lines}
    tl.store(out + {offset}, {variable}.to(out.dtype.element_ty), mask=inside)


def run(y, {arguments}):
    out = torch.empty({shape}, dtype=torch.{dtype}, device=y.device)
    _tile[(1,)](y, out{given}, M=y.shape[0], N=y.shape[1])
    return out
"""
FUSED = {
    "F.relu(x @ w + b)": {"b": (5,)},
    "(x @ w) * 0.5 + c": {"c": (7, 5)},
    "F.gelu((x @ w - b) * c)": {"b": (7, 1), "c": (5,)},
    "(x @ w).t() + b": {"b": (7,)},
    "torch.tanh(x @ w).view(7, 1, 5).expand(7, 1, 5) * b": {"b": (1, 5)},
    "(x @ w).reshape(35) * b": {"b": (35,)},
    "(x @ w + b).to(torch.float16)": {"b": (5,)},
    "(lambda y: y * torch.sigmoid(y))(x @ w)": {},
    "x @ w": {},
}
NOT_FUSED = {
    "(x @ w).sum(-1)": {},
    "(x @ w) + (x @ w).t()": {"x": (5, 4)},
    "torch.softmax(x @ w, -1)": {},
    "(x @ w).expand(3, 7, 5) + 1": {},
    "(x @ w) + x.sum()": {},
    "torch.cat([x @ w, x @ w])": {},
    "(x @ w)[1:] + 1": {},
}


def heavy(graph):
    (node,) = [node for node in graph.nodes if node.operator == "mm"][-1:]
    return node.output


def graph_for(graph_of, body, more):
    shapes = {"x": (7, 4), "w": (4, 5), **more}
    return graph_of(f"def f({', '.join(shapes)}): return {body}", **shapes)


def write(found: Epilogue) -> SimpleNamespace:
    lines, variable = found.lines("acc", ["m[:, None]", "n[None, :]"], "inside")
    extra, scalars = found.parameters, found.scalars
    text = KERNEL.format(
        helpers=found.helpers(lines),
        parameters="".join(f", {name}" for name in [*extra, *scalars]),
        lines="\n".join(f"    {line}" for line in lines), variable=variable,
        offset=f"({found.offset(['m[:, None]', 'n[None, :]'])})",
        arguments=", ".join(dict.fromkeys([*extra.values(), *scalars.values()])),
        shape=found.result.shape, dtype=found.result.dtype,
        given="".join(f", {name}" for name in [*extra.values(), *scalars.values()]),
    )  # fmt: skip
    return SimpleNamespace(source=text, entry="run", structure="e", chosen={})


@pytest.mark.parametrize("body", FUSED)
def test_what_follows_is_fused(graph_of, body):
    more = FUSED[body]
    graph = graph_for(graph_of, body, more)
    found = epilogue(graph, heavy(graph))
    assert found is not None
    assert found.identity is (body == "x @ w")
    candidate = write(found)
    x, w = torch.randn(7, 4), torch.randn(4, 5)
    given = {name: torch.randn(shape) for name, shape in more.items()}
    extra = [given[name] for name in found.parameters.values()]
    got = CHECK.interpreted(candidate, x @ w, *extra)
    names = ["x", "w", *given]
    exact = eval(f"lambda {', '.join(names)}: {body}", {"torch": torch, "F": F})
    expected = exact(*(v.double() for v in (x, w, *given.values())))
    torch.testing.assert_close(got.double(), expected.double(), rtol=1e-3 if "16" in body else 1e-5,
                               atol=1e-5)  # fmt: skip


def test_parameters_are_not_read_as_tiles(graph_of):
    graph = graph_for(graph_of, "F.gelu(x @ w + b) * c + d", {"b": (5,), "c": (7, 1), "d": (7, 5)})
    candidate = write(epilogue(graph, heavy(graph)))
    arguments = [torch.empty(shape, device="meta") for shape in ((7, 5), (5,), (7, 1), (7, 5))]
    (kernel,) = CHECK.compiled(candidate, arguments)
    loads = [line for line in kernel.asm["ttgir"].splitlines() if "tt.load" in line]
    tiles = [line for line in loads if "tensor<32x16x" in line]
    assert (len(loads), len(tiles)) == (4, 2)


@pytest.mark.parametrize("body", NOT_FUSED)
def test_what_follows_is_more_than_element_wise(graph_of, body):
    graph = graph_for(graph_of, body, NOT_FUSED[body])
    assert epilogue(graph, heavy(graph)) is None


def test_a_result_of_another_operator_is_no_epilogue_of_this_one(graph_of):
    graph = graph_for(graph_of, "(x @ w) * (x @ (w * 2))", {})
    assert epilogue(graph, heavy(graph)) is None


def test_what_an_epilogue_reads(graph_of):
    graph = graph_for(graph_of, "x @ w * b + c", {"b": (5,), "c": (5,)})
    found = epilogue(graph, heavy(graph))
    assert found.reads == {"b", "c"}
    assert found.parameters == {"b_ptr": "b", "c_ptr": "c"}


def test_axes_are_split_where_a_reshape_splits_them():
    places = fresh((6, 4))
    assert [[a.extent for a in dim] for dim in refit(flat(places), (2, 3, 4))] == [[2], [3], [4]]
    assert [axis.extent for axis in flat(places)] == [2, 3, 4]
    assert [len(dim) for dim in refit(flat(places), (24, 1))] == [3, 0]
    with pytest.raises(NotCoveredError):
        refit(flat(fresh((6, 4))), (8, 3))


def test_strides_and_merged_axes():
    n, c, h = axes = Axis(2), Axis(3), Axis(5)
    whole = strides_of(((n,), (c,), (h,)), (2, 3, 5))
    assert whole == {n: 15, c: 5, h: 1}
    assert merged(axes, [whole]) == [(n, c, h)]
    assert merged(axes, [whole, {c: 1}]) == [(n,), (c,), (h,)]
    assert merged(axes, [whole, {h: 1}]) == [(n, c), (h,)]


def test_helpers_bring_what_they_call():
    text = helpers_for("v0 = _softplus(_expm1(x))")
    assert text.count("def _softplus") == text.count("def _expm1") == text.count("def _exp(") == 1
    assert "def _mish" not in text

"""Pipelines: chains of pieces against float64 in the interpreter, where cuts fall, what is refused."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kopt_starters.families import FAMILIES
from kopt_starters.families.pipeline import Pipeline
from kopt_starters.pipeline.joining import MOST_KNOBS
from kopt_starters.pipeline.pieces import cut
from kopt_starters.pipeline.renaming import prefixed
from kopt_starters.pipeline.tidying import tidied

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

F = torch.nn.functional
CHECK = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("checking.py"))))
WHOLE = tuple(family for family in FAMILIES if family.name != "pipeline")
SMALL = {"PIXELS": 32, "BLOCK_M": 32, "BLOCK_N": 32}

# How many kernels files call, the reference, its shapes.
CHAINS = {
    "conv, relu, group norm": (2, """
        y = F.relu(F.conv2d(x, w, b))
        return F.group_norm(y, 3, g, h, 1e-5)""",
        {"x": (2, 5, 9, 7), "w": (6, 5, 3, 3), "b": (6,), "g": (6,), "h": (6,)}),
    "linear, swish, bias, group norm": (2, """
        y = F.linear(x, w, b)
        return F.group_norm(torch.sigmoid(y) * y + c, 5, g, h, 1e-5)""",
        {"x": (7, 33), "w": (35, 33), "b": (35,), "c": (35,), "g": (35,), "h": (35,)}),
    "transposed conv, bias, clamp, max pool": (2, """
        y = F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1)
        return F.max_pool2d(torch.clamp(y + c, -0.5, 1.5) * 2.0, 2)""",
        {"x": (2, 3, 5, 7), "w": (3, 4, 3, 3), "b": (4,), "c": (4, 1, 1)}),
    "product, sum, max, logsumexp": (2, """
        y = torch.sum(F.linear(x, w, b), 1, True)
        y = torch.mean(torch.max(y, 1, True)[0], 1, True)
        return torch.logsumexp(torch.logsumexp(y, 1, True), 1, True)""",
        {"x": (7, 33), "w": (37, 33), "b": (37,)}),
    "conv3d, softmax, pool, pool": (2, """
        y = torch.softmax(F.conv3d(x, w, b), 1)
        return F.max_pool3d(F.max_pool3d(y, 2), 2)""",
        {"x": (1, 3, 8, 11, 10), "w": (5, 3, 3, 3, 3), "b": (5,)}),
    "average pools, and largest ones with padding": (5, """
        y = F.relu(F.conv2d(x, w)) + 1.0
        y = F.avg_pool2d(F.avg_pool2d(y, (2, 1)), 2)
        return torch.softmax(F.max_pool2d(F.max_pool2d(y, 2, padding=1), 2), 1)""",
        {"x": (1, 3, 21, 13), "w": (5, 3, 3, 3)}),
    "linear, residual, mean": (2, """
        y = F.linear(x, w, b)
        z = y.clone().detach()
        return torch.mean(y * 0.5 + z, 1, True)""",
        {"x": (7, 33), "w": (37, 33), "b": (37,)}),
    "pool, transposed conv3d, softmax over all places": (3, """
        y = F.conv_transpose3d(F.avg_pool3d(x, 2), w, b, stride=2, padding=1, output_padding=1)
        y = torch.clamp(y, 0.0, 1.0).view(2, 4, -1)
        return torch.softmax(y, 2).view(2, 4, 4, 6, 4) * c""",
        {"x": (2, 3, 4, 6, 4), "w": (3, 4, 3, 3, 3), "b": (4,), "c": (1, 4, 1, 1, 1)}),
    "two products, logsumexp": (3, """
        y = torch.sigmoid(F.linear(x, w, b))
        return torch.logsumexp(F.linear(y, v, c), 1)""",
        {"x": (7, 33), "w": (37, 33), "b": (37,), "v": (5, 37), "c": (5,)}),
    "linear, 1d pooling between views, max": (3, """
        y = F.linear(x, w, b).unsqueeze(1)
        y = F.gelu(F.avg_pool1d(y, 4).squeeze(1)) * 2.0
        return torch.max(y, 1)[0]""",
        {"x": (7, 33), "w": (36, 33), "b": (36,)}),
    "conv, norm, residual, logsumexp": (3, """
        y = F.conv2d(x, w, b)
        z = F.hardswish(torch.tanh(F.group_norm(y, 2, g, h, 1e-5)))
        return torch.logsumexp(y + z, 1, True)""",
        {"x": (2, 3, 7, 6), "w": (4, 3, 3, 3), "b": (4,), "g": (4,), "h": (4,)}),
    "mish written out, batch norm": (1, """
        y = F.conv2d(x, w, b)
        return F.batch_norm(torch.tanh(F.softplus(y)) * y, m, v * v)""",
        {"x": (2, 3, 7, 6), "w": (4, 3, 3, 3), "b": (4,), "m": (4,), "v": (4,)}),
    "batch norm by given statistics is element-wise": (1, """
        y = F.batch_norm(F.linear(x, w, b), m, v * v, g, h)
        return F.gelu(y)""",
        {"x": (7, 33), "w": (35, 33), "b": (35,), "m": (35,), "v": (35,), "g": (35,), "h": (35,)}),
}  # fmt: skip


def traced(graph_of, name, dtype="float32", seed=5):
    kernels, body, shapes = CHAINS[name]
    source = (
        f"def reference({', '.join(shapes)}):{body.replace(chr(10) + ' ' * 8, chr(10) + '    ')}"
    )
    scope = {"torch": torch, "F": F}
    exec(source, scope)
    generator = torch.Generator().manual_seed(seed)
    drawn = [torch.randn(s, generator=generator).to(getattr(torch, dtype)) for s in shapes.values()]
    return graph_of(source, dtype=dtype, **shapes), scope["reference"], drawn, kernels


def propose(graph):
    return list(Pipeline(WHOLE).propose(graph, CHECK.TARGET))


def small(candidate):
    return {
        name: SMALL[stem]
        for name in candidate.knobs
        for stem in [name.removesuffix("_1").removesuffix("_2")]
        if stem in SMALL and SMALL[stem] in candidate.knobs[name].choices
    }


@pytest.mark.parametrize("name", CHAINS)
def test_chains_are_those_of_float64(graph_of, name):
    graph, reference, arguments, kernels = traced(graph_of, name)
    counts = {each.idea.count("; then ") + 1: each for each in reversed(propose(graph))}
    assert kernels in counts
    candidate = counts[kernels]
    assert len(candidate.knobs) <= MOST_KNOBS
    got = CHECK.interpreted(candidate, *arguments, **small(candidate))
    CHECK.assert_accurate(got, reference(*(value.double() for value in arguments)), 100)


def test_float16_is_rounded_between_kernels_only(graph_of):
    graph, reference, arguments, _ = traced(graph_of, "linear, swish, bias, group norm", "float16")
    (candidate, *_) = propose(graph)
    got = CHECK.interpreted(candidate, *arguments, **small(candidate))
    assert got.dtype == torch.float16
    CHECK.assert_accurate(got, reference(*(value.double() for value in arguments)), 8)


def test_every_structure_of_a_chain_is_right(graph_of):
    graph, reference, arguments, _ = traced(graph_of, "product, sum, max, logsumexp")
    candidates = propose(graph)
    assert len({candidate.structure for candidate in candidates}) == len(candidates) > 1
    exact = reference(*(value.double() for value in arguments))
    for candidate in candidates:
        got = CHECK.interpreted(candidate, *arguments, **small(candidate))
        CHECK.assert_accurate(got, exact, 100)


def test_knobs_of_two_kernels_do_not_clash(graph_of):
    candidate = propose(traced(graph_of, "two products, logsumexp")[0])[0]
    names = list(candidate.knobs)
    assert {"num_warps_1", "num_warps_2"} <= {*names} and "num_warps" not in names
    signature = candidate.source.split("def pipeline(")[1].split(")")[0]
    assert all(name in signature for name in names)


def test_inputs_of_other_layouts_and_shapes(graph_of):
    graph, reference, arguments, _ = traced(graph_of, "conv, relu, group norm")
    candidate = propose(graph)[0]
    arguments[0] = arguments[0].permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    assert not arguments[0].is_contiguous()
    got = CHECK.interpreted(candidate, *arguments, **small(candidate))
    CHECK.assert_accurate(got, reference(*(value.double() for value in arguments)), 100)
    with pytest.raises(ValueError, match="only"):
        CHECK.interpreted(candidate, arguments[0][:, :, 1:], *arguments[1:], **small(candidate))


@pytest.mark.parametrize(
    "name", [n for n in CHAINS if CHAINS[n][2]["x"][0] > 1 and "places" not in n]
)
def test_fewer_rows_are_right_or_refused(graph_of, name):
    graph, reference, arguments, _ = traced(graph_of, name)
    x, *others = arguments
    general = "group norm" in name or "sum" in name
    for candidate in propose(graph):
        try:
            got = CHECK.interpreted(candidate, x[:1], *others, **small(candidate))
        except ValueError as error:
            assert "only" in str(error) and not general, error
            continue
        exact = reference(x[:1].double(), *(value.double() for value in others))
        CHECK.assert_accurate(got, exact, 100)


def test_a_constant_made_of_what_another_piece_reads_holds_for_one_extent(graph_of):
    body = "F.max_pool2d(torch.softmax(F.conv2d(x, w), 1), 2) / x.numel()"
    shapes = {"x": (7, 3, 9, 8), "w": (6, 3, 2, 2)}
    found = propose(graph_of(f"def reference(x, w): return {body}", **shapes))
    assert found
    for candidate in found:
        with pytest.raises(ValueError, match="only"):
            CHECK.interpreted(candidate, torch.randn(5, 3, 9, 8), torch.randn(6, 3, 2, 2))


@pytest.mark.parametrize(
    ("body", "shapes"),
    [
        ("F.linear(x, w)", {"x": (7, 33), "w": (5, 33)}),
        ("torch.softmax(torch.relu(x), 1)", {"x": (7, 33)}),
        ("torch.linalg.inv(x).sum(1)", {"x": (5, 5)}),
        ("F.grid_sample(torch.relu(x), y, align_corners=True)", {"x": (1, 2, 5, 5), "y": (1, 3, 3, 2)}),
        ("(F.linear(x, w), torch.sum(F.linear(x, w), 1))", {"x": (7, 33), "w": (5, 33)}),
        ("torch.bucketize(F.linear(x, w), x[0]).sum(1)", {"x": (7, 33), "w": (5, 33)}),
    ],
)  # fmt: skip
def test_nothing_where_one_family_suffices_or_none_does(graph_of, body, shapes):
    graph = graph_of(f"def reference({', '.join(shapes)}): return {body}", **shapes)
    assert graph is None or not propose(graph)


def test_a_value_needed_twice_is_made_once(graph_of):
    graph = traced(graph_of, "conv, norm, residual, logsumexp")[0]
    pieces = cut(tidied(graph), WHOLE, CHECK.TARGET)
    convolutions = [n for p in pieces for n in p.graph.nodes if n.operator == "convolution"]
    assert len(convolutions) == 1
    assert len(pieces) == 3


def test_names_of_a_module_are_prefixed_and_those_of_functions_are_not():
    source = """
SIZE, _other = 3, 4

def _helper(x, SIZE=SIZE):
    # SIZE stays in comments
    return [SIZE * _other for _other in x] + [SIZE]

def entry(x, *, _helper=_helper):
    text = f"{SIZE} of {x[0]} 'SIZE' {_other + 1}"
    kernel = {"SIZE": _other}["SIZE"]
    return _helper(x, SIZE=kernel), text
"""
    changed = prefixed(source, "p1_")
    before, after = {}, {}
    exec(source, before)
    exec(changed, after)
    assert after["p1_entry"]([1, 2]) == before["entry"]([1, 2])
    assert {n for n in after if n != "__builtins__"} == {
        f"p1_{n}" for n in ("SIZE", "_other", "_helper", "entry")
    }
    assert "# SIZE stays" in changed


def test_classes_of_a_module_are_prefixed_and_what_they_define_is_not():
    source = """
SIZE = 3

def area(x):
    return x * x

def one():
    return 1

class _Base:
    pass

class _Box(_Base):
    SIZE = 4
    twice = 2 * SIZE + one()

    def __init__(self, x=3):
        self.x = x

    def area(self):
        return area(self.x) + self.SIZE + SIZE + _Box.twice

def entry():
    return _Box().area(), isinstance(_Box(1), _Base)
"""
    before, after = {}, {}
    exec(source, before)
    exec(prefixed(source, "p1_"), after)
    assert after["p1_entry"]() == before["entry"]() == (9 + 4 + 3 + 9, True)
    assert {n for n in after if n != "__builtins__"} == {
        f"p1_{n}" for n in ("SIZE", "area", "one", "_Base", "_Box", "entry")
    }


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_it_compiles_within_limits(graph_of, dtype):
    shapes = {"x": (64, 32, 64, 64), "w": (64, 32, 3, 3), "b": (64,), "g": (64,), "h": (64,)}
    graph = graph_of(
        """def reference(x, w, b, g, h):
        return F.max_pool2d(F.group_norm(F.gelu(F.conv2d(x, w, b)), 8, g, h), 2).clamp(0, 1)""",
        dtype=dtype, **shapes,
    )  # fmt: skip
    candidate = propose(graph)[0]
    given = [torch.empty(s, device="meta", dtype=getattr(torch, dtype)) for s in shapes.values()]
    kernels = CHECK.compiled(candidate, given)
    assert len(kernels) >= 4
    assert all(kernel.metadata.shared <= 227 << 10 for kernel in kernels)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("x * torch.tanh(F.softplus(x))", True),
        ("torch.tanh(F.softplus(x)) * x", True),
        ("y * torch.tanh(F.softplus(x))", False),
        ("x * torch.tanh(F.softplus(x, 2.0))", False),
        ("x * torch.sigmoid(F.softplus(x))", False),
        ("x + torch.tanh(F.softplus(x))", False),
    ],
)
def test_what_is_mish(graph_of, body, found):
    graph = tidied(graph_of(f"def reference(x, y): return {body}", x=(3, 4), y=(3, 4)))
    assert any(node.operator == "mish" for node in graph.nodes) is found

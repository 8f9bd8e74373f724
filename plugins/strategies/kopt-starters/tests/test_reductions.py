"""Reductions: what is covered, every structure against float64, what compiles for sm_90."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kopt_starters.codegen.folding import fold_of
from kopt_starters.codegen.parts import in_parts, result_of
from kopt_starters.codegen.steps import steps_of
from kopt_starters.families import FAMILIES, reductions
from kopt_starters.families.reductions import Reductions

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
F = torch.nn.functional
CHECK = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("checking.py"))))

ONE = {
    "x.sum(1)": (3, 19, 5), "x.sum(1, keepdim=True)": (3, 19), "x.mean((0, 2))": (3, 4, 7),
    "x.mean()": (5, 19), "x.amax(1)": (3, 19, 5), "x.amin(-1)": (3, 19), "x.prod(1)": (3, 13),
    "torch.max(x, dim=1)[0]": (3, 19, 5), "torch.min(x, dim=1)[0]": (3, 19, 5), "x.max()": (3, 19),
    "x.var(1)": (3, 19), "x.std(1, correction=0)": (3, 19, 4), "x.norm()": (3, 19),
    "torch.linalg.vector_norm(x, 1, dim=1)": (3, 19), "torch.norm(x, p=3, dim=1)": (3, 19),
    "torch.linalg.vector_norm(x, float('inf'), dim=0)": (3, 19), "torch.logsumexp(x, 1)": (3, 19),
    "torch.sqrt(x * x + 1).sum(-1).tanh().add(2)": (3, 7),
    "x.var((1, 2)) + x.mean((1, 2)) ** 2": (3, 4, 7),
}  # fmt: skip
FULL = {
    "x / x.abs().mean(dim=1, keepdim=True)": (3, 37), "x / torch.norm(x, p='fro')": (5, 19),
    "x / torch.norm(x, p=2, dim=1, keepdim=True)": (3, 37), "F.normalize(x, dim=1)": (3, 19, 5),
    "F.log_softmax(x, 1)": (3, 37), "F.log_softmax(x, 0)": (5, 19), "F.softmax(x, 1)": (3, 7, 5),
    "F.instance_norm(x)": (2, 3, 5, 7), "F.group_norm(x, 2)": (2, 6, 3, 5),
    "F.layer_norm(x, (3, 5))": (4, 3, 5), "x - x.amax(1, keepdim=True)": (3, 5, 7),
    "F.batch_norm(x, None, None, training=True)": (3, 4, 5, 2),
    "(x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-5)": (3, 19),
    "(x - x.amax(1, keepdim=True)).exp() / (x - x.amax(1, keepdim=True)).exp().sum(1, keepdim=True)":
        (3, 19),
    "(lambda v: (v - v.mean(-1, keepdim=True)).view(2, 3, 5, 7))(x.view(2, 3, 35))": (2, 3, 5, 7),
}  # fmt: skip
SEVERAL = {
    "F.mse_loss(x, y)": [(7, 19), (7, 19)],
    "torch.mean((x - y) ** 2)": [(7, 19), (7, 19)],
    "F.smooth_l1_loss(x, y)": [(7, 19), (7, 19)],
    "F.huber_loss(x, y, reduction='sum', delta=0.7)": [(7, 19), (7, 19)],
    "torch.mean(torch.clamp(1 - x * y, min=0))": [(7, 19), (19,)],
    "F.kl_div(x.abs().log(), y.abs(), reduction='batchmean')": [(7, 19), (7, 19)],
    "F.kl_div(F.log_softmax(x, -1), y.abs(), reduction='batchmean')": [(7, 19), (7, 19)],
    "F.triplet_margin_loss(x, y, z)": [(7, 19), (7, 19), (7, 19)],
    "F.group_norm(x, 2, y, z)": [(2, 6, 3, 5), (6,), (6,)],
    "F.group_norm(x, 1, y, z)": [(2, 4, 4, 4), (4,), (4,)],
    "F.instance_norm(x, weight=y, bias=z)": [(2, 3, 5, 7), (3,), (3,)],
    "F.layer_norm(x, (5,), y, z)": [(4, 3, 5), (5,), (5,)],
    "(x + y).sum(1) * z": [(4, 5, 3), (5, 1), (4, 3)],
    "F.cosine_similarity(x, y, dim=1)": [(7, 19), (7, 19)],
    "(1 - F.cosine_similarity(x, y, dim=1)).mean()": [(7, 19), (7, 19)],
}
NOT_COVERED = [
    "x + 1", "x.cumsum(1)", "x.sum(1) @ x", "x.median()", "x.sort(1)[0]", "x.sum(1), x.sum(0)",
    "x - x.mean(0) * x.mean(1, keepdim=True)", "x.sum(1, dtype=torch.float64)", "x[1:].sum(1)",
    "F.batch_norm(x, x[0], x[0], training=True)", "torch.softmax(x, 1) @ x.t()", "x.double().sum(1)",
]  # fmt: skip


def reference(body: str, count: int = 1):
    return eval(f"lambda {', '.join('xyz'[:count])}: {body}", {"torch": torch, "F": F})


def candidates(graph):
    """Return a kernel of each structure, whether it suits the graph's shapes or not."""
    try:
        parts = in_parts(graph)
        steps = steps_of(parts, result_of(graph))
    except reductions.NotCoveredError:
        return []
    structures = [reductions._WHOLE, reductions._LOOPED, reductions._SPLIT]
    if fold_of(max(steps, key=reductions._work)):
        structures.append(reductions._FOLDED)
    if max(steps, key=reductions._work).full:
        structures += [reductions._WAITING, reductions._SWEEPING]
    return [reductions._candidate(parts, steps, s, CHECK.GPU, {}) for s in structures]


def draw(shape, dtype=torch.float32, seed=3):
    value = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 3 + 0.5
    if value.dim() > 1:
        value = value.transpose(0, 1).contiguous().transpose(0, 1)  # not contiguous
    return value.to(dtype)


def graph_for(graph_of, body, shapes, dtype="float32"):
    names = ", ".join("xyz"[: len(shapes)])
    return graph_of(
        f"def f({names}): return {body}", dtype=dtype, **dict(zip("xyz", shapes, strict=False))
    )


def check(graph_of, body, shapes, dtype=torch.float32):
    function = reference(body, len(shapes))
    graph = graph_for(graph_of, body, shapes, str(dtype).removeprefix("torch."))
    found = candidates(graph)
    assert len(found) in (3, 4, 5)
    arguments = [draw(shape, dtype, seed) for seed, shape in enumerate(shapes)]
    exact = function(*(a.double() for a in arguments))
    for candidate in found:
        # Blocks that do not hold all of a row, and do not divide it.
        small = {
            n: k.choices[0] for n, k in candidate.knobs.items() if n in ("BLOCK", "PARTS", "PIECE")
        }
        got = CHECK.interpreted(candidate, *arguments, **small)
        assert got.dtype == function(*arguments).dtype
        CHECK.assert_accurate(got, exact, units=16)


@pytest.mark.parametrize("body", ONE)
def test_one_reduction(graph_of, body):
    check(graph_of, body, [ONE[body]])


@pytest.mark.parametrize("body", FULL)
def test_results_of_the_shape_of_the_input(graph_of, body):
    check(graph_of, body, [FULL[body]])


@pytest.mark.parametrize("body", ["F.log_softmax(x, 1)", "(x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)",
                                  "x / x.abs().mean(dim=1, keepdim=True)", "x - x.amax(1, keepdim=True)"])  # fmt: skip
@pytest.mark.parametrize(("shape", "dtype"), [((4, 37), "float32"), ((8, 19), "float16")])
def test_rows_that_begin_between_groups_of_16_bytes(graph_of, body, shape, dtype):
    check(graph_of, body, [shape], getattr(torch, dtype))


FOLDED = {
    "x.sum(1)": [(3, 40, 5)], "x.mean(1, keepdim=True)": [(3, 24, 7)], "x.amax(0)": [(16, 3, 5)],
    "x.var(1)": [(2, 16, 9)], "torch.logsumexp(x, 1)": [(2, 32, 5)],
    "(x * y + 1).abs().sum(1).sqrt() * 2": [(2, 16, 3), (2, 16, 3)],
}  # fmt: skip
"""Over a dimension whose rows are 2 or 4 bytes off, with a multiple of eight of them."""


@pytest.mark.parametrize("body", FOLDED)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_odd_rows_that_are_joined(graph_of, body, dtype):
    graph = graph_for(graph_of, body, FOLDED[body], dtype)
    (step,) = steps_of(in_parts(graph), result_of(graph))
    fold = fold_of(step)
    assert fold is not None
    assert fold.width * (4 if dtype == "float32" else 2) % 16 == 0
    check(graph_of, body, FOLDED[body], getattr(torch, dtype))


NOT_FOLDED = {
    "x.sum(1)": [(3, 40, 8)],  # aligned as it is
    "x.mean(1)": [(3, 21, 5)],  # does not come out even
    "(x + y).sum(1)": [(3, 40, 5), (40, 1)],  # y does not move along
    "x.sum(2)": [(3, 5, 40)],
    "x / x.sum(1, keepdim=True)": [(3, 40, 5)],
    "x.sum((0, 2))": [(8, 5, 7)],
}


@pytest.mark.parametrize("body", NOT_FOLDED)
def test_rows_that_are_not_joined(graph_of, body):
    graph = graph_for(graph_of, body, NOT_FOLDED[body])
    assert not any(fold_of(step) for step in steps_of(in_parts(graph), result_of(graph)))


@pytest.mark.parametrize("body", ["x.mean(1)", "torch.argmax(x, 1)"])
def test_joined_rows_are_read_by_16_bytes(graph_of, body):
    shape = (128, 4096, 4095)
    graph = graph_for(graph_of, body, [shape], "bfloat16")
    found = next(iter(Reductions().propose(graph, CHECK.TARGET)))
    x = torch.empty(shape, dtype=torch.bfloat16, device="meta")
    reading, _ = CHECK.compiled(found, [x])
    assert "ld.global.v4.b32" in reading.asm["ptx"]
    assert "ld.global.b16" not in reading.asm["ptx"]


@pytest.mark.parametrize("body", SEVERAL)
def test_several_arguments(graph_of, body):
    check(graph_of, body, SEVERAL[body])


@pytest.mark.parametrize("body", ["x.mean(1)", "F.log_softmax(x, 1)", "F.group_norm(x, 2)"])
def test_float16(graph_of, body):
    check(graph_of, body, [(3, 6, 11)], torch.float16)


@pytest.mark.parametrize("rows", [37, 40])
@pytest.mark.parametrize("body", ["torch.argmax(x, dim=1)", "torch.argmin(x, dim=1)",
                                  "torch.argmax(x)", "torch.max(x, 1)[1]"])  # fmt: skip
def test_positions_of_the_first_extreme(graph_of, body, rows):
    graph = graph_for(graph_of, body, [(4, rows, 3)])
    x = torch.randint(-3, 3, (4, rows, 3), generator=torch.Generator().manual_seed(1)).float()
    x[1, 5, 1] = x[1, 9, 1] = float("nan")
    x[2, :, 2] = float("-inf")
    found = candidates(graph)
    for candidate in found:
        got = CHECK.interpreted(candidate, x)
        value = reference(body)(x)
        assert torch.equal(got, value), candidate.idea
    assert len(found) == (4 if rows == 40 and "1" in body else 3)


def test_integers_and_bools(graph_of):
    x = torch.arange(-30, 30).reshape(4, 15)
    for body in ["x.sum(1)", "x.amax(0)", "(x > 20).any(1)", "(x > -40).all()", "x.prod(0)",
                 "(x > 3).sum()"]:  # fmt: skip
        for candidate in candidates(graph_for(graph_of, body, [(4, 15)], "int64")):
            got = CHECK.interpreted(candidate, x)
            assert torch.equal(got, reference(body)(x)), f"{body} {candidate.idea}"


def test_nan_and_infinities(graph_of):
    x = torch.randn(6, 19)
    x[0, 3], x[1, 4], x[2, 5] = float("nan"), float("inf"), float("-inf")
    x[3] = float("-inf")
    for body in ["x.amax(1)", "x.amin(1)", "torch.logsumexp(x, 1)", "x.sum(1)",
                 "F.log_softmax(x, 1)"]:  # fmt: skip
        for candidate in candidates(graph_for(graph_of, body, [(6, 19)])):
            got = CHECK.interpreted(candidate, x)
            torch.testing.assert_close(got, reference(body)(x), equal_nan=True)


def test_variance_survives_a_large_mean(graph_of):
    x = draw((4, 3, 211)) + 1000
    for candidate in candidates(graph_for(graph_of, "F.instance_norm(x)", [(4, 3, 211)])):
        got = CHECK.interpreted(candidate, x)
        exact = F.instance_norm(x.double())
        assert float((got - exact).abs().max()) < 2e-4, candidate.idea


@pytest.mark.parametrize("body", NOT_COVERED)
def test_what_is_not_covered(graph_of, body):
    graph = graph_for(graph_of, body, [(6, 6)])
    assert graph is None or list(Reductions().propose(graph, CHECK.TARGET)) == []


def test_a_float_argument_is_not_taken_for_a_mean_s_own_constant():
    from kopt.model.problem import InputSpec
    from kopt.testing.problems import function_problem
    from kopt_starters.graph import Graph
    from kopt_torch.shapes import signature_by_shapes

    source = "def f(x, s):\n    return (x * s).mean(1)\n"
    inputs = (InputSpec(name="x", shape=(5, 4)), InputSpec(name="s", value=0.25))
    graph = Graph.of(signature_by_shapes(function_problem(source, "f", inputs)).first)
    x = torch.randn(5, 4)
    for candidate in candidates(graph):
        torch.testing.assert_close(CHECK.interpreted(candidate, x, 3.0), (x * 3).mean(1))


def test_nothing_where_there_is_nothing(graph_of):
    for body in ("x.mean(1)", "x.sum()"):
        graph = graph_for(graph_of, body, [(3, 0)])
        assert list(Reductions().propose(graph, CHECK.TARGET)) == []


def test_other_shapes_are_refused(graph_of):
    for candidate in candidates(graph_for(graph_of, "x.sum(1)", [(4, 6)])):
        with pytest.raises(ValueError, match="only"):
            CHECK.interpreted(candidate, torch.randn(4, 7))


AHEAD = {
    "torch.sum(x, dim=1, keepdim=True)": [(128, 4096, 4095)],
    "torch.argmax(x, dim=1)": [(128, 4096, 4095)],
    "x / torch.norm(x, p='fro')": [(112, 64, 512, 512)],
    "x / torch.mean(torch.abs(x), dim=1, keepdim=True)": [(32768, 65535)],
    "F.instance_norm(x)": [(112, 64, 512, 512)],
    "F.group_norm(x, 8, y, z)": [(112, 64, 512, 512), (64,), (64,)],
    "F.triplet_margin_loss(x, y, z)": [(32768, 8192)] * 3,
    "F.log_softmax(x, 1)": [(4096, 4096)],
    "torch.mean(torch.clamp(1 - x * y, min=0))": [(32768, 32768), (32768,)],
}


@pytest.mark.parametrize("body", AHEAD)
def test_defaults_compile_for_sm_90(graph_of, body):
    found = list(Reductions().propose(graph_for(graph_of, body, AHEAD[body]), CHECK.TARGET))
    assert found
    for candidate in found:
        for knob in candidate.knobs.values():
            assert len(knob.choices) <= 4
        arguments = [torch.empty(shape, device="meta") for shape in AHEAD[body]]
        assert CHECK.compiled(candidate, arguments)


@pytest.mark.parametrize(("body", "last"), [("x.sum()", ""), ("torch.argmax(x)", str(2**63 - 1))])
def test_more_elements_than_32_bits_can_count(graph_of, body, last):
    found = list(
        Reductions().propose(graph_for(graph_of, body, [(1 << 16, (1 << 16) + 1)]), CHECK.TARGET)
    )
    assert found
    for candidate in found:
        assert "begin = tl.program_id(1).to(tl.int64) * PIECE" in candidate.source
        assert "r = r.to(tl.int64)" in candidate.source
        assert last in candidate.source
        assert CHECK.compiled(candidate, [torch.empty(1 << 16, (1 << 16) + 1, device="meta")])


def test_positions_are_32_bits_wide_where_they_fit_and_addresses_64_where_they_must(graph_of):
    (swept,) = [c for c in candidates(graph_for(graph_of, "torch.argmax(x, 1)", [(128, 4096, 4095)]))
                if "sweeps" in c.idea]  # fmt: skip
    assert "tl.full([ROWS, BLOCK], -1, tl.int32)" in swept.source
    assert "k = (tl.program_id(0).to(tl.int64)" in swept.source
    assert "r = r.to(tl.int64)" not in swept.source  # a column's stretch fits in 32 bits


NORMED = "x / x.abs().mean(dim=1, keepdim=True)"
FIRST = [
    (NORMED, [(4096, 8192)], "one pass"),
    (NORMED, [(32768, 65535)], "one read, programs of a row wait"),
    (NORMED, [(4096, 393216)], "second read from L2, programs of a row wait"),
    (NORMED, [(16, 1 << 22)], "several programs a row"),
    ("F.mse_loss(x, y)", [(4096, 4096)] * 2, "several programs a row"),
    ("x.mean(1)", [(128, 4096, 4095)], "odd rows joined"),
    ("x.mean(1)", [(128, 4096, 4096)], "sweeps over tiles"),
    ("x.mean(1)", [(128, 4093, 4095)], "sweeps over tiles"),
]


@pytest.mark.parametrize(("body", "shapes", "idea"), FIRST)
def test_the_most_promising_structure_is_the_first(graph_of, body, shapes, idea):
    found = list(Reductions().propose(graph_for(graph_of, body, shapes), CHECK.TARGET))
    assert idea in found[0].idea
    if "mse" in body:  # one program for all of it takes a hundred times as long
        assert len(found) == 1


def test_programs_that_wait_read_and_write_16_bytes_at_a_time_in_odd_rows(graph_of):
    shape = (32768, 65535)
    found = Reductions().propose(graph_for(graph_of, NORMED, [shape], "bfloat16"), CHECK.TARGET)
    x = torch.empty(shape, dtype=torch.bfloat16, device="meta")
    for candidate in found:
        if "wait" not in candidate.idea:
            continue
        (kernel,) = CHECK.compiled(candidate, [x])
        ptx = kernel.asm["ptx"]
        assert "v4.b32" in ptx and "st.global" in ptx and "acquire" in ptx
        assert ptx.count("ld.global.cg") == 1  # of the states of all parts, a thread has one


def test_rows_of_more_pieces_than_multiprocessors_are_refused(graph_of, monkeypatch):
    found = Reductions().propose(graph_for(graph_of, NORMED, [(4096, 393216)]), CHECK.TARGET)
    few = SimpleNamespace(multi_processor_count=16)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: few)
    x = SimpleNamespace(shape=(4096, 393216), device=torch.device("cuda"), contiguous=lambda: x)
    for candidate in (c for c in found if "wait" in c.idea):
        monkeypatch.setattr(torch, "empty", lambda *a, **k: None)
        with pytest.raises(ValueError, match="at once only"):
            CHECK.entry_of(candidate)(x, **candidate.chosen)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("body", "at_most"), [("F.log_softmax(x, 1)", 1.0), ("F.softmax(x, 1)", 2.0)]
)
def test_powers_of_long_rows_are_few(graph_of, body, at_most, dtype):
    """One for each element where a maximum is found, and one where the result needs it.

    And one for those that share a state, once for each tile and once at the end.
    """
    shape = (4096, 393216)
    graph = graph_of(f"def reference(x): return {body}", dtype=dtype, x=shape)
    x = torch.empty(shape, dtype=getattr(torch, dtype), device="meta")
    ideas = []
    for candidate in Reductions().propose(graph, CHECK.TARGET):
        ideas.append(candidate.idea)
        (kernel,) = CHECK.compiled(candidate, [x])
        values = {name: knob.default for name, knob in candidate.knobs.items()}
        tile = values.get("BLOCK", values.get("PIECE", 0))
        each = values.get("ROWS", 1) * tile / (32 * values["num_warps"])
        shared = 2 / (4 if dtype == "float32" else 8)
        assert kernel.asm["ptx"].count("ex2.approx") <= (at_most + shared) * each + 4
    assert [idea.split(",")[0] for idea in ideas] == [
        "reductions: second read from L2", "reductions: one read", "reductions: sweeps over tiles",
    ]  # fmt: skip


def test_bfloat16_compiles_for_sm_90(graph_of):
    graph = graph_for(graph_of, "F.normalize(x, dim=1)", [(512, 1000)], "bfloat16")
    x = torch.empty(512, 1000, dtype=torch.bfloat16, device="meta")
    for candidate in Reductions().propose(graph, CHECK.TARGET):
        (kernel,) = CHECK.compiled(candidate, [x])
        assert "ld.global.v4.b32" in kernel.asm["ptx"]


LOGS = {
    "F.kl_div(torch.log(x), y, reduction='batchmean')": [(8, 40)] * 2,
    "torch.logsumexp(F.linear(x, y), 1)": [(8, 32), (16, 32)],
}


@pytest.mark.parametrize(("dtype", "hardware"), [("bfloat16", True), ("float16", False)])
@pytest.mark.parametrize("body", LOGS)
def test_logarithms_for_bfloat16_are_the_hardwares(graph_of, body, dtype, hardware):
    shapes = dict(zip("xy", LOGS[body], strict=True))
    graph = graph_of(f"def reference(x, y): return {body}", dtype=dtype, **shapes)
    found = [c for family in FAMILIES for c in family.propose(graph, CHECK.TARGET)]
    assert found
    for candidate in found:
        assert ("libdevice.fast_logf" in candidate.source) is hardware, candidate.idea
        arguments = [
            torch.empty(shape, dtype=getattr(torch, dtype), device="meta") for shape in LOGS[body]
        ]
        assert CHECK.compiled(candidate, arguments)

"""Pooling: what is recognised, results against float64, and what compiles for sm_90."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kopt_starters.families.pooling import Pooling

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

F = torch.nn.functional
CHECK = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("checking.py"))))

CASES = {
    "F.max_pool1d(x, 8, stride=1, padding=4, dilation=3)": (1, 3, 72),
    "F.max_pool1d(x, 3)": (5, 11),
    "F.avg_pool1d(x, 8, stride=1, padding=4)": (1, 3, 72),
    "F.max_pool2d(x, 4, stride=1, padding=1)": (1, 2, 10, 37),
    "F.max_pool2d(x, (2, 3), stride=(3, 2), padding=(1, 0), dilation=(2, 1), ceil_mode=True)": (
        2, 3, 12, 24),
    "F.max_pool2d(x, 3, stride=2, padding=1)": (2, 7, 8),
    "F.max_pool2d(x, 3, stride=1, padding=1)": (2, 5, 16),
    "F.avg_pool2d(x, 11)": (1, 2, 23, 64),
    "F.avg_pool2d(x, 3, stride=2, padding=1, ceil_mode=True)": (2, 2, 8, 10),
    "F.avg_pool2d(x, (3, 4), stride=(1, 3), padding=(1, 2), count_include_pad=False)": (2, 2, 7, 19),
    "F.avg_pool2d(x, 2, divisor_override=3)": (2, 1, 6, 10),
    "F.max_pool3d(x, 3, stride=2, padding=1, dilation=3)": (1, 2, 8, 9, 10),
    "F.avg_pool3d(x, 3, stride=2, padding=1)": (1, 1, 5, 6, 33),
    "F.avg_pool3d(x, 2, stride=1, padding=1, count_include_pad=False, ceil_mode=True)": (
        1, 2, 3, 4, 5),
    "F.avg_pool1d(x, 6, stride=1, padding=1)": (2, 3, 40),
    "F.max_pool1d(x, 13, stride=1, padding=2)": (2, 3, 40),
    "F.avg_pool1d(x, 20, stride=1)": (1, 3, 40),
    "F.max_pool1d(x, 5, stride=1, padding=1, dilation=4)": (3, 4112),
    "F.avg_pool1d(x, 12, stride=1, padding=3, count_include_pad=False)": (1, 2, 5000),
    "F.avg_pool1d(x, 8, stride=1, padding=4)  # long": (2, 1, 4096),
    "F.max_pool1d(x, 9, stride=1, ceil_mode=True)": (9, 4100),
}  # fmt: skip


def propose(graph):
    return list(Pooling().propose(graph, CHECK.TARGET))


def reference(body):
    return eval(f"lambda x: {body}", {"F": F, "torch": torch})


@pytest.mark.parametrize("body", CASES)
def test_results_are_those_of_float64(graph_of, body):
    shape = CASES[body]
    candidates = propose(graph_of(f"def reference(x): return {body}", x=shape))
    assert len(candidates) >= 2
    x = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    exact = reference(body)(x.double())
    for candidate in candidates:
        small = {
            n: candidate.knobs[n].choices[k]
            for n, k in (("ROWS", -1), ("PER", 0))
            if n in candidate.knobs
        }
        small |= {"BLOCK": 128} if "BLOCK" in candidate.knobs else {"SPAN": 32}
        for values in ({}, small):
            CHECK.assert_accurate(CHECK.interpreted(candidate, x, **values), exact, 4)


@pytest.mark.parametrize("body", [case for case, shape in CASES.items() if shape[-1] > 4000])
def test_long_rows_of_half_precision(graph_of, body):
    shape = (*CASES[body][:-1], 4096)
    graph = graph_of(f"def reference(x): return {body}", dtype="float16", x=shape)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(3)).to(torch.float16)
    candidates = propose(graph)
    assert len(candidates) >= 2
    for candidate in candidates:
        CHECK.assert_accurate(CHECK.interpreted(candidate, x), reference(body)(x.double()), 2)


@pytest.mark.parametrize("body", list(CASES)[3:4] + list(CASES)[7:8])
def test_float16_and_other_layouts(graph_of, body):
    shape = CASES[body]
    graph = graph_of(f"def reference(x): return {body}", dtype="float16", x=shape)
    x = torch.randn(*shape[:2], shape[3], shape[2]).half().transpose(2, 3)
    for candidate in propose(graph):
        got = CHECK.interpreted(candidate, x)
        assert got.dtype == torch.float16
        CHECK.assert_accurate(got, reference(body)(x.double()), 2)


def test_nan_wins_at_the_ends_of_long_rows_too(graph_of):
    graph = graph_of(
        "def reference(x): return F.max_pool1d(x, 3, 1, 1)", dtype="float16", x=(3, 5000)
    )
    x = torch.randn(3, 5000).half()
    x[0, 0], x[1, -1], x[2, 1000] = float("nan"), float("nan"), float("inf")
    x[2, 2000:2100] = float("-inf")
    exact = F.max_pool1d(x, 3, 1, 1)
    for candidate in propose(graph):
        assert torch.equal(CHECK.interpreted(candidate, x).nan_to_num(7), exact.nan_to_num(7))


def test_nan_wins_and_infinities_stay(graph_of):
    graph = graph_of("def reference(x): return F.max_pool2d(x, 3, 2, 1)", x=(1, 2, 9, 20))
    x = torch.randn(1, 2, 9, 20)
    x[0, 0, 4, 5], x[0, 1, 2, 3] = float("nan"), float("inf")
    x[0, 1, 5:] = float("-inf")
    exact = F.max_pool2d(x, 3, 2, 1)
    assert exact.isnan().any() and (exact == float("-inf")).any()
    for candidate in propose(graph):
        assert torch.equal(CHECK.interpreted(candidate, x).nan_to_num(7), exact.nan_to_num(7))


def test_rows_that_begin_anywhere_are_read_and_written_sixteen_bytes_at_a_time(graph_of):
    body = "def reference(x): return F.max_pool1d(x, 4, 1)"
    for dtype, columns, wanted in [
        ("float32", 8192, True), ("bfloat16", 8200, True), ("bfloat16", 8203, False),
        ("bfloat16", 2048, False),
    ]:  # fmt: skip
        graph = graph_of(body, dtype=dtype, x=(4, columns))
        candidate = propose(graph)[0]
        assert ("wherever rows begin" in candidate.idea) is wanted
        if wanted:
            x = torch.empty(4, columns, dtype=getattr(torch, dtype), device="meta")
            (kernel,) = CHECK.compiled(candidate, [x])
            assert "st.global.v4.b32" in kernel.asm["ptx"]
            assert "ld.global.v4.b32" in kernel.asm["ptx"]
            assert "bar.sync" not in kernel.asm["ptx"]


def test_rows_of_other_lengths_are_pooled_where_they_can_be_read(graph_of):
    graph = graph_of("def reference(x): return F.max_pool1d(x, 4, 1)", x=(4, 8192))
    candidate = propose(graph)[0]
    x = torch.randn(5, 1044, generator=torch.Generator().manual_seed(3))
    CHECK.assert_accurate(CHECK.interpreted(candidate, x), F.max_pool1d(x.double(), 4, 1), 4)
    with pytest.raises(ValueError, match="multiples of 4 elements only"):
        CHECK.interpreted(candidate, x[:, 1:])


def test_other_shapes_are_pooled_or_refused(graph_of):
    graph = graph_of("def reference(x): return F.avg_pool2d(x, 3, 2)", x=(2, 3, 20, 20))
    x = torch.randn(1, 5, 7, 31)
    for candidate in propose(graph):
        exact = F.avg_pool2d(x.double(), 3, 2)
        CHECK.assert_accurate(CHECK.interpreted(candidate, x), exact, 4)
        with pytest.raises(ValueError, match="only"):
            CHECK.interpreted(candidate, x[0])
        with pytest.raises(ValueError, match="only"):
            CHECK.interpreted(candidate, x[:, :, :2])


@pytest.mark.parametrize(
    "body",
    [
        "F.max_pool2d(x, 2, return_indices=True)",
        "F.max_pool2d(x, 2, return_indices=True)[1]",
        "F.max_pool2d(x, 2) + 1",
        "F.max_pool2d(x.double(), 2)",
        "F.adaptive_avg_pool2d(x, 3)",
        "F.lp_pool2d(x, 2, 3)",
        "torch.amax(x, -1)",
    ],
)
def test_what_is_no_pooling_alone(graph_of, body):
    graph = graph_of(f"def reference(x): return {body}", x=(2, 3, 8, 9))
    assert propose(graph) == []


def test_other_languages_get_nothing(graph_of):
    graph = graph_of("def reference(x): return F.max_pool2d(x, 2)", x=(2, 3, 8, 9))
    target = CHECK.TARGET.model_copy(update={"language": "cpp"})
    assert list(Pooling().propose(graph, target)) == []


LARGE = [
    ("F.max_pool1d(x, 8, 1, 4, 3)", (64, 192, 65536), "float32"),
    ("F.max_pool3d(x, 3, 2, 1, 3)", (16, 32, 128, 128, 128), "bfloat16"),
    ("F.avg_pool2d(x, 11)", (16, 64, 2048, 2048), "float16"),
]


@pytest.mark.parametrize(("body", "shape", "dtype"), LARGE)
def test_kernels_compile_for_sm_90(graph_of, body, shape, dtype):
    x = torch.empty(shape, dtype=getattr(torch, dtype), device="meta")
    candidates = propose(graph_of(f"def reference(x): return {body}", dtype=dtype, x=shape))
    assert candidates
    for candidate in candidates:
        assert len(CHECK.compiled(candidate, [x])) == 1


def test_overlapping_rows_are_read_once(graph_of):
    shape = (4, 4, 64, 256)
    graph = graph_of("def reference(x): return F.max_pool2d(x, 4, 1, 1)", x=shape)
    lanes = next(k for k in propose(graph) if "lanes" in k.idea)
    (kernel,) = CHECK.compiled(
        lanes, [torch.empty(shape, device="meta")], ROWS=4, BLOCK=128, num_warps=4
    )
    assert kernel.asm["ttir"].count("tt.load") == (4 + 3) * 4

"""Which graphs are matrix products, which kernels they get, and that those compile for sm_90."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import torch

from kopt_starters.families.products import Products
from kopt_starters.products.matching import product_of

CHECK = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("checking.py"))))


@pytest.fixture
def graph(graph_of):
    """Return the graph of an expression over arguments of these shapes."""

    def made(expression: str, *shapes: tuple[int, ...], dtype: str = "float32"):
        named = dict(zip("abcd", shapes, strict=False))
        source = f"def reference({', '.join(named)}):\n    return {expression}\n"
        return graph_of(source, dtype=dtype, **named)

    return made


def ideas(graph) -> list[str]:
    return [each.idea.removeprefix("product: ") for each in Products().propose(graph, CHECK.TARGET)]


SPLIT, TILES = "programs share the depth of a tile", "one program per tile"
WALK, VECTOR = "a fixed grid walks over tiles", "strips of rows times a vector"
STRIPS = "strips of a short depth, written through descriptors"
DESCRIBED = "a fixed grid walks over tiles that come through descriptors"
COPIED = f"{DESCRIBED}, from copies with aligned rows"
HALVED = "operands laid out in two float16s a number first"


@pytest.mark.parametrize(
    ("expression", "shapes", "wanted"),
    [
        ("a @ b", ((4096, 4096), (4096, 4096)), [HALVED, TILES, WALK, DESCRIBED]),
        ("a @ b", ((8205, 2949), (2949, 5921)), [HALVED, COPIED, TILES]),
        ("torch.relu(a @ b)", ((4096, 4096), (4096, 4096)), [HALVED, TILES, WALK, DESCRIBED]),
        ("a @ b", ((128, 4096), (4096, 65536)), [TILES, WALK, DESCRIBED]),
        ("a @ b", ((256, 1 << 19), (1 << 19, 256)), [SPLIT, TILES]),
        ("a @ b", ((2048, 1 << 20), (1 << 20, 1)), [VECTOR]),
        ("a @ b", ((64, 64), (64, 64)), [TILES]),
        (
            "torch.bmm(a, b)",
            ((128, 512, 1024), (128, 1024, 2048)),
            [HALVED, TILES, WALK, DESCRIBED],
        ),
        (
            "torch.einsum('bqhd,bkhd->bhqk', a, b)",
            ((8, 2048, 16, 64), (8, 2048, 16, 64)),
            [HALVED, TILES, WALK],
        ),
        ("torch.diag(a) @ b", ((4096,), (4096, 4096)), ["rows scaled"]),
    ],
)
def test_structures_suit_the_sizes(graph, expression, shapes, wanted):
    assert ideas(graph(expression, *shapes)) == wanted


def test_half_precision_comes_through_descriptors_first(graph):
    square, shallow = ((4096, 4096), (4096, 4096)), ((8192, 64), (64, 8192))
    plain = [DESCRIBED, TILES, WALK]
    assert ideas(graph("a @ b", *square, dtype="bfloat16")) == plain
    assert ideas(graph("a @ b", *shallow, dtype="bfloat16")) == [STRIPS, *plain]
    assert ideas(graph("torch.relu(a @ b)", *square, dtype="bfloat16")) == [DESCRIBED, TILES, WALK]


def test_parts_suit_the_way_in_which_the_right_operand_lies(graph):
    square = ((4096, 4096), (4096, 4096))
    for expression, parts in (("a @ b", "bf16x6"), ("a.T @ b.T", "tf32x3")):
        found = list(Products().propose(graph(expression, *square), CHECK.TARGET))
        assert {c.knobs["PRECISION"].default for c in found[1:]} == {parts}
    (small,) = Products().propose(graph("a @ b", (64, 64), (64, 64)), CHECK.TARGET)
    assert small.knobs["PRECISION"].default == "tf32x3"


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "wide"),
    [
        (4096, 4096, 4096, 128),
        # 128 and 104 tiles for 132 multiprocessors: twice as many of half the width are slower.
        (2003, 4099, 1009, 128),
        (1537, 2051, 1023, 128),
        (4096, 200, 4096, 64),  # where beginning and ending take longer than what is between
    ],
)
def test_tiles_of_halves_are_wide_however_few_there_are(graph, rows, depth, columns, wide):
    kernels = Products().propose(graph("a @ b", (rows, depth), (depth, columns)), CHECK.TARGET)
    halves = next(each for each in kernels if each.idea.endswith(HALVED))
    assert halves.knobs["BLOCK_N"].default == wide


@pytest.mark.parametrize(
    ("expression", "shapes"),
    [
        ("a + b", ((8, 8), (8, 8))),
        ("a @ b @ a", ((8, 8), (8, 8))),
        ("torch.relu(a) @ b", ((8, 8), (8, 8))),
        ("torch.softmax(a @ b, -1)", ((8, 8), (8, 8))),
        ("(a @ b).sum(0)", ((8, 8), (8, 8))),
        ("torch.triu(a @ b, 0).flip(0)", ((8, 8), (8, 8))),
        ("torch.triu((a @ b).view(4, 2, 8))", ((8, 8), (8, 8))),
        ("torch.outer(a, b).cumsum(0)", ((8,), (8,))),
        ("a[1:] @ b", ((9, 8), (8, 8))),
        ("(a @ b, a + b)", ((8, 8), (8, 8))),
        ("a @ a + b @ b", ((8, 8), (8, 8))),
        ("torch.diag(a, 1) @ b", ((7,), (8, 8))),
        ("torch.diag_embed(a, 0, 1, 0) @ b", ((8,), (8, 8))),
        ("a.unsqueeze(0) * b", ((8,), (8, 8))),
        ("a.unsqueeze(1) * b + b", ((8,), (8, 8))),
        ("torch.conv1d(a, b)", ((2, 8, 8), (8, 8, 1))),
    ],
)
def test_what_is_more_or_other_than_a_product_is_left_alone(graph, expression, shapes):
    assert ideas(graph(expression, *shapes)) == []


def test_other_languages_dtypes_and_names_are_left_alone(graph, graph_of):
    plain = graph("a @ b", (64, 64), (64, 64))
    for language in ("cpp", "torch"):
        target = CHECK.TARGET.model_copy(update={"language": language})
        assert list(Products().propose(plain, target)) == []
    assert ideas(graph("a @ b", (8, 8), (8, 8), dtype="float64")) == []
    assert ideas(graph("(a @ b).double()", (8, 8), (8, 8))) == []
    clashing = graph_of("def f(BLOCK_M, x): return BLOCK_M @ x", BLOCK_M=(8, 8), x=(8, 8))
    assert ideas(clashing) == []


def test_views_are_followed_to_the_arguments(graph):
    found = product_of(graph("a.T @ b.T", (19, 37), (41, 19)))
    assert [found.stride(0, group) for group in "mk"] == [1, 37]
    assert [found.stride(1, group) for group in "kn"] == [1, 19]
    assert found.whole
    found = product_of(
        graph("torch.einsum('bqhd,bkhd->bhqk', a, b)", (2, 7, 3, 19), (2, 11, 3, 19))
    )
    assert found.size == {"b": 6, "m": 7, "n": 11, "k": 19}
    assert [(step.extent, step.strides[:2]) for step in found.steps["b"]] == [
        (2, (399, 627)),
        (3, (19, 19)),
    ]
    assert not found.whole


def test_a_triangle_is_flipped_with_its_product(graph):
    found = product_of(graph("torch.triu(a @ b, 2)", (8, 8), (8, 8)))
    assert (found.triangle.upper, found.triangle.diagonal) == (True, 2)
    flipped = found.flipped().triangle
    assert (flipped.upper, flipped.diagonal) == (False, -2)


# Others are among the cases of test_compiles_everywhere.py, for sm_90 too.
AHEAD = [
    ("torch.relu(F.linear(a, b, c))", ((8205, 2949), (5921, 2949), (5921,)), "float32"),
    ("a.T @ b", ((1 << 16, 2048), (1 << 16, 1)), "bfloat16"),
    ("torch.tril(a @ b)", ((4096, 4096), (4096, 4096)), "float32"),
]


@pytest.mark.parametrize(("expression", "shapes", "dtype"), AHEAD)
def test_defaults_compile_for_sm_90(graph, expression, shapes, dtype):
    candidates = list(Products().propose(graph(expression, *shapes, dtype=dtype), CHECK.TARGET))
    assert candidates
    arguments = [torch.empty(s, dtype=getattr(torch, dtype), device="meta") for s in shapes]
    for candidate in candidates:
        for kernel in CHECK.compiled(candidate, arguments):
            assert "cubin" in kernel.asm


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_largest_choices_fit_shared_memory(graph, dtype):
    square = graph("a @ b", (4096, 4096), (4096, 4096), dtype=dtype)
    for candidate in Products().propose(square, CHECK.TARGET):
        largest = {name: max(knob.choices) for name, knob in candidate.knobs.items()}
        itemsize = 4 if dtype == "float32" else 2
        block = largest["BLOCK_M"] + largest["BLOCK_N"]
        deep = largest.get("BLOCK_K", 64)  # in both halves otherwise
        assert block * deep * itemsize * largest["num_stages"] <= 232448

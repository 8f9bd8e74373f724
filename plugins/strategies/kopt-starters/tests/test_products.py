"""Matrix products: every kernel against float64 in the interpreter, at odd, prime and even sizes."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import torch

from kopt.model.device import Target
from kopt_starters.families import products
from kopt_starters.families.products import Products
from kopt_triton.interpreter import interpreting

F = torch.nn.functional
CHECK = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("checking.py"))))
SMALL = {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 16, "PROGRAMS": 3, "PARTS": 3}


def target(units: int) -> Target:
    """Return a GPU with few or many multiprocessors: which structures suit depends on them."""
    return Target(language="triton", device=CHECK.GPU.model_copy(update={"units": units}))


@pytest.fixture
def proposed(graph_of):
    """Return what the family writes for an expression over arguments of these shapes."""

    def made(expression: str, *shapes: tuple[int, ...], units: int = 132, dtype: str = "float32"):
        named = dict(zip("abcd", shapes, strict=False))
        source = f"def reference({', '.join(named)}):\n    return {expression}\n"
        return list(Products().propose(graph_of(source, dtype=dtype, **named), target(units)))

    return made


def structure(candidate) -> str:
    """Return the word by which a candidate's kernel is told."""
    kernels = {
        "_Launch(_past,": "halves strips", "_Launch(_walk,": "halves", "_parts[": "split", "_strips[": "vector", "_passing[": "strips", "tl.make_tensor_descriptor": "descriptors",
        "_walk[": "persistent", "_tiles[": "tiles", "_scaled[": "diagonal",
    }  # fmt: skip
    return next(name for text, name in kernels.items() if text in candidate.source)


def drawn(*shapes: tuple[int, ...], dtype=torch.float32):
    generator = torch.Generator().manual_seed(11)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def small(candidate) -> dict[str, int]:
    """Return values of knobs that make several tiles out of little; some are no choice."""
    values = {name: value for name, value in SMALL.items() if name in candidate.knobs}
    return values | ({"ROWS": 4, "BLOCK": 16} if "ROWS" in candidate.knobs else {})


def evaluated(expression: str, arguments):
    space = dict(zip("abcd", [argument.double() for argument in arguments], strict=False))
    return eval(expression, {"torch": torch, "F": F}, space)


def check(candidate, expression: str, arguments, **values) -> None:
    got = CHECK.interpreted(candidate, *arguments, **values)
    assert got.dtype == arguments[0].dtype
    CHECK.assert_accurate(got, evaluated(expression, arguments), 16)


PRODUCTS = {
    "a @ b": ((37, 19), (19, 41)),
    "a @ b ": ((32, 32), (32, 64)),
    "a.T @ b": ((19, 37), (19, 41)),
    "a @ b.T": ((37, 19), (41, 19)),
    "a.T @ b.T": ((19, 37), (41, 19)),
    "torch.bmm(a, b)": ((3, 17, 19), (3, 19, 23)),
    "torch.bmm(a, b) ": ((3, 17, 64), (3, 64, 24)),
    "a @ b  ": ((2, 3, 17, 19), (2, 3, 19, 23)),
    "a @ b   ": ((2, 17, 19), (19, 23)),
    "torch.einsum('bijl,lk->bijk', a, b)": ((2, 3, 5, 19), (19, 33)),
    "torch.einsum('bhqd,bhkd->bhqk', a, b)": ((2, 3, 7, 19), (2, 3, 11, 19)),
    "torch.einsum('bqhd,bkhd->bhqk', a, b)": ((2, 7, 3, 19), (2, 11, 3, 19)),
    "(a.view(2, 7, 3, 19).transpose(1, 2) @ b).transpose(1, 2)": ((2, 7, 57), (19, 5)),
    "(a @ b).T": ((37, 19), (19, 41)),
    "F.linear(a, b, c)": ((2, 17, 19), (23, 19), (23,)),
    "torch.addmm(c, a, b, alpha=0.5, beta=2)": ((37, 19), (19, 41), (37, 1)),
    "torch.baddbmm(c, a, b)": ((3, 17, 19), (3, 19, 23), (3, 1, 23)),
    "torch.addmm(c, a, b, beta=0)": ((37, 19), (19, 41), (37, 41)),
    "torch.triu(a @ b)": ((37, 19), (19, 41)),
    "torch.tril(a @ b, -3)": ((53, 19), (19, 41)),
    "torch.tril(a @ b, 2)": ((2, 33, 19), (2, 19, 65)),
    "torch.triu((a @ b).T)": ((37, 19), (19, 41)),
    "torch.relu(F.linear(a, b, c))": ((2, 17, 19), (23, 19), (23,)),
    "F.gelu(a @ b) * c + d": ((37, 19), (19, 41), (41,), (37, 41)),
}


NO_UNITS = 0
"""Of a device that has fewer multiprocessors than any product has tiles."""


@pytest.mark.parametrize("expression", PRODUCTS)
def test_products_are_right(proposed, expression):
    shapes = PRODUCTS[expression]
    arguments = drawn(*shapes)
    candidates = proposed(expression.strip(), *shapes, units=NO_UNITS)
    assert len({structure(each) for each in candidates}) >= 2
    for candidate in candidates:
        check(candidate, expression, arguments, **small(candidate))


HALVED = [
    "a @ b", "a.T @ b.T", "torch.bmm(a, b)", "a @ b   ", "torch.tril(a @ b, -3)",
    "torch.einsum('bqhd,bkhd->bhqk', a, b)", "F.gelu(a @ b) * c + d", "F.linear(a, b, c)",
]  # fmt: skip


@pytest.fixture
def halving(monkeypatch):
    """Have operands laid out anew however small they are."""
    monkeypatch.setattr("kopt_starters.families.products.halving_pays", lambda sizes: True)


@pytest.fixture
def halved(proposed, halving):
    """Return what multiplies matrices of these shapes in halves, in strips or not."""

    def made(*shapes, strips=False):
        named = (each for each in proposed("a @ b", *shapes) if "halves" in structure(each))
        return next(each for each in named if structure(each).endswith("strips") == strips)

    return made


@pytest.mark.parametrize("expression", HALVED)
def test_products_of_halves_are_right(proposed, halving, expression):
    shapes = PRODUCTS[expression]
    candidate = proposed(expression.strip(), *shapes)[0]
    assert structure(candidate) == "halves"
    check(candidate, expression, drawn(*shapes), **small(candidate))


def test_halves_are_summed_in_pieces_where_depth_is_long(halved):
    shapes = (37, 263), (263, 41)
    candidate = halved(*shapes)
    for values in ({}, small(candidate)):
        check(candidate, "a @ b", drawn(*shapes), **values)
    assert CHECK.interpreted(candidate, torch.ones(5, 0), torch.ones(0, 7)).sum() == 0


LAID = {
    "rows at once": {},
    "rows in stretches": {"_WHOLE = 16384": "_WHOLE = 64"},
    "rows step by step": {"_BRIEF = 512": "_BRIEF = 0", "(2, 512), (1, 1024)": "(4, 16), (2, 64)"},
}
"""How rows are laid out, by what is different in the kernel."""
WAYS = pytest.mark.parametrize("way", LAID)


def stretched(candidate, way):
    source = candidate.source
    for given, other in LAID[way].items():
        assert given in source
        source = source.replace(given, other)
    return candidate.model_copy(update={"source": source})


@WAYS
def test_halves_take_rows_and_columns_of_any_size(halved, way):
    """Each row and each column has a scale of its own; none of zeros, and results may be infinite."""
    shapes = (37, 263), (263, 41)
    a, b = drawn(*shapes)
    a = a * 2.0 ** torch.linspace(-120, 120, 37).round()[:, None]
    b = b * 2.0 ** torch.linspace(-30, 30, 41).round()[None, :]
    a[5], b[:, 7] = 0, 0
    got = CHECK.interpreted(stretched(halved(*shapes), way), a, b)
    exact, size = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    large = exact.abs() > 2.0**128
    assert large.any() and torch.equal(got.isinf(), large)
    error = (got.double() - exact)[~large].abs()
    assert bool((error <= 2.0**-21 * size[~large] + 2.0**-149).all())


@WAYS
@pytest.mark.parametrize(
    ("expression", "right"), [("torch.bmm(a, b)", (3, 70, 41)), ("a @ b", (70, 41))]
)
def test_rows_of_each_batch_have_scales_of_their_own(proposed, halving, expression, right, way):
    a, b = drawn((3, 37, 70), right)
    a = a * 2.0 ** torch.tensor([-50.0, 0, 40])[:, None, None]
    if len(right) == 3:
        b = b * 2.0 ** torch.tensor([20.0, -10, 5])[:, None, None]
    candidate = stretched(proposed(expression, a.shape, right)[0], way)
    assert structure(candidate) == "halves"
    got = CHECK.interpreted(candidate, a, b, **small(candidate))
    for mine, exact in zip(got, a.double() @ b.double(), strict=True):
        CHECK.assert_accurate(mine, exact, 16)


@WAYS
@pytest.mark.parametrize("operand", [0, 1])
def test_halves_are_not_taken_for_what_they_would_lose(halved, way, operand):
    """Beside 2**40 in a row, ones have no bits left; where the other operand has a zero, they count."""
    shapes = (37, 263), (263, 41)
    a, b = drawn(*shapes)
    if operand:
        b[9], a[:, 9] = 2.0**40, 0
    else:
        a[:, 9], b[9] = 2.0**40, 0
    got = CHECK.interpreted(stretched(halved(*shapes), way), a, b)
    CHECK.assert_accurate(got, a.double() @ b.double(), 16)


@pytest.mark.parametrize(("lost", "exact"), [(8, False), (9, True)])
def test_only_an_eighth_of_a_row_may_lose_bits(halved, lost, exact):
    """They are seen alone here, as nothing else meets a number; usually they are next to nothing."""
    shapes = (16, 64), (64, 16)
    a, b = drawn(*shapes)
    a[:, :lost] *= 2.0**-24
    b[lost:] = 0
    got, expected = CHECK.interpreted(halved(*shapes), a, b), a.double() @ b.double()
    error = float((got.double() - expected).abs().max() / expected.abs().max())
    assert error < 2.0**-20 if exact else 2.0**-18 < error < 2.0**-12


def test_halves_take_the_largest_values_and_nan(halved):
    candidate = halved((2, 2), (2, 2))
    largest = 0.9999 * torch.finfo(torch.float32).max
    got = CHECK.interpreted(candidate, torch.tensor([[largest, 0], [torch.nan, 1]]), torch.eye(2))
    assert got[0, 0] == pytest.approx(largest, rel=1e-6)
    assert got[0, 1] == 0
    assert got[1].isnan().all()


@pytest.mark.parametrize("depth", [19, 263])
@pytest.mark.parametrize("operand", [0, 1])
def test_halves_take_infinities(halved, operand, depth):
    """Each result that meets one is infinite, with the sign of the other number."""
    shapes = (37, depth), (depth, 41)
    candidate, arguments = halved(*shapes), drawn(*shapes)
    arguments[operand][0, 0], arguments[operand][7, 3] = torch.inf, -torch.inf
    expected = arguments[0].double() @ arguments[1].double()
    got = CHECK.interpreted(candidate, *arguments, **small(candidate))
    infinite = expected.isinf()
    assert infinite.sum() == 2 * (41 if operand == 0 else 37)
    assert torch.equal(got[infinite].double(), expected[infinite])
    CHECK.assert_accurate(got[~infinite], expected[~infinite], 16)


@pytest.mark.parametrize(("small_ones", "hard"), [(1, False), (3, True)])
def test_one_small_number_of_a_short_stretch_is_chance(halved, small_ones, hard):
    """Rows are looked at in stretches of 256: of 1283 numbers, the last one has three."""
    shapes = (37, 1283), (1283, 41)
    candidate, arguments = halved(*shapes), drawn(*shapes)
    arguments[1][1283 - small_ones :, 5] = 1e-9
    function = CHECK.entry_of(candidate)
    lay_out, found = function.__globals__["_operands"], []
    function.__globals__["_operands"] = lambda *given: found.append(lay_out(*given)) or found[-1]
    with interpreting(), torch.no_grad():
        got = function(*arguments, **{**candidate.chosen, **small(candidate)})
    assert bool(found[0][-1]) is hard
    CHECK.assert_accurate(got, arguments[0].double() @ arguments[1].double(), 16)


@pytest.mark.gpu
@pytest.mark.parametrize("operand", [0, 1])
@pytest.mark.parametrize(
    ("expression", "shapes"),
    {
        "a @ b": ((512, 1024), (1024, 768)),
        "a.T @ b.T": ((263, 512), (768, 263)),
        "torch.bmm(a, b)": ((3, 256, 512), (3, 512, 256)),
        "a @ b ": ((64, 8192), (8192, 64)),
        "torch.mv(a, b)": ((512, 4096), (4096,)),
    }.items(),
)
def test_every_product_takes_infinities_on_a_gpu(proposed, expression, shapes, operand):
    """Tensor cores have no float32: whatever makes up for it keeps infinities and their signs."""
    arguments = drawn(*shapes)
    arguments[operand].view(-1)[0] = torch.inf
    if arguments[operand].dim() > 1:
        arguments[operand].view(-1)[-1] = -torch.inf
    expected = evaluated(expression.strip(), arguments)
    assert expected.isinf().any()
    for candidate in proposed(expression.strip(), *shapes):
        run = CHECK.entry_of(candidate)
        got = run(*(each.cuda() for each in arguments), **candidate.chosen).cpu()
        CHECK.assert_accurate(got, expected, 16)


DEEP = {
    "a @ b": ((37, 263), (263, 41)),
    "a @ b ": ((32, 288), (288, 64)),
    "a.T @ b.T": ((263, 37), (41, 263)),
    "torch.tril(torch.bmm(a, b))": ((2, 17, 263), (2, 263, 35)),
    "F.linear(a, b, c).T": ((17, 263), (23, 263), (23,)),
    "torch.relu(F.linear(a, b, c)) + d": ((2, 9, 263), (23, 263), (23,), (9, 1)),
}


@pytest.mark.parametrize("expression", DEEP)
def test_products_that_split_their_depth_are_right(proposed, expression):
    candidates = proposed(expression.strip(), *DEEP[expression])
    assert structure(candidates[0]) == "split"
    arguments = drawn(*DEEP[expression])
    for values in ({}, small(candidates[0]) | {"PARTS": 1}, small(candidates[0])):
        check(candidates[0], expression, arguments, **values)


VECTORS = {
    "torch.mv(a, b)": ((37, 263), (263,)),
    "a @ b": ((37, 263), (263, 1)),
    "a @ b ": ((64, 512), (512, 1)),
    "a.T @ b": ((263, 37), (263, 1)),
    "b @ a": ((263, 37), (1, 263)),
    "b @ a.T": ((37, 263), (263,)),
    "torch.bmm(a, b)": ((3, 19, 263), (3, 263, 1)),
    "torch.dot(a, b)": ((1009,), (1009,)),
    "F.linear(a, b, c)": ((37, 263), (1, 263), (1,)),
    "torch.addmv(c, a, b, beta=0.5)": ((37, 263), (263,), (37,)),
    "torch.sigmoid(a @ b) * c": ((37, 263), (263, 1), (37, 1)),
}


@pytest.mark.parametrize("expression", VECTORS)
def test_products_with_a_vector_are_right(proposed, expression):
    (candidate,) = proposed(expression.strip(), *VECTORS[expression])
    assert structure(candidate) == "vector"
    arguments = drawn(*VECTORS[expression])
    for values in ({}, small(candidate), small(candidate) | {"PARTS": 1}):
        check(candidate, expression, arguments, **values)


DIAGONALS = {
    "torch.diag(a) @ b": ((37,), (37, 41)),
    "b @ torch.diag(a)": ((41,), (37, 41)),
    "a.unsqueeze(1) * b": ((32,), (32, 64)),
    "b * a[:, None]": ((37,), (37, 1)),
}


@pytest.mark.parametrize("expression", DIAGONALS)
def test_products_with_a_diagonal_matrix_are_right(proposed, expression):
    (candidate,) = proposed(expression, *DIAGONALS[expression])
    assert structure(candidate) == "diagonal"
    arguments = drawn(*DIAGONALS[expression])
    for values in ({}, {"ROWS": 2, "BLOCK": 16}):
        check(candidate, expression, arguments, **values)


HALF = {
    "a @ b": ((40, 24), (24, 48)),
    "a.T @ b": ((24, 40), (24, 48)),
    "a @ b.T": ((40, 24), (48, 24)),
    "F.gelu(F.linear(a, b, c))": ((40, 24), (48, 24), (48,)),
    "torch.mv(a, b)": ((37, 263), (263,)),
    "torch.tril(a @ b)": ((40, 24), (24, 48)),
}


@pytest.mark.parametrize("expression", HALF)
def test_products_are_right_in_float16(proposed, expression):
    candidates = proposed(expression, *HALF[expression], units=NO_UNITS, dtype="float16")
    arguments = drawn(*HALF[expression], dtype=torch.float16)
    if "mv" not in expression:
        assert [structure(each) for each in candidates] == ["descriptors", "tiles", "persistent"]
    for candidate in candidates:
        check(candidate, expression, arguments, **small(candidate))


def test_descriptors_take_matrices_below_each_other(proposed):
    shapes = (3, 40, 64), (3, 64, 48)
    candidate = proposed("a @ b", *shapes, units=NO_UNITS, dtype="float16")[0]
    assert structure(candidate) == "descriptors"
    check(candidate, "a @ b", drawn(*shapes, dtype=torch.float16), **small(candidate))
    others = drawn((3, 40, 24), (3, 24, 48), dtype=torch.float16)
    with pytest.raises(ValueError, match="only"):
        CHECK.interpreted(candidate, *others, **small(candidate))


STRIPS = {"a @ b": ((72, 24), (24, 200)), "a.T @ b.T": ((40, 72), (200, 40)),
          "F.linear(a, b)": ((72, 32), (136, 32)), "(a.T @ b).T": ((16, 72), (16, 200))}  # fmt: skip


@pytest.fixture
def wide_enough(monkeypatch):
    """Write strips of small products too."""
    monkeypatch.setattr(products, "_STRIPPED", 1)


@pytest.mark.parametrize("expression", STRIPS)
def test_shallow_products_are_written_in_strips(proposed, wide_enough, expression):
    candidate = proposed(expression, *STRIPS[expression], units=NO_UNITS, dtype="float16")[0]
    assert structure(candidate) == "strips"
    arguments = drawn(*STRIPS[expression], dtype=torch.float16)
    # Neither rows nor columns come out even, and a strip ends before its last tile.
    check(candidate, expression, arguments, BLOCK_M=32, BLOCK_N=32, TILES=4)


def test_strips_are_refused_where_they_do_not_fit(proposed, wide_enough):
    shapes = (72, 24), (24, 200)
    candidate = proposed("a @ b", *shapes, units=NO_UNITS, dtype="float16")[0]
    for others in [((72, 136), (136, 200)), ((72, 24), (24, 204)), ((72, 20), (20, 200))]:
        with pytest.raises(ValueError, match="depths up to 128"):
            CHECK.interpreted(candidate, *drawn(*others, dtype=torch.float16))


@pytest.mark.parametrize("expression", STRIPS)
def test_strips_of_halves_are_right(proposed, wide_enough, halving, expression):
    candidate = proposed(expression, *STRIPS[expression])[0]
    assert structure(candidate) == "halves strips"
    arguments = drawn(*STRIPS[expression])
    for values in ({}, {"BLOCK_M": 32, "BLOCK_N": 32, "TILES": 4}):
        check(candidate, expression, arguments, **values)


def test_strips_of_halves_are_left_to_the_other_kernel_where_they_lose_bits(halved, wide_enough):
    a, b = drawn((72, 24), (24, 200))
    a[:, 9], b[9] = 2.0**40, 0
    got = CHECK.interpreted(halved((72, 24), (24, 200), strips=True), a, b)
    CHECK.assert_accurate(got, a.double() @ b.double(), 16)


def test_strips_of_halves_are_refused_where_they_do_not_fit(halved, wide_enough):
    candidate = halved((72, 24), (24, 200), strips=True)
    for others in [((72, 136), (136, 200)), ((72, 24), (24, 198))]:
        with pytest.raises(ValueError, match="depths up to 128"):
            CHECK.interpreted(candidate, *drawn(*others))


NO_STRIPS = {
    "torch.relu(a @ b)": ((72, 24), (24, 200)), "torch.triu(a @ b)": ((72, 24), (24, 200)),
    "torch.addmm(c, a, b)": ((72, 24), (24, 200), (200,)), "a @ b": ((72, 24), (24, 204)),
    "a @ b ": ((72, 136), (136, 200)), "torch.bmm(a, b)": ((3, 72, 64), (3, 64, 200)),
}  # fmt: skip


@pytest.mark.parametrize("expression", NO_STRIPS)
def test_what_is_not_written_in_strips(proposed, wide_enough, expression):
    found = proposed(expression.strip(), *NO_STRIPS[expression], units=NO_UNITS, dtype="float16")
    assert found
    assert "strips" not in {structure(each) for each in found}


def test_wide_tiles_are_written_in_halves_where_rows_are_not_aligned(proposed):
    shapes = (40, 24), (24, 301)
    candidate = proposed("a @ b", *shapes, units=NO_UNITS, dtype="float16")[0]
    assert "HALVES=narrow" in candidate.source
    values = small(candidate) | {"BLOCK_N": 256}
    check(candidate, "a @ b", drawn(*shapes, dtype=torch.float16), **values)


@pytest.mark.parametrize("expression", ["a @ b", "a.T @ b.T", "torch.triu(a @ b)"])
def test_descriptors_read_float32_too(proposed, expression):
    candidates = proposed(expression, (40, 40), (40, 40), units=NO_UNITS)
    (candidate,) = (each for each in candidates if structure(each) == "descriptors")
    check(candidate, expression, drawn((40, 40), (40, 40)), **small(candidate))


def test_a_product_holds_for_other_sizes_and_layouts(proposed):
    expression = "F.linear(a, b, c)"
    for candidate in proposed(expression, (2, 17, 19), (23, 19), (23,), units=NO_UNITS):
        arguments = drawn((3, 5, 33), (65, 33), (65,))
        check(candidate, expression, arguments, **small(candidate))
        strided = drawn((33, 5, 3), (33, 65), (65,))
        turned = [strided[0].permute(2, 1, 0), strided[1].T, strided[2]]
        check(candidate, expression, turned, **small(candidate))


@pytest.mark.parametrize(
    ("expression", "shapes", "others"),
    [
        ("a @ b", ((17, 19), (19, 23)), ((17, 19), (18, 23))),
        ("a @ b", ((2, 17, 19), (19, 23)), ((17, 19), (19, 23))),
        ("a @ b", ((17, 19), (19, 1)), ((17, 19), (19, 2))),
        ("F.linear(a, b, c)", ((17, 19), (23, 19), (23,)), ((17, 19), (23, 19), (1,))),
        ("(a @ b).view(2, 9, 23)", ((18, 19), (19, 23)), ((20, 19), (19, 23))),
        ("torch.relu(a @ b)", ((17, 19), (19, 23)), ((18, 19), (19, 23))),
        ("a.unsqueeze(1) * b", ((17,), (17, 23)), ((1,), (17, 23))),
    ],
)
def test_what_a_kernel_was_not_made_for_is_refused(proposed, expression, shapes, others):
    for candidate in proposed(expression, *shapes):
        with pytest.raises(ValueError, match="only"):
            CHECK.interpreted(candidate, *drawn(*others))


def test_empty_operands_give_what_they_should(proposed):
    for candidate in proposed("a @ b", (17, 19), (19, 23), units=NO_UNITS):
        assert CHECK.interpreted(candidate, torch.ones(0, 19), torch.ones(19, 23)).shape == (0, 23)
        got = CHECK.interpreted(candidate, torch.ones(5, 0), torch.ones(0, 7), **small(candidate))
        assert torch.equal(got, torch.zeros(5, 7))

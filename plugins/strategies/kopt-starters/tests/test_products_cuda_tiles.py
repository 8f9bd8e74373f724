"""Tiled products in CUDA C++: run by a CPU against float64, compiled for three architectures."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("kopt_cuda")

import torch

from kopt.errors import CandidateError
from kopt.model.kernel_file import header_of
from kopt_cuda.compiling import LOG, compile_cubin
from kopt_cuda.resources import resources_of
from kopt_cuda.toolchain import find_toolchain
from kopt_starters.families.products import Products

F = torch.nn.functional
HERE = Path(__file__)
CHECK = SimpleNamespace(**runpy.run_path(str(HERE.with_name("checking.py"))))
ON_CPU = SimpleNamespace(**runpy.run_path(str(HERE.with_name("cuda_on_cpu.py"))))
CUDA = CHECK.TARGET.model_copy(update={"language": "cuda"})
SMALL = {
    "BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 16, "WARP_M": 16, "WARP_N": 32, "STAGES": 3, "GROUP": 2,
}  # fmt: skip
"""Several tiles, warps and steps out of little; some are no choice."""


@pytest.fixture
def proposed(graph_of):
    """Return the CUDA kernels for an expression over arguments of these shapes."""

    def made(expression: str, *shapes: tuple[int, ...], dtype: str = "float32"):
        named = dict(zip("abcd", shapes, strict=False))
        source = f"def reference({', '.join(named)}):\n    return {expression}\n"
        return list(Products().propose(graph_of(source, dtype=dtype, **named), CUDA))

    return made


def check(candidate, expression: str, shapes, dtype: str, **knobs: int) -> None:
    """Compare what a candidate writes with the result in float64."""
    generator = torch.Generator().manual_seed(5)
    drawn = [torch.randn(shape, generator=generator) for shape in shapes]
    arguments = [each.to(getattr(torch, dtype)) for each in drawn]
    space = dict(zip("abcd", [each.double() for each in arguments], strict=False))
    exact = eval(expression, {"torch": torch, "F": F}, space)
    given = dict(zip("abcd", arguments, strict=False))
    (got,) = ON_CPU.run(candidate, [(exact.shape, arguments[0].dtype)], given, **knobs)
    CHECK.assert_accurate(got, exact, 16)


LAYOUTS = {
    "a @ b": ((70, 45), (45, 83)),
    "a @ b ": ((70, 48), (48, 88)),
    "a.T @ b": ((48, 72), (48, 88)),
    "a.T @ b ": ((48, 70), (48, 84)),
    "a @ b.T": ((70, 48), (83, 48)),
    "a.T @ b.T": ((48, 72), (83, 48)),
}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("expression", LAYOUTS)
def test_operands_of_any_layout(proposed, expression, dtype):
    shapes = LAYOUTS[expression]
    (candidate,) = proposed(expression.strip(), *shapes, dtype=dtype)
    check(candidate, expression.strip(), shapes, dtype, **SMALL)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("expression", ["a @ b ", "a.T @ b.T"])
def test_warps_as_large_as_by_default(proposed, expression, dtype):
    shapes = LAYOUTS[expression]
    (candidate,) = proposed(expression.strip(), *shapes, dtype=dtype)
    large = {"BLOCK_M": 64, "BLOCK_N": 128, "WARP_M": 32, "WARP_N": 64}
    check(candidate, expression.strip(), shapes, dtype, **SMALL | large)


@pytest.mark.parametrize(("expression", "shapes", "dtype"), [
    ("(a @ b).T", ((70, 48), (48, 88)), "float32"),
    ("torch.bmm(a, b)", ((3, 37, 40), (3, 40, 24)), "bfloat16"),
    ("a @ b", ((2, 3, 17, 20), (2, 3, 20, 40)), "float32"),
    ("a @ b", ((2, 17, 20), (20, 40)), "float16"),
    ("F.linear(a, b, c)", ((2, 17, 40), (56, 40), (56,)), "bfloat16"),
    ("torch.addmm(c, a, b, alpha=0.5, beta=2)", ((37, 40), (40, 41), (37, 1)), "float16"),
    ("torch.addmm(c, a, b, beta=0)", ((37, 40), (40, 41), (37, 1)), "float32"),
    ("torch.baddbmm(c, a, b)", ((3, 17, 40), (3, 40, 24), (3, 1, 24)), "float32"),
    ("torch.einsum('bqhd,bkhd->bhqk', a, b)", ((2, 17, 3, 16), (2, 11, 3, 16)), "float16"),
])  # fmt: skip
def test_batches_views_and_biases(proposed, expression, shapes, dtype):
    (candidate,) = proposed(expression, *shapes, dtype=dtype)
    check(candidate, expression, shapes, dtype, **SMALL)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_knobs_as_they_are(proposed, dtype):
    shapes = ((20, 40), (40, 24))
    (candidate,) = proposed("a @ b", *shapes, dtype=dtype)
    check(candidate, "a @ b", shapes, dtype)
    check(candidate, "a @ b", shapes, dtype, STAGES=4 if candidate.chosen["STAGES"] == 2 else 2)


def test_errors_do_not_add_up_along_a_long_depth(proposed):
    """Sums of positive numbers, one by one, are off by several times what those of pieces are."""
    generator = torch.Generator().manual_seed(5)
    a, b = torch.rand(16, 16384, generator=generator), torch.rand(16384, 32, generator=generator)
    (candidate,) = proposed("a @ b", a.shape, b.shape)
    source = candidate.source.replace("LONG = true", "LONG = false")
    assert source != candidate.source
    errors = []
    for each in (candidate, candidate.model_copy(update={"source": source})):
        (got,) = ON_CPU.run(each, [((16, 32), torch.float32)], {"a": a, "b": b}, **SMALL)
        errors.append(float((got.double() - a.double() @ b.double()).square().mean().sqrt()))
    assert errors[0] < errors[1] / 3


def test_other_extents_of_the_same_kind_and_no_others(proposed):
    (candidate,) = proposed("a @ b", (64, 48), (48, 88), dtype="float16")
    check(candidate, "a @ b", ((33, 24), (24, 40)), "float16", **SMALL)
    for shapes in (((33, 20), (20, 40)), ((33, 24), (32, 40))):
        arguments = [torch.zeros(shape, dtype=torch.float16) for shape in shapes]
        with pytest.raises(CandidateError, match="requires"):
            ON_CPU.run(
                candidate, [((33, 40), torch.float16)], dict(zip("ab", arguments, strict=True))
            )


def test_warps_have_to_fit_into_a_block(proposed):
    (candidate,) = proposed("a @ b", (64, 48), (48, 88))
    arguments = {"a": torch.zeros(64, 48), "b": torch.zeros(48, 88)}
    for knobs in ({"BLOCK_M": 16, "WARP_M": 32}, {"BLOCK_M": 128, "BLOCK_N": 256, "WARP_M": 16}):
        with pytest.raises(CandidateError, match="WARP_M"):
            ON_CPU.run(candidate, [((64, 88), torch.float32)], arguments, **knobs)


LARGE = {
    "a @ b": ((4096, 4096), (4096, 4096)),
    "a @ b ": ((4095, 4095), (4095, 4095)),
    "a.T @ b": ((4096, 4096), (4096, 4096)),
    "F.linear(a, b, c)": ((4096, 4096), (4096, 4096), (4096,)),
    "torch.bmm(a, b)": ((64, 512, 80), (64, 80, 64)),
    "a @ b  ": ((4096, 16384), (16384, 4096)),
}


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_kernels_compile_without_spills(proposed, tmp_path, dtype, architecture):
    toolchain = find_toolchain()
    if toolchain is None:
        pytest.skip("no compiler for CUDA C++")
    for expression, shapes in LARGE.items():
        (candidate,) = proposed(expression.strip(), *shapes, dtype=dtype)
        options = [f"-D{name}={value}" for name, value in candidate.chosen.items()]
        compile_cubin(toolchain, candidate.source, architecture, options, [], tmp_path)
        (used,) = resources_of((tmp_path / LOG).read_text()).values()
        assert used.spill_bytes in (0, None), expression


def test_operands_are_copied_in_pieces_that_their_extents_allow(proposed):
    for shapes, pieces in (
        (((64, 48), (48, 88)), (8, 8)),
        (((64, 44), (44, 90)), (4, 2)),
        (((64, 45), (45, 83)), (1, 1)),
    ):
        (candidate,) = proposed("a @ b", *shapes, dtype="float16")
        assert f"LEFT_PIECE = {pieces[0]}, RIGHT_PIECE = {pieces[1]};" in candidate.source
        asked = [each for each in header_of(candidate.source)["requires"] if "%" in each]
        assert any("a.shape[1] %" in each for each in asked) == (pieces[0] > 1)


@pytest.mark.parametrize(("expression", "shapes"), [
    ("torch.relu(a @ b)", ((64, 64), (64, 64))),
    ("torch.triu(a @ b)", ((64, 64), (64, 64))),
    ("(a.view(8, 8, 64) @ b).transpose(0, 1)", ((64, 64), (64, 64))),
    ("torch.einsum('bij,jk->bki', a, b).transpose(1, 2).contiguous() + 1", ((2, 8, 8), (8, 8))),
])  # fmt: skip
def test_other_products_have_none(proposed, expression, shapes):
    assert proposed(expression, *shapes) == []


def test_names_that_the_launch_plan_needs(graph_of):
    for name in ("out", "STAGES"):
        source = f"def reference({name}, b):\n    return {name} @ b\n"
        graph = graph_of(source, **{name: (64, 64), "b": (64, 64)})
        assert list(Products().propose(graph, CUDA)) == []

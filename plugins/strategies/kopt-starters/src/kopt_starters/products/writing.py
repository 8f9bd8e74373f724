"""Writes the kernel file of a product: header, kernels and a launcher with its strides."""

from __future__ import annotations

from keyword import iskeyword
from typing import TYPE_CHECKING

from kopt.model.kernel_file import parse_kernel
from kopt_starters import rendering
from kopt_starters.products.knobs import DEEPEST_STRIP
from kopt_starters.products.launching import ENTRY, launcher
from kopt_starters.rendering import identifier, template

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kopt.model.candidate import Candidate, Knob
    from kopt_starters.codegen import Epilogue
    from kopt_starters.graph import Graph
    from kopt_starters.products.axes import Step
    from kopt_starters.products.matching import Product

_SHARED = ("shared", "summed", "halved")
"""Parts that several kernels have."""
_TAKEN = {ENTRY, "functools", "torch", "triton", "tl", "_launch"}


def written(
    graph: Graph, product: Product, kind: str, knobs: Mapping[str, Knob], idea: str
) -> Candidate | None:
    """Return the candidate of a kind of kernel; None where names would clash."""
    if not names_fit(graph, knobs):
        return None
    places = _places(product) | _descriptors(product) | _batches(product)
    places["deepest"] = str(DEEPEST_STRIP)
    places["walk"] = _part("product_walk.py.txt", {})
    places |= {name: _part(f"{name}.py.txt", {}) for name in ("halves", "launches")}
    shared = {name: _part(f"product_{name}.py.txt", places) for name in _SHARED}
    source = template(f"product_{kind}.py.txt").substitute(
        places,
        **shared,
        header=header(knobs),
        launcher=launcher(graph, product, list(knobs)),
    )
    return parse_kernel(source, "triton", strategy="starters", idea=f"product: {idea}")


def names_fit(graph: Graph, knobs: Iterable[str]) -> bool:
    """Return whether the reference's arguments can be those of an entry with these knobs."""
    names = [identifier(argument.name) for argument in graph.arguments]
    usable = all(name.isidentifier() and not iskeyword(name) for name in names)
    return usable and not {*names} & (_TAKEN | {*knobs}) and len({*names}) == len(names)


def _part(name: str, places: Mapping[str, str]) -> str:
    return template(name).substitute(places).rstrip("\n")


def header(knobs: Mapping[str, Knob]) -> str:
    """Return the kopt header of a Python kernel."""
    return rendering.header("#", [f'entry = "{ENTRY}"'], knobs)


def _places(product: Product) -> dict[str, str]:
    """Return what kernels leave open: offsets along each group, and what follows the product."""
    wide = {"b": "z", "m": "m.to(tl.int64)", "n": "n.to(tl.int64)"}
    names = {"b": "batch", "m": "row", "n": "column"}
    found = {}
    for which, letter in enumerate("abco"):
        for group, name in names.items():
            steps = product.steps[group]
            stride = f"{letter}_{name}"
            # A dense axis needs no more than 32 bits, and wide offsets cost registers.
            dense = group != "b" and product.stride(which, group) == 1 and len(steps) == 1
            found[stride] = offset(group if dense else wide[group], steps, which, stride)
    lines = _finish(product, found)
    found["place"] = _place(product, found)
    found["c"] = "c"
    found["helpers"] = ""
    if product.epilogue is not None:
        lines += _fused(product, product.epilogue, found)
    found["finish"] = "\n".join(f"    {line}" for line in lines)
    found["depth"] = _depth(product)
    return found


def _fused(product: Product, epilogue: Epilogue, found: dict[str, str]) -> list[str]:
    """Return the lines of an epilogue; adds what they need to the places."""
    index = {"b": "z", "m": "m", "n": "n"}
    if product.result.elements >= 1 << 31:
        index |= {"m": "m.to(tl.int64)", "n": "n.to(tl.int64)"}
    coordinates = [index[group] for group in product.coordinates]
    lines, variable = epilogue.lines("sums", coordinates, "(m < M) & (n < N)")
    found["place"] = f"out + {epilogue.offset(coordinates)}"
    found["c"] = ", ".join(["c", *epilogue.parameters, *epilogue.scalars])
    found["helpers"] = epilogue.helpers(lines).strip("\n")
    return lines if variable == "sums" else [*lines, f"sums = {variable}"]


def _place(product: Product, found: Mapping[str, str]) -> str:
    """Return where a tile's elements go: 64 bits for its corner, 32 within it."""
    corner, within = ["out", found["o_batch"]], []
    for group, first, inner, name in (("m", "row", "i", "o_row"), ("n", "column", "j", "o_column")):
        levels = len(product.steps[group])
        if levels == 1:
            corner.append(f"{first}.to(tl.int64) * {name}")
        within.append(f"{inner} * {name}" if levels <= 1 else found[name])
    return f"{' + '.join(corner)} + ({' + '.join(within)})"


def offset(index: str, steps: tuple[Step, ...], which: int, stride: str) -> str:
    """Return an offset: the index times one stride, or a digit of it for each level of a nest."""
    if len(steps) <= 1:
        return f"{index} * {stride}"
    terms, inner = [], 1
    for level, step in reversed(list(enumerate(steps))):
        digit = f"{index} // {inner}" if inner > 1 else index
        digit = f"{digit} % {step.extent}" if level else digit
        terms.append(f"({digit}) * {step.strides[which]}")
        inner *= step.extent
    return f"({' + '.join(reversed(terms))})"


def _finish(product: Product, places: Mapping[str, str]) -> list[str]:
    lines: list[str] = []
    if product.alpha != 1:
        lines.append(f"sums = sums * {product.alpha!r}")
    if product.bias and product.beta != 0:
        lines += _biased(product, places)
    if product.triangle:
        lines.append(f"sums = tl.where({_kept(product, 'n', 'm')}, sums, 0.0)")
    return lines


def _biased(product: Product, places: Mapping[str, str]) -> list[str]:
    names = {"b": "c_batch", "m": "c_row", "n": "c_column"}
    moves = [g for g in names if any(step.strides[2] for step in product.steps[g])]
    at = " + ".join(["c", *(f"({places[names[g]]})" for g in moves)])
    masks = {"m": "(m < M)", "n": "(n < N)"}
    mask = " & ".join(masks[g] for g in moves if g in masks)
    masked = f", mask={mask}, other=0.0" if mask else ""
    scale = "" if product.beta == 1 else f" * {product.beta!r}"
    return [f"sums += tl.load({at}{masked}).to(tl.float32){scale}"]


def _kept(product: Product, column: str, row: str) -> str:
    triangle = product.triangle
    assert triangle is not None
    sign = ">=" if triangle.upper else "<="
    return f"{column} - {row} {sign} {triangle.diagonal}"


def _depth(product: Product) -> str:
    """Return how deep a tile is summed: not at all where nothing of it is kept."""
    if product.triangle is None:
        return "K"
    if product.triangle.upper:
        corner = _kept(product, "column + BLOCK_N - 1", "row")
    else:
        corner = _kept(product, "column", "(row + BLOCK_M - 1)")
    return f"tl.where({corner}, K, 0)"


def _batches(product: Product) -> dict[str, str]:
    """Return how many batches of each operand there are: one where it is the same for all."""
    several = len(product.steps["b"]) > 1
    each = "batches" if several else "batches if strides[{}] else 1"
    return {"left_batches": each.format(0), "right_batches": each.format(3)}


def _descriptors(product: Product) -> dict[str, str]:
    """Return the descriptors of both operands, along whichever of their axes is dense."""
    wide = product.left.groups.get("k") and product.stride(0, "k") == 1
    tall = product.right.groups.get("n") and product.stride(1, "n") == 1
    left = ("M", "K", "a_row", "[BLOCK_M, BLOCK_K]", "left_tiles.load([left_at + row, start])")
    right = (
        "K", "N", "b_depth", "[BLOCK_K, BLOCK_N]", "right_tiles.load([right_at + start, column])"
    )  # fmt: skip
    if not wide:
        left = (
            "K", "M", "a_depth", "[BLOCK_K, BLOCK_M]", "left_tiles.load([left_at + start, row]).T"
        )  # fmt: skip
    if not tall:
        right = (
            "N", "K", "b_column", "[BLOCK_N, BLOCK_K]",
            "right_tiles.load([right_at + column, start]).T",
        )  # fmt: skip
    return _described("left", "a", *left) | _described("right", "b", *right)


def _described(
    side: str, name: str, rows: str, columns: str, stride: str, block: str, load: str
) -> dict[str, str]:
    """Return what a template leaves open about one operand: batches lie below each other."""
    size = f"{rows} + (batches - 1) * {side}_batch, {columns}"
    return {
        f"{side}_descriptor": f"{side}_tiles = tl.make_tensor_descriptor(\n        "
        f"{name}, [{size}], [{stride}, 1], {block})",
        f"{side}_load": load,
        f"{side}_stride": stride,
        f"{side}_rows": size,
    }

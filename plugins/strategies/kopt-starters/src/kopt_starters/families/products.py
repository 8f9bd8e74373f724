"""Matrix products: tiled, persistent, split over the depth, through descriptors, and with vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from kopt_starters.hardware import copies_tiles
from kopt_starters.products.diagonal import diagonal_of, scaling
from kopt_starters.products.halves_cuda import halves_kernel
from kopt_starters.products.knobs import (
    DEEPEST_STRIP,
    Sizes,
    copied_knobs,
    default_tile,
    halved_knobs,
    halving_pays,
    parts_wanted,
    persistent_knobs,
    split_knobs,
    strip_knobs,
    tile_knobs,
    vector_knobs,
)
from kopt_starters.products.matching import product_of
from kopt_starters.products.tiles_cuda import tiles_kernel
from kopt_starters.products.vector_cuda import vector_kernel
from kopt_starters.products.writing import written

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kopt.model.candidate import Candidate, Knob
    from kopt.model.device import Device, Target
    from kopt_starters.graph import Graph
    from kopt_starters.products.matching import Product

_DTYPES = frozenset({"float32", "float16", "bfloat16"})
_STRIPPED = 4096
"""Rows and columns from which on strips are tried."""
_LONGEST_STRIDE = 1 << 22
"""Within a tile, offsets are 32 bits wide."""


Written: TypeAlias = "tuple[Product, str, dict[str, Knob], str]"
"""What is written: a product, a template's name, knobs, and the idea in words."""


class ProductsInHalves:
    """The kernel in CUDA C++ of a float32 product in float16s, which is Hopper's."""

    name = "products-halves"

    def propose(self, graph: Graph, target: Target) -> Iterable[Candidate]:
        """Return the kernel for a large product, with a bias at most; empty for any other graph."""
        product = product_of(graph) if target.language == "cuda" else None
        if product is None or not _computable(product):
            return []
        product = _upright(product)
        kernel = halves_kernel(graph, product, Sizes.of(product, target.device))
        return [] if kernel is None else [kernel]


class Products:
    """Kernels for one matrix product, whatever views it is read and written through."""

    name = "products"

    def propose(self, graph: Graph, target: Target) -> Iterable[Candidate]:
        """Return kernels for a product that is all of the graph; in CUDA C++, for plain ones only."""
        if target.language == "triton":
            found = _triton(graph, target.device)
        elif target.language == "cuda":
            found = _cuda(graph, target.device)
        else:
            return []
        return [candidate for candidate in found if candidate is not None]


def _triton(graph: Graph, device: Device) -> Iterator[Candidate | None]:
    diagonal = diagonal_of(graph)
    if diagonal is not None:
        yield scaling(graph, diagonal)
        return
    product = product_of(graph)
    if product is not None and _computable(product):
        for each, template, knobs, idea in _structures(_upright(product), device):
            yield written(graph, each, template, knobs, idea)


def _cuda(graph: Graph, device: Device) -> Iterator[Candidate | None]:
    product = product_of(graph)
    if product is not None and _computable(product):
        product = _upright(product)
        write = vector_kernel if product.size["n"] == 1 else tiles_kernel
        yield write(graph, product, Sizes.of(product, device))


def _upright(product: Product) -> Product:
    """Return a product whose vector, if one operand is one, is a column; and that is not stored across."""
    across = product.stride(3, "m") == 1 < product.stride(3, "n")
    return product.flipped() if product.size["m"] == 1 or across else product


def _computable(product: Product) -> bool:
    tensors = [each.tensor for each in (product.left, product.right, product.bias) if each]
    dtypes = {value.dtype for value in tensors}
    strides = [
        abs(stride)
        for group, steps in product.steps.items() if group != "b"
        for step in steps for stride in step.strides
    ]  # fmt: skip
    fits = len(dtypes) == 1 and {*dtypes, product.result.dtype} <= _DTYPES
    return fits and max(strides, default=0) < _LONGEST_STRIDE


def _structures(product: Product, device: Device) -> Iterator[Written]:
    """Yield how a product may be computed, the most promising first."""
    sizes, units = Sizes.of(product, device), device.units
    if sizes.columns == 1:
        knobs = vector_knobs(sizes, along=product.stride(0, "k") == 1)
        yield product, "vector", knobs, "strips of rows times a vector"
        return
    if halving_pays(sizes) and copies_tiles(device):
        yield from _halved(product, sizes)
    if sizes.tiles(*default_tile(sizes)) < units and parts_wanted(sizes) > 1:
        yield product, "split", split_knobs(sizes), "programs share the depth of a tile"
    if sizes.itemsize == 2 and _writes_most(product, sizes) and _readable(product, sizes):
        idea = "strips of a short depth, written through descriptors"
        yield product, "strips", strip_knobs(sizes), idea
    structures = [(product, "tiles", tile_knobs(sizes), "one program per tile")]
    if sizes.tiles(*default_tile(sizes)) > units:
        structures = _walking(product, sizes, structures)
    yield from structures


def _halved(product: Product, sizes: Sizes) -> Iterator[Written]:
    """Yield the structures that lay operands out anew, each number as two float16s."""
    if _writes_most(product, sizes):
        idea = "strips of a short depth, of operands laid out in two float16s a number first"
        yield product, "halves_strips", strip_knobs(sizes), idea
    idea = "operands laid out in two float16s a number first"
    yield product, "halves", halved_knobs(sizes), idea


def _walking(product: Product, sizes: Sizes, structures: list[Written]) -> list[Written]:
    """Return structures, and those of a fixed grid where they suit."""
    knobs = persistent_knobs(sizes)
    aligned, described = _aligned(product, sizes), _described(product, sizes)
    walked = [*structures, (product, "persistent", knobs, "a fixed grid walks over tiles")]
    idea = "a fixed grid walks over tiles that come through descriptors"
    if not described:
        return walked
    if not aligned:  # the others read few bytes at a time
        idea += ", from copies with aligned rows"
        return [(product, "descriptors", copied_knobs(sizes), idea), *structures]
    through = [(product, "descriptors", knobs, idea)]
    if sizes.itemsize == 4:
        return [*walked, *through]
    return [*through, *walked]


def _writes_most(product: Product, sizes: Sizes) -> bool:
    """Whether a product is so shallow that it is written in strips, and nothing else is done to it."""
    plain = product.epilogue is None and product.bias is None and product.triangle is None
    plain = plain and all(len(product.steps[group]) <= 1 for group in "mn")
    shallow = sizes.batches == 1 and sizes.depth <= DEEPEST_STRIP
    rows = product.stride(3, "m") * sizes.itemsize % 16 == 0 and product.stride(3, "n") == 1
    return (
        plain and product.alpha == 1 and shallow and rows
        and min(sizes.rows, sizes.columns) >= _STRIPPED
    )  # fmt: skip


def _readable(product: Product, sizes: Sizes) -> bool:
    """Whether descriptors can read both operands as they are."""
    return _described(product, sizes) and _aligned(product, sizes)


def _described(product: Product, sizes: Sizes) -> bool:
    """Whether both operands can be read through tensor descriptors: matrices, a dense axis.

    Only where the device has them: addresses that are computed instead take registers.
    """
    if any(len(product.steps[group]) > 1 for group in "bmnk") or not copies_tiles(sizes.device):
        return False
    if not all(min(pair) == 1 for pair in _strides(product)):
        return False
    batches = zip((0, 1), _strides(product), strict=True)
    below = all(product.stride(at, "b") % max(pair) == 0 for at, pair in batches)
    return sizes.batches == 1 or (below and sizes.depth % 64 == 0)


def _aligned(product: Product, sizes: Sizes) -> bool:
    """Whether both operands' rows begin at multiples of 16 bytes."""
    return all(max(pair) * sizes.itemsize % 16 == 0 for pair in _strides(product))


def _strides(product: Product) -> list[tuple[int, int]]:
    sides = ((0, "m", "k"), (1, "k", "n"))
    return [(product.stride(at, outer), product.stride(at, inner)) for at, outer, inner in sides]

"""Float32 products in CUDA C++ on Hopper's tensor cores, each number as two float16s."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopt.model.kernel_file import parse_kernel
from kopt_starters import rendering
from kopt_starters.cuda import group_product, launch, scratch
from kopt_starters.gpu import nearest
from kopt_starters.hardware import has_warpgroup_products, shared_bytes
from kopt_starters.products import tiles_cuda as tiles
from kopt_starters.products.knobs import halving_pays
from kopt_starters.products.launching import extent, requirements
from kopt_starters.rendering import identifier

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kopt.model.candidate import Candidate, Knob
    from kopt_starters.graph import Graph
    from kopt_starters.products.knobs import Sizes
    from kopt_starters.products.matching import Product

_WIDTHS = (128, 192)
"""Columns of a tile that registers and five slots of shared memory are enough for."""
_PAIR = 256
"""Rows of the tiles of a cluster, which are above each other."""
_BLOCK = 64
"""Numbers of the depth with one power of two."""
_SCRATCH = ("left", "right", "rows", "columns")
"""Operands in halves, and powers of two of their rows and columns."""
_IDEA = "product: operands laid out in two float16s a number, pairs of blocks share what they fetch"


def halves_kernel(graph: Graph, product: Product, sizes: Sizes) -> Candidate | None:
    """Return the kernel of a product with a bias at most; None where it is more, or scattered."""
    knobs = _knobs(sizes)
    plain = tiles.supported(product) and len(product.steps["k"]) <= 1
    suits = has_warpgroup_products(sizes.device) and halving_pays(sizes)
    if not plain or not suits or not tiles.names_fit(graph, {*knobs, *_SCRATCH}):
        return None
    groups = [f"#if BLOCK_N == {n}\n{group_product('float16', n)}\n#endif" for n in _WIDTHS]
    places = tiles.result_places(product)
    source = rendering.template("product_halves.cu").substitute(
        places,
        header=_header(product, sizes, knobs),
        products="\n".join(groups),
        wgmma=rendering.part("wgmma.cu"),
        direct=rendering.part("product_directly.cu"),
        room=str(shared_bytes(sizes.device)),
        a_batch=tiles.batch(product, "a"),
        b_batch=tiles.batch(product, "b"),
        left_z="z" if _batches(product, 0) else "0",
        right_z="z" if _batches(product, 1) else "0",
        strides=_declared(product, "ab"),
        parameters=_parameters(product),
    )
    return parse_kernel(source, "cuda", strategy="starters", idea=_IDEA)


def _knobs(sizes: Sizes) -> dict[str, Knob]:
    def cost(width: int) -> int:
        """Return about how long it takes: how often each multiprocessor has a tile, and its columns."""
        count = 2 * sizes.batches * -(-sizes.rows // _PAIR) * -(-sizes.columns // width)
        return -(-count // sizes.units) * (width + 16)

    return {"BLOCK_N": nearest(min(_WIDTHS, key=cost), _WIDTHS), "GROUP": nearest(4, [2, 4, 8])}


def _batches(product: Product, which: int) -> bool:
    """Whether an operand is another one in each batch."""
    return any(step.strides[which] for step in product.steps["b"])


def _declared(product: Product, letters: str) -> str:
    """Return strides of tensors as parameters."""
    return ", ".join(f"long long {name}" for name in _strides(product, letters))


def _strides(product: Product, letters: str) -> dict[str, str]:
    return {name: each for name, each in tiles.strides(product).items() if name[0] in letters}


def _parameters(product: Product) -> str:
    bias = "const Element *__restrict__ c, " if tiles.biased(product) else ""
    sizes = "int batches, int M, int N, int K"
    return f"{bias}Element *__restrict__ out, {sizes}, {_declared(product, 'co')}"


def _header(product: Product, sizes: Sizes, knobs: Mapping[str, Knob]) -> str:
    left, right = (identifier(each.tensor.name) for each in (product.left, product.right))
    batches, rows, columns, depth = (extent(product, group) for group in "bmnk")
    lefts, rights = (batches if _batches(product, which) else "1" for which in (0, 1))
    pairs, across = f"cdiv({rows}, {_PAIR})", f"cdiv({columns}, BLOCK_N)"
    blocks = f"cdiv({depth}, {_BLOCK})"
    bias = [identifier(product.bias.tensor.name)] if product.bias and tiles.biased(product) else []
    inner = _strides(product, "ab").values()
    result = [*bias, "out", batches, rows, columns, depth, *_strides(product, "co").values()]
    laid = [left, right, *_SCRATCH, lefts, rows, columns, depth, *inner]
    parts = f"({lefts} * {pairs} * {_PAIR // 64} + {rights} * {across} * BLOCK_N // 64)"
    lines = [
        f"requires = [{', '.join(tiles.quoted(requirements(product)))}]",
        *scratch("left", f"{lefts} * {pairs} * {blocks} * {_PAIR * _BLOCK}"),
        *scratch("right", f"{rights} * {across} * {blocks} * BLOCK_N * {_BLOCK}"),
        *scratch("rows", f"{lefts} * {pairs} * {blocks} * {_PAIR}", dtype="uint8"),
        *scratch("columns", f"{rights} * {across} * {blocks} * BLOCK_N", dtype="uint8"),
        *launch("lay", [f"{blocks} * {parts}"], [256], laid),
        *launch(
            "multiply_tiles",
            [f"2 * {batches} * {pairs} * {across}"],
            [384],
            [left, right, *_SCRATCH, *result, *inner],
        ),
        "cluster = [2]",
        f"shared = {shared_bytes(sizes.device)}",
    ]
    return rendering.header("//", lines, knobs)

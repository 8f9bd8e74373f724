"""Matrix times vector in CUDA C++, where the matrix lies in memory along its depth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopt.model.candidate import Knob
from kopt.model.kernel_file import parse_kernel
from kopt_starters import cuda
from kopt_starters.gpu import nearest
from kopt_starters.rendering import header, identifier, template, text

if TYPE_CHECKING:
    from kopt.model.candidate import Candidate
    from kopt_starters.graph import Graph
    from kopt_starters.products.knobs import Sizes
    from kopt_starters.products.matching import Product


def vector_kernel(graph: Graph, product: Product, sizes: Sizes) -> Candidate | None:
    """Return the kernel of a plain matrix-vector product; None where it is another, or more."""
    matrix, vector = product.left.tensor, product.right.tensor
    piece = 16 // sizes.itemsize
    if not _plain(product, sizes) or sizes.depth % piece or matrix.name == vector.name:
        return None
    names = {identifier(argument.name) for argument in graph.arguments}
    scalars = any(argument.tensor is None for argument in graph.arguments)
    knobs = _knobs(sizes, piece)
    if scalars or names & {*knobs, "out", "partial"} or not all(map(str.isidentifier, names)):
        return None
    element = cuda.ELEMENTS[matrix.dtype]
    shared = "PARTS" in knobs
    source = template("product_vector.cu").substitute(
        header=_header(
            identifier(matrix.name), identifier(vector.name), len(matrix.shape), piece, knobs
        ),
        include=element.include,
        element=element.type,
        written="float" if shared else element.type,
        wide=element.wide,
        second=text("product_vector_parts.cu") if shared else "",
    )
    idea = "product: strips of rows times a vector, 16 bytes at a time"
    return parse_kernel(source.rstrip("\n") + "\n", "cuda", strategy="starters", idea=idea)


def _plain(product: Product, sizes: Sizes) -> bool:
    """Whether rows follow each other in memory, and nothing is done but multiplying."""
    more = product.bias or product.epilogue or product.triangle or product.alpha != 1
    rows = product.stride(0, "m") in (sizes.depth, 0)
    dense = product.stride(0, "k") == 1 == product.stride(1, "k")
    out = product.stride(3, "m") in (1, 0)
    return product.whole and not more and sizes.batches == 1 and rows and dense and out


def _knobs(sizes: Sizes, piece: int) -> dict[str, Knob]:
    """Rows of a block share the vector; blocks share rows where there are few rows."""
    rows = max(1, min(4, sizes.rows // (2 * sizes.units)))
    knobs = {
        "ROWS": nearest(rows, {1, 2, 4, 8}),
        "THREADS": nearest(256, {128, 256, 512}),
        "UNROLL": nearest(2, {1, 2, 4}),
    }
    blocks = -(-sizes.rows // rows)
    most = max(1, sizes.depth // (2 * 256 * piece))
    parts = min(most, -(-4 * sizes.units // blocks))
    if parts > 1:
        knobs["PARTS"] = nearest(parts, {max(1, parts // 2), parts, min(most, 2 * parts)})
    return knobs


def _header(matrix: str, vector: str, rank: int, piece: int, knobs: dict[str, Knob]) -> str:
    depth = f"{matrix}.shape[{rank - 1}]"
    rows = f"{matrix}.numel // {depth}" if rank > 1 else "1"
    shared = "PARTS" in knobs
    lines = [f'requires = ["{depth} % {piece} == 0"]']
    if shared:
        lines += cuda.scratch("partial", f"PARTS * ({rows})")
    to = "partial" if shared else "out"
    grid = [f"cdiv({rows}, ROWS)", "PARTS" if shared else 1]
    given = [matrix, vector, to, rows, f"{depth} // {piece}"]
    lines += cuda.launch("strips", grid, ["THREADS"], given)
    if shared:
        given = ["partial", "out", rows, "PARTS"]
        lines += cuda.launch("add_parts", [f"cdiv({rows}, 256)"], [256], given)
    return header("//", lines, knobs)

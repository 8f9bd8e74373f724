"""Tiled matrix products in CUDA C++: on tensor cores for halves, exact in registers for float32."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopt.model.kernel_file import parse_kernel
from kopt_starters import rendering
from kopt_starters.cuda import ACCESS_BYTES, ELEMENTS, launch, memory_of, piece_of
from kopt_starters.products.knobs import block_knobs
from kopt_starters.products.launching import extent, requirements, stride
from kopt_starters.products.writing import offset
from kopt_starters.rendering import identifier

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kopt.model.candidate import Candidate, Knob
    from kopt_starters.graph import Graph
    from kopt_starters.products.knobs import Sizes
    from kopt_starters.products.matching import Product

_STRIDES = {
    "a": (0, {"b": "a_batch", "m": "a_row", "k": "a_depth"}),
    "b": (1, {"b": "b_batch", "k": "b_depth", "n": "b_column"}),
    "c": (2, {"b": "c_batch", "m": "c_row", "n": "c_column"}),
    "o": (3, {"b": "o_batch", "m": "o_row"}),
}
"""By tensor (left, right, bias, result), its place in ``Step.strides`` and names of strides."""
_TENSOR_INCLUDES = "#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n#include <mma.h>"
_MOST_WARPS = 16
_LONG = 4096
"""The depth from which on sums are made in pieces (at 16384 rms errors were 2.2 times cuBLAS's)."""


def tiles_kernel(graph: Graph, product: Product, sizes: Sizes) -> Candidate | None:
    """Return the kernel of a product with a bias at most; None where it is more, or scattered."""
    knobs = block_knobs(sizes)
    if not supported(product) or not names_fit(graph, knobs):
        return None
    single = sizes.itemsize == 4
    sums = rendering.text(f"product_sums_{'float' if single else 'tensor'}.cu").rstrip("\n")
    source = rendering.template("product_tiles.cu").substitute(
        _places(product, sizes),
        header=_header(product, sizes, knobs),
        includes="" if single else _TENSOR_INCLUDES,
        sums=sums,
    )
    idea = "product: a block per tile, " + (
        "exact in registers" if single else "on tensor cores, operands fetched ahead"
    )
    return parse_kernel(source, "cuda", strategy="starters", idea=idea)


def supported(product: Product) -> bool:
    """Whether rows and columns each have one stride, with columns side by side in the result."""
    single = all(len(product.steps[group]) <= 1 for group in "mn")
    plain = product.epilogue is None and product.triangle is None
    return plain and single and product.stride(3, "n") == 1


def names_fit(graph: Graph, knobs: Iterable[str]) -> bool:
    """Return whether a plan can have the reference's arguments beside these names."""
    names = [identifier(argument.name) for argument in graph.arguments]
    tensors = all(argument.tensor is not None for argument in graph.arguments)
    fit = all(map(str.isidentifier, names)) and len({*names}) == len(names)
    return tensors and fit and not {*names} & {*knobs, "out"}


def _deep(product: Product, which: int) -> bool:
    """Whether an operand's tile lies along the depth: as the operand does, if it can be told."""
    return product.stride(which, "k") == 1 or product.stride(which, "mn"[which]) != 1


def _piece(product: Product, which: int, itemsize: int) -> int:
    """Return how many elements of an operand can be copied at once."""
    outer, inner = ("mn"[which], "k") if _deep(product, which) else ("k", "mn"[which])
    if product.stride(which, inner) != 1:
        return 1
    batches = [step.strides[which] for step in product.steps["b"]]
    extents = [product.size[inner], product.stride(which, outer), *batches]
    return piece_of(itemsize, *extents)


def _aligned(product: Product, itemsize: int) -> bool:
    """Whether all rows of the result begin, and end, at multiples of 16 bytes."""
    batches = [step.strides[3] for step in product.steps["b"]]
    extents = [product.size["n"], product.stride(3, "m"), *batches]
    return piece_of(itemsize, *extents) == ACCESS_BYTES // itemsize


def biased(product: Product) -> bool:
    """Whether anything is added to the product."""
    return product.bias is not None and product.beta != 0


def _places(product: Product, sizes: Sizes) -> dict[str, str]:
    """Return what the template leaves open, but for the header and how sums are made."""
    element = ELEMENTS[product.left.tensor.dtype]
    pieces = [_piece(product, which, sizes.itemsize) for which in (0, 1)]
    return {
        **result_places(product),
        "element": element.type,
        "wide": element.wide,
        "left_deep": flag(_deep(product, 0)),
        "right_deep": flag(_deep(product, 1)),
        "left_piece": str(pieces[0]),
        "right_piece": str(pieces[1]),
        "left_type": memory_of(element, pieces[0]),
        "right_type": memory_of(element, pieces[1]),
        "long": flag(sizes.depth > _LONG),
        "aligned": flag(_aligned(product, sizes.itemsize)),
        "parameters": _parameters(product),
        "a_batch": batch(product, "a"),
        "b_batch": batch(product, "b"),
    }


def result_places(product: Product) -> dict[str, str]:
    """Return what the ``Result`` of a template leaves open."""
    bias = biased(product)
    result = ["out + " + batch(product, "o"), "M", "N", "o_row"]
    if bias:
        result += ["c + " + batch(product, "c"), "c_row", "c_column"]
    return {
        "bias_members": "const Element *c;\n    long long c_row, c_column;" if bias else "",
        "finish": _finish(product),
        "result": ", ".join(result),
    }


def flag(value: bool) -> str:
    """Return a bool in C++."""
    return "true" if value else "false"


def _finish(product: Product) -> str:
    """Return the expression of an element: its sum, scaled, and its part of the bias."""
    found = "value" if product.alpha == 1 else f"value * {_number(product.alpha)}"
    if not biased(product):
        return found
    added = "wide(c[row * c_row + column * c_column])"
    scaled = added if product.beta == 1 else f"{added} * {_number(product.beta)}"
    return f"{found} + {scaled}"


def _number(value: float) -> str:
    return f"float({value!r})"


def batch(product: Product, letter: str) -> str:
    """Return where a batch of a tensor begins, in C."""
    which, names = _STRIDES[letter]
    return offset("z", product.steps["b"], which, names["b"]).replace("//", "/")


def strides(product: Product) -> dict[str, str]:
    """Return the strides that the kernel is given, by name."""
    several = len(product.steps["b"]) > 1
    return {
        name: stride(product, which, group)
        for letter, (which, names) in _STRIDES.items()
        if letter != "c" or biased(product)
        for group, name in names.items()
        if group != "b" or not several
    }


def _parameters(product: Product) -> str:
    bias = "const Element *__restrict__ c, " if biased(product) else ""
    declared = ", ".join(f"long long {name}" for name in strides(product))
    return f"{bias}Element *__restrict__ out, int M, int N, int K,\n      {declared}"


def _header(product: Product, sizes: Sizes, knobs: Mapping[str, Knob]) -> str:
    tensors = [product.left.tensor, product.right.tensor]
    if product.bias is not None and biased(product):
        tensors.append(product.bias.tensor)
    extents = {group: extent(product, group) for group in "bmnk"}
    arguments = [*(identifier(value.name) for value in tensors), "out"]
    arguments += [*(extents[group] for group in "mnk"), *strides(product).values()]
    warps = "BLOCK_M // WARP_M * (BLOCK_N // WARP_N)"
    grid = f"cdiv({extents['m']}, BLOCK_M) * cdiv({extents['n']}, BLOCK_N)"
    if extents["b"] != "1":
        grid = f"{extents['b']} * {grid}"
    required = [*requirements(product), *_divided(product, sizes)]
    required += ["BLOCK_M % WARP_M == 0", "BLOCK_N % WARP_N == 0", f"{warps} <= {_MOST_WARPS}"]
    shared = f'shared = "{_shared(product, sizes, warps)}"'
    lines = [f"requires = [{', '.join(quoted(required))}]"]
    lines += [*launch("tiles", [grid], [f"32 * {warps}"], arguments), shared]
    return rendering.header("//", lines, knobs)


def quoted(texts: list[str]) -> list[str]:
    """Return texts as a header has them, each once."""
    return [f'"{text}"' for text in dict.fromkeys(texts)]


def _divided(product: Product, sizes: Sizes) -> list[str]:
    """Return which extents and strides of the arguments have to be whole numbers of pieces."""
    pieces = [_piece(product, which, sizes.itemsize) for which in (0, 1)]
    of_result = ACCESS_BYTES // sizes.itemsize if _aligned(product, sizes.itemsize) else 1
    return [
        each
        for which, piece in ((0, pieces[0]), (1, pieces[1]), (3, of_result))
        for each in divided(product, which, piece)
    ]


def divided(product: Product, which: int, piece: int) -> list[str]:
    """Return what has to be a whole number of pieces for a tensor to be read, or written, by them."""
    if piece == 1:
        return []
    inner, outer = ("n", "m") if which == 3 else ("k", "mn"[which])
    if which != 3 and not _deep(product, which):
        inner, outer = outer, inner
    walked = [stride(product, which, group) for group in (outer, "b")]
    extents = [extent(product, inner), *walked]
    return [f"{each} % {piece} == 0" for each in extents if not each.isdigit()]


def _shared(product: Product, sizes: Sizes, warps: str) -> str:
    """Return the bytes of the ring, and at least those of the strips that write the result."""
    pad = ACCESS_BYTES // sizes.itemsize
    sides = [
        f"{outer} * (BLOCK_K + {pad})" if _deep(product, which) else f"BLOCK_K * ({outer} + {pad})"
        for which, outer in enumerate(("BLOCK_M", "BLOCK_N"))
    ]
    ring = f"{sizes.itemsize} * STAGES * ({' + '.join(sides)})"
    return ring if sizes.itemsize == 4 else f"max({ring}, 64 * (WARP_N + 4) * {warps})"

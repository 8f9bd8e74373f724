"""Products and convolutions of means, for means and average poolings of what they make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, TypeAlias

from kopt_starters.graph import Node, Value
from kopt_starters.pipeline.tidying import given_instead

if TYPE_CHECKING:
    from kopt_starters.graph import Given

POOLS = {"avg_pool2d": 2, "avg_pool3d": 3}
"""Average poolings, with how many dimensions they pool."""
Make: TypeAlias = Callable[[Sequence[int], str], Value]
"""Returns a new value of a shape and a dtype."""
Sizes: TypeAlias = tuple[int, ...]
Pooled: TypeAlias = tuple[Sizes, Sizes, Sizes, Sizes, Sizes]
"""Taps, the stride and padding to pool weights with, and those of the convolution that is left."""


def of_product(
    make: Make, node: Node, product: Node, groups: tuple[int, int], right: Node | None
) -> list[Node] | None:
    """Multiply with means over neighbouring columns, instead of taking means of what is made.

    :param groups: how many columns are left, and how many each of them is the mean of.
    :param right: what makes the product's second operand.
    """
    added = product.operator == "addmm"
    if product.named or len(product.given) != 2 + added:
        return None
    *bias, x, columns = product.tensors
    left, taken = groups
    if added and bias[0].shape != (left * taken,):
        return None
    dtype = columns.dtype
    nodes, means = _column_means(make, columns, groups, right)
    out = make((x.shape[0], left), dtype)
    if added:
        split, mean = make((left, taken), dtype), make((left, 1), dtype)
        flat, plain = make((left,), dtype), make(out.shape, dtype)
        nodes += [
            Node("view", "default", (bias[0], split.shape), {}, (split,)),
            Node("mean", "dim", (split, (1,), True), {}, (mean,)),
            Node("view", "default", (mean, flat.shape), {}, (flat,)),
            Node("mm", "default", (x, means), {}, (plain,)),
            Node("add", "Tensor", (plain, flat), {}, (out,)),
        ]
    else:
        nodes.append(Node("mm", "default", (x, means), {}, (out,)))
    return [*nodes, Node("view", "default", (out, node.output.shape), {}, (node.output,))]


def _column_means(
    make: Make, columns: Value, groups: tuple[int, int], right: Node | None
) -> tuple[list[Node], Value]:
    """Return means over neighbouring columns, taken where they lie: as rows, if it is transposed."""
    (left, taken), depth, dtype = groups, columns.shape[0], columns.dtype
    means = make((depth, left), dtype)
    if right is not None and _turns(right):
        source = right.tensors[0]
        grouped, mean = make((left, taken, depth), dtype), make((left, 1, depth), dtype)
        rows = make((left, depth), dtype)
        return [
            Node("view", "default", (source, grouped.shape), {}, (grouped,)),
            Node("mean", "dim", (grouped, (1,), True), {}, (mean,)),
            Node("view", "default", (mean, rows.shape), {}, (rows,)),
            Node("t", "default", (rows,), {}, (means,)),
        ], means
    grouped, mean = make((depth, left, taken), dtype), make((depth, left, 1), dtype)
    return [
        Node("view", "default", (columns, grouped.shape), {}, (grouped,)),
        Node("mean", "dim", (grouped, (2,), True), {}, (mean,)),
        Node("view", "default", (mean, means.shape), {}, (means,)),
    ], means


def _turns(node: Node) -> bool:
    """Whether an operator turns a matrix's rows into its columns."""
    if node.operator == "t":
        return True
    if len(node.output.shape) != 2 or node.operator not in ("permute", "transpose"):
        return False
    dims = node.argument(1, "dims") if node.operator == "permute" else node.given[1:3]
    order = [dim % 2 for dim in dims if isinstance(dim, int)] if isinstance(dims, tuple) else []
    return order == [1, 0] or (node.operator == "transpose" and order == [0, 1])


def of_transposed(
    make: Make, node: Node, convolution: Node, dims: Sequence[int]
) -> list[Node] | None:
    """The mean of a transposed convolution that cuts nothing off: every input meets every tap."""
    x, weight, bias, _, padding, _, transposed, _, groups = convolution.given
    assert isinstance(x, Value) and isinstance(weight, Value)
    spatial = tuple(range(2, len(x.shape)))
    if transposed is not True or groups != 1 or any(each(padding, len(spatial))):
        return None
    if tuple(dims) != spatial:
        return None
    out, dtype = node.output, node.output.dtype
    share = prod(x.shape[2:]) * prod(weight.shape[2:]) / prod(convolution.output.shape[2:])
    means, taps = make(x.shape[:2], dtype), make(weight.shape[:2], dtype)
    multiplied, mean = make(out.shape[:2], dtype), make(out.shape[:2], dtype)
    nodes = [
        Node("mean", "dim", (x, spatial, False), {}, (means,)),
        Node("mean", "dim", (weight, spatial, False), {}, (taps,)),
        Node("mm", "default", (means, taps), {}, (multiplied,)),
        Node("mul", "Tensor", (multiplied, share), {}, (mean,)),
    ]
    if isinstance(bias, Value):
        shifted = make(mean.shape, dtype)
        nodes.append(Node("add", "Tensor", (mean, bias), {}, (shifted,)))
        mean = shifted
    return [*nodes, Node("view", "default", (mean, out.shape), {}, (out,))]


def of_dimension(
    make: Make, node: Node, convolution: Node, dims: Sequence[int]
) -> list[Node] | None:
    """Convolve means of the input over where each tap goes, along one dimension.

    What a tap adds to a mean over the results is the mean of a window of the input, as long as
    the result and as far from its edge as the tap is.
    """
    x, weight, bias, stride, padding, dilation, transposed, extra, groups = convolution.given
    assert isinstance(x, Value) and isinstance(weight, Value)
    rank, dim = len(x.shape) - 2, dims[0]
    at = dim - 2
    if at < 0 or any(step != 1 for step in each(dilation, rank)):
        return None
    out, steps, pads = convolution.output, each(stride, rank), each(padding, rank)
    if steps[at] != 1:
        return _strided(make, node, convolution, dim) if transposed is True else None
    taps, long, size = weight.shape[dim], out.shape[dim], x.shape[dim]
    more = each(extra, rank)[at] if transposed is True else 0
    edge = taps - 1 - pads[at] + more if transposed is True else pads[at]
    count = taps + more  # the first windows may be of no tap
    if edge < 0 or count >= long or size + 2 * edge - long + 1 != count:
        return None
    flat = make((x.shape[0], prod(x.shape[1:dim]), size, prod(x.shape[dim + 1 :])), x.dtype)
    means = make((*flat.shape[:2], count, flat.shape[3]), x.dtype)
    window = make((*x.shape[:dim], count, *x.shape[dim + 1 :]), x.dtype)
    kept = make((*out.shape[:dim], 1, *out.shape[dim + 1 :]), out.dtype)
    inside = count - 1 if transposed is True else 0
    pads = (*pads[:at], inside, *pads[at + 1 :])
    given = (window, weight, bias, steps, pads, (1,) * rank, transposed, extra, groups)
    nodes = [
        Node("view", "default", (x, flat.shape), {}, (flat,)),
        Node("avg_pool2d", "default", (flat, (long, 1), (1, 1), (edge, 0)), {}, (means,)),
        Node("view", "default", (means, window.shape), {}, (window,)),
    ]
    if len(dims) == 1:
        return [*nodes, Node("convolution", "default", given, {}, (node.output,))]
    rest = Node("mean", "dim", (kept, tuple(dims[1:]), True), {}, (node.output,))
    return [*nodes, Node("convolution", "default", given, {}, (kept,)), rest]


def _strided(make: Make, node: Node, convolution: Node, dim: int) -> list[Node] | None:
    """A mean over a strided dimension is one over means of as many places as it strides."""
    stride = each(convolution.given[3], len(node.output.shape) - 2)
    window = tuple(step if n == dim - 2 else 1 for n, step in enumerate(stride))
    shape = convolution.output.shape
    if shape[dim] % stride[dim - 2]:
        return None
    pooled = make(
        (*shape[:dim], shape[dim] // stride[dim - 2], *shape[dim + 1 :]), node.output.dtype
    )
    pool = f"avg_pool{max(len(window), 2)}d"
    pooling = Node(pool, "default", (convolution.output, window, window), {}, (pooled,))
    swapped = of_convolution(make, pooling, convolution)
    return [*swapped, given_instead(node, lambda v: pooled)] if swapped else None


def of_convolution(make: Make, node: Node, convolution: Node) -> list[Node] | None:
    """Pool the weights instead of the result."""
    x, weight, bias, stride, padding, dilation, transposed, _, groups = convolution.given
    assert isinstance(weight, Value) and isinstance(x, Value)
    rank, window = len(x.shape) - 2, window_of(node)
    if len(window) != rank or any(step != 1 for step in each(dilation, rank)):
        return None
    steps, pads = each(stride, rank), each(padding, rank)
    kernel = weight.shape[2:]
    if transposed is True:
        found = _pooled_transposed(kernel, steps, pads, window)
    else:
        found = _pooled_dense(kernel, steps, pads, window)
    if found is None:
        return None
    taps, pool_step, pool_pad, steps, pads = found
    extras: tuple[int, ...] = (0,) * rank
    if transposed is True:
        sizes = zip(x.shape[2:], taps, steps, pads, node.output.shape[2:], strict=True)
        extras = tuple(end - ((n - 1) * s + k - 2 * p) for n, k, s, p, end in sizes)
        if min(extras) < 0:
            return None
    pooled = make((*weight.shape[:2], *taps), weight.dtype)
    given = (x, pooled, bias, steps, pads, (1,) * rank, transposed, extras, groups)
    return [
        Node(node.operator, "default", (weight, window, pool_step, pool_pad), {}, (pooled,)),
        Node("convolution", "default", given, {}, (node.output,)),
    ]


def _pooled_dense(kernel: Sizes, steps: Sizes, pads: Sizes, window: Sizes) -> Pooled | None:
    """Pooled once for each place where a window may begin before a tap; strides multiply."""
    if any(step != 1 for step in steps) or _work(kernel, window) <= 1:
        return None
    taps = tuple(k + w - 1 for k, w in zip(kernel, window, strict=True))
    return taps, (1,) * len(window), tuple(w - 1 for w in window), window, pads


def _work(kernel: Sizes, window: Sizes) -> float:
    """How much less there is to multiply."""
    before = prod(k * w for k, w in zip(kernel, window, strict=True))
    return before / prod(k + w - 1 for k, w in zip(kernel, window, strict=True))


def _pooled_transposed(kernel: Sizes, steps: Sizes, pads: Sizes, window: Sizes) -> Pooled | None:
    """Where a window is as wide as the stride, whole windows of taps meet each input.

    Output ``o`` is the mean of taps ``s (o - i) + p + j`` (``j`` below the stride ``s``) of input
    ``i``: a transposed convolution of stride 1 with taps pooled from ``-(s - 1)`` on or later.
    """
    taps, edges, moved, left = [], [], [], []
    for k, s, p, w in zip(kernel, steps, pads, window, strict=True):
        left.append(1 if w > 1 else s)
        if w == 1:  # nothing is pooled along this dimension
            taps.append(k)
            edges.append(0)
            moved.append(p)
            continue
        if w != s:
            return None
        first = -((p + s - 1) // s)  # the first o - i whose window still holds a tap
        edge = -(s * first + p)
        count = (k - 1 + edge) // s + 1
        if not 0 <= edge < s or (k + 2 * edge - s) // s + 1 != count:
            return None
        taps.append(count)
        edges.append(edge)
        moved.append(-first)
    return tuple(taps), tuple(window), tuple(edges), tuple(left), tuple(moved)


def each(given: Given, count: int) -> tuple[int, ...]:
    """Return an operator's sizes, one per dimension; one that is given stands for all."""
    values = given if isinstance(given, tuple) else (given,)
    numbers = tuple(value for value in values if isinstance(value, int))
    return numbers * count if len(numbers) == 1 else numbers


def window_of(node: Node) -> tuple[int, ...]:
    """Return the window of an average pooling."""
    return each(node.argument(1, "kernel_size"), POOLS[node.operator])

"""Maximum and average pooling over one, two or three trailing dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, TypeAlias

from kopt_starters import rendering
from kopt_starters.families.filling import FLOATS, filled, powers
from kopt_starters.families.pooling_cuda import bands_kernel
from kopt_starters.gpu import nearest
from kopt_starters.graph import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kopt.model.candidate import Candidate, Knob
    from kopt.model.device import Target
    from kopt_starters.graph import Given, Graph, Node

Three: TypeAlias = tuple[int, int, int]

_OPERATORS = {
    "max_pool2d_with_indices": 2, "max_pool3d_with_indices": 3, "avg_pool2d": 2, "avg_pool3d": 3,
}  # fmt: skip
_TAPS = 64
"""The largest window that is written out position by position."""
_UNROLLED = 128
"""Reads that one program may have written out."""
_LONG = 4096
"""Outputs of a row from which on its ends hardly count."""
_WIDEST = 64
"""Window along the row that is still gathered one position after the other."""


@dataclass(frozen=True)
class Pool:
    """A pooling; extents are depth, height and width, 1 where the input has fewer."""

    kind: str
    """``max`` or ``avg``."""
    x: Value
    dims: int
    """How many trailing dimensions are pooled."""
    extents: Three
    pooled: Three
    window: Three
    stride: Three
    padding: Three
    dilation: Three
    ceil: bool
    include: bool
    """Padding counts in a mean."""
    divisor: int | None
    """What a mean divides by, where that is given."""

    @property
    def fixed_divisor(self) -> int | None:
        """What every mean divides by, if that is the same: no window ends beyond what counts."""
        whole = self.include and not self.ceil and self.kind == "avg"
        return prod(self.window) if whole and self.divisor is None else self.divisor

    @property
    def touching(self) -> bool:
        """Wide windows that do not overlap along a row."""
        return 4 < self.window[2] <= self.stride[2]


class Pooling:
    """Kernels for a reference that is one pooling."""

    name = "pooling"

    def propose(self, graph: Graph, target: Target) -> Iterable[Candidate]:
        """Return kernels for a pooling; empty for any other graph."""
        pool = recognised(graph) if target.language in ("triton", "cuda") else None
        if pool is None:
            return []
        if target.language == "cuda":
            bands = bands_kernel(graph, pool, target.device)
            return [] if bands is None else [bands]
        kinds = [
            _anywhere(graph, pool),
            _packed(graph, pool),
            _lanes(graph, pool),
            _rows(graph, pool),
        ]
        if not pool.touching and (pool.stride[2] > 1 or prod(pool.window) > 32):
            kinds.reverse()
        return [kernel for kernel in kinds if kernel is not None]


def recognised(graph: Graph) -> Pool | None:
    """Return the pooling that a graph is; None where it is none, or has several outputs."""
    nodes = list(graph.nodes)
    flat = len(nodes) == 3 and _is_1d(nodes)
    node = nodes[1] if flat else nodes[0] if len(nodes) == 1 else None
    if node is None or node.operator not in _OPERATORS or graph.result is None:
        return None
    x = nodes[0].given[0]
    if not isinstance(x, Value) or x.dtype not in FLOATS or graph.result != nodes[-1].output:
        return None
    # In 1D the positions of the maxima are squeezed last, and a trace does not say what is
    # returned: its dtype does.
    if graph.call.outputs[0].dtype.removeprefix("torch.") != x.dtype:
        return None
    return _described(node, x, 1 if flat else _OPERATORS[node.operator])


def _is_1d(nodes: list[Node]) -> bool:
    """Return whether a 1D pooling is done as one in 2D: a dimension is put in, and taken out."""
    before, node, after = nodes
    fits = before.operator == "unsqueeze" and after.operator == "squeeze"
    if not fits or _OPERATORS.get(node.operator) != 2:
        return False
    rank = len(before.output.shape)
    places = [before.argument(1, "dim"), after.argument(1, "dim")]
    single = [p[0] if isinstance(p, tuple) and len(p) == 1 else p for p in places]
    if any(p not in (-2, rank - 2) for p in single):
        return False
    return node.given[0] == before.output and after.given[0] in node.outputs


def _described(node: Node, x: Value, dims: int) -> Pool | None:
    largest = node.operator.startswith("max")
    window = _three(node.argument(1, "kernel_size"), dims)
    stride = _three(node.argument(2, "stride") or node.argument(1, "kernel_size"), dims)
    padding = _three(node.argument(3, "padding", 0), dims, 0)
    dilation = _three(node.argument(4, "dilation", 1) if largest else 1, dims)
    extents, pooled = _three(x.shape[-dims:], dims), _three(node.output.shape[-dims:], dims)
    ceil = node.argument(5 if largest else 4, "ceil_mode", False)
    include = True if largest else node.argument(5, "count_include_pad", True)
    divisor = None if largest else node.argument(6, "divisor_override")
    if window is None or stride is None or padding is None or dilation is None:
        return None
    if extents is None or pooled is None or prod(extents[1:]) >= 2**31:
        return None
    if not isinstance(divisor, int | None) or x.elements == 0:
        return None
    return Pool(
        "max" if largest else "avg", x, dims, extents, pooled, window, stride, padding, dilation,
        ceil is True, include is True, divisor,
    )  # fmt: skip


def _three(given: Given, dims: int, missing: int = 1) -> Three | None:
    """Return an operator's extents as three; a 1D pooling in 2D has one that does nothing."""
    if dims == 1 and isinstance(given, int) and given != missing:
        return None  # for both dimensions of what is done in 2D
    values = given if isinstance(given, tuple) else (given,)
    if not values or not all(isinstance(value, int) for value in values):
        return None
    numbers = [value for value in values if isinstance(value, int)]
    if len(numbers) == 1:
        numbers *= dims
    trailing = numbers[-dims:]
    if any(value != missing for value in numbers[:-dims]) or len(trailing) != dims:
        return None
    depth, height, width = [*[missing] * (3 - dims), *trailing]
    return depth, height, width


def _anywhere(graph: Graph, pool: Pool) -> Candidate | None:
    """Return a kernel for long rows of results that begin at no multiple of 16 bytes."""
    group = 4 if pool.x.dtype == "float32" else 8
    reach = 3 * group + (pool.window[2] - 1) * pool.dilation[2]
    odd = pool.pooled[2] % group and pool.extents[2] % group == 0 and pool.stride[2] == 1
    if pool.dims > 1 or not odd or reach > _WIDEST or pool.pooled[2] < _LONG:
        return None
    knobs = {
        "BLOCK": nearest(128, [32, 64, 128, 256]),
        "num_warps": nearest(2, [1, 2, 4, 8]),
    }
    idea = "wide reads, several outputs a lane, wide writes wherever rows begin"
    return _filled(graph, pool, "pool_anywhere.py.txt", idea, knobs, group=group)


def _packed(graph: Graph, pool: Pool) -> Candidate | None:
    group = 4 if pool.x.dtype == "float32" else 8
    before = -pool.padding[2] % group
    reach = before + (group - 1) * pool.stride[2] + (pool.window[2] - 1) * pool.dilation[2] + 1
    reads = -(-reach // group) * prod(pool.window[:2])
    if reach > _WIDEST or reads > _TAPS or pool.extents[2] % group:
        return None
    most = min(pool.pooled[1], _UNROLLED // reads, 8)
    knobs = {
        "ROWS": nearest(8 if pool.stride[1] < pool.window[1] else 1, powers(1, most)),
        "BLOCK": nearest(128, [64, 128, 256]),
        "num_warps": nearest(4, [2, 4, 8]),
    }
    idea = "wide reads, several outputs a lane"
    return _filled(graph, pool, "pool_packed.py.txt", idea, knobs, group=group)


def _lanes(graph: Graph, pool: Pool) -> Candidate | None:
    taps = prod(pool.window)
    if pool.window[0] * pool.window[2] > _TAPS:
        return None
    most = min(pool.pooled[1], max(1, _UNROLLED // taps), 8)
    block = 256 if not pool.touching else 128 if pool.x.dtype == "float32" else 512
    knobs = {
        "ROWS": nearest(8, powers(1, most)),
        "BLOCK": nearest(block, [128, 256, 512]),
        "num_warps": nearest(8 if block == 512 else 4, [2, 4, 8]),
    }
    idea = "columns in lanes, rows unrolled"
    return _filled(graph, pool, "pool_lanes.py.txt", idea, knobs, unrolled=_TAPS)


def _rows(graph: Graph, pool: Pool) -> Candidate | None:
    # A single row of windows that overlap is read faster by lanes.
    apart = prod(pool.window[:2]) > 1 or pool.stride[2] > 1
    if pool.window[2] > _WIDEST or not apart:
        return None
    widest = max(32, 1 << (pool.extents[2] - 1).bit_length())
    # Along the row each output looks through a whole tile: the wider, the longer that takes.
    wide = 2048 if pool.window[2] <= 4 else 256
    spans = powers(min(256, widest), min(wide, widest))
    span = nearest(1024, spans)
    most = max(1, min(pool.pooled[1], 4096 // int(span.default), 16))
    knobs = {
        "ROWS": nearest(max(4, 1024 // int(span.default)), powers(1, most)),
        "SPAN": span,
        "num_warps": nearest(4, [1, 2, 4, 8]),
    }
    idea = "along depth and height in wide rows, then along the row"
    return _filled(graph, pool, "pool_rows.py.txt", idea, knobs)


def _filled(
    graph: Graph,
    pool: Pool,
    template: str,
    idea: str,
    knobs: dict[str, Knob],
    *,
    group: int | None = None,
    **places: object,
) -> Candidate | None:
    common = rendering.template("pool_common.py.txt").substitute(dict(_places(pool)))
    if group is not None:
        groups = rendering.template("pool_groups.py.txt").substitute(common=common, group=group)
        places["groups"] = groups
    return filled(
        template, graph, f"{pool.kind}_pool{pool.dims}d", f"{pool.kind} pooling: {idea}",
        [pool.x.name], knobs, common=common, **places,
    )  # fmt: skip


def _places(pool: Pool) -> Iterator[tuple[str, str]]:
    yield "kind", pool.kind
    yield "dims", str(pool.dims)
    yield "rank", str(len(pool.x.shape))
    yield "divisor", str(pool.fixed_divisor)
    for name in ("window", "stride", "padding", "dilation", "ceil", "include"):
        yield name, str(getattr(pool, name))

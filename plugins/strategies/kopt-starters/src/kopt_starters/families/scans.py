"""Running sums and products along a dimension, in Triton: reversed, exclusive, masked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kopt_starters import rendering
from kopt_starters.families.filling import FLOATS, filled, powers
from kopt_starters.gpu import nearest
from kopt_starters.graph import Value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kopt.model.candidate import Candidate, Knob
    from kopt.model.device import Target
    from kopt_starters.graph import Given, Graph, Node

_TILE = 32768
"""Elements that one program keeps in registers."""


@dataclass(frozen=True)
class Scan:
    """A scan of an argument, or of its product with a mask."""

    x: Value
    mask: Value | None
    """Of the shape of x, bool."""
    dim: int
    product: bool
    reverse: bool
    """From the end of the dimension."""
    exclusive: bool
    """An element is the sum of those before it; the first is 0."""

    @property
    def inner(self) -> int:
        """Elements behind the dimension."""
        return self._extent(self.dim + 1, len(self.x.shape))

    @property
    def outer(self) -> int:
        """Elements before the dimension."""
        return self._extent(0, self.dim)

    @property
    def count(self) -> int:
        """Extent of the dimension."""
        return self.x.shape[self.dim]

    def _extent(self, first: int, stop: int) -> int:
        extent = 1
        for length in self.x.shape[first:stop]:
            extent *= length
        return extent


class Scans:
    """Kernels for a reference that is one scan."""

    name = "scans"

    def propose(self, graph: Graph, target: Target) -> Iterable[Candidate]:
        """Return kernels for a scan; empty for any other graph."""
        scan = recognised(graph) if target.language == "triton" else None
        if scan is None:
            return []
        units = target.device.units
        if scan.inner > 1:
            kinds = [_columns(graph, scan, units)]
        else:
            few = scan.outer < 2 * units and scan.count >= 16384
            kinds = [_split(graph, scan, units)] if few else []
            kinds.append(_rows(graph, scan, units))
        return [kernel for kernel in kinds if kernel is not None]


def recognised(graph: Graph) -> Scan | None:
    """Return the scan that a graph is; None where it is none."""
    result = graph.result
    if result is None:
        return None
    used: list[Node] = []
    dim = _scanned_dim(graph)
    if dim is None:
        return None
    rank = len(result.shape)
    value, exclusive = _behind_zeros(graph, result, dim, used)
    value, after = _unflipped(graph, value, dim, used)
    scan = graph.producer(value)
    if scan is None or scan.operator not in {"cumsum", "cumprod"}:
        return None
    used.append(scan)
    value, before = _unflipped(graph, _tensor(scan.given[0]), dim, used)
    if exclusive:
        value = _without_last(graph, value, dim, used)
    x, mask = _masked(graph, value, used)
    typed = scan.argument(2, "dtype") in (None, f"torch.{x.dtype}")
    whole = len(used) == len(graph.nodes) and graph.producer(x) is None
    fits = x.shape == result.shape and x.dtype in FLOATS and x.dtype == result.dtype
    if not (typed and whole and fits) or before != after or (exclusive and after):
        return None
    if rank == 0 or not x.elements or (exclusive and scan.operator == "cumprod"):
        return None
    return Scan(x, mask, dim, scan.operator == "cumprod", after, exclusive)


def _scanned_dim(graph: Graph) -> int | None:
    """Return the dimension of the only scan."""
    scans = [node for node in graph.nodes if node.operator in {"cumsum", "cumprod"}]
    if len(scans) != 1:
        return None
    return _dim(scans[0].argument(1, "dim"), len(scans[0].output.shape))


def _dim(given: Given, rank: int) -> int | None:
    if isinstance(given, tuple) and len(given) == 1:
        given = given[0]
    if not isinstance(given, int) or not -rank <= given < rank:
        return None
    return given % rank


def _tensor(given: Given) -> Value:
    return given if isinstance(given, Value) else Value("", (), "")


def _unflipped(graph: Graph, value: Value, dim: int, used: list[Node]) -> tuple[Value, bool]:
    """Return what a value is the reverse of along a dimension, and whether it is one."""
    node = graph.producer(value)
    if node is None or node.operator != "flip":
        return value, False
    if _dim(node.argument(1, "dims"), len(value.shape)) != dim:
        return value, False
    used.append(node)
    return _tensor(node.given[0]), True


def _behind_zeros(graph: Graph, value: Value, dim: int, used: list[Node]) -> tuple[Value, bool]:
    """Return what a value is behind one leading zero, and whether there is one."""
    node = graph.producer(value)
    if node is None or node.operator != "cat":
        return value, False
    pair = node.given[0]
    same = _dim(node.argument(1, "dim", 0), len(value.shape)) == dim
    if not same or not isinstance(pair, tuple) or len(pair) != 2:
        return value, False
    zeros, rest = _tensor(pair[0]), _tensor(pair[1])
    expected = (*value.shape[:dim], 1, *value.shape[dim + 1 :])
    made = _zeros(graph, zeros)
    if made is None or zeros.shape != expected:
        return value, False
    used += [node, *made]
    return rest, True


def _zeros(graph: Graph, value: Value) -> list[Node] | None:
    """Return the operators that make a tensor of zeros; None where a value is none."""
    node = graph.producer(value)
    if node is not None and node.operator == "detach":
        behind = _zeros(graph, _tensor(node.given[0]))
        return None if behind is None else [node, *behind]
    if node is None:
        return None
    fills = node.operator in {"full", "new_full", "full_like"}
    if fills and node.argument(1 if node.operator != "new_full" else 2, "fill_value") != 0:
        return None
    if not fills and node.operator not in {"zeros", "zeros_like", "new_zeros"}:
        return None
    made = [node]
    # What only lends its shape counts too.
    like = node.tensors
    while like and (shape := graph.producer(like[0])) is not None:
        if shape.operator not in {"select", "unsqueeze", "slice"}:
            return None
        made.append(shape)
        like = shape.tensors
    return made


def _without_last(graph: Graph, value: Value, dim: int, used: list[Node]) -> Value:
    """Return what a value is without its last element along a dimension; itself otherwise."""
    node = graph.producer(value)
    if node is None or node.operator != "slice":
        return value
    x = _tensor(node.given[0])
    same = _dim(node.argument(1, "dim", 0), len(value.shape)) == dim
    start = node.argument(2, "start") in (None, 0)
    if not same or not start or node.argument(4, "step", 1) != 1:
        return value
    if value.shape[dim] != x.shape[dim] - 1:
        return value
    used.append(node)
    return x


def _masked(graph: Graph, value: Value, used: list[Node]) -> tuple[Value, Value | None]:
    """Return the factors of a product with a mask of bools; the value alone otherwise."""
    node = graph.producer(value)
    if node is None or node.operator != "mul":
        return value, None
    one, other = _tensor(node.given[0]), _tensor(node.given[1])
    if one.dtype == "bool":
        one, other = other, one
    if other.dtype != "bool" or one.shape != other.shape or graph.producer(other) is not None:
        return value, None
    used.append(node)
    return one, other


def _rows(graph: Graph, scan: Scan, units: int) -> Candidate | None:
    whole = 1 << (scan.count - 1).bit_length()
    # Where there are many rows a warp for each, that waits for no other, is enough to be busy.
    many = scan.outer >= 32 * units
    blocks = [block for block in (1024, 2048, 4096, 8192) if block < whole]
    blocks += [whole] if whole <= _TILE else []
    block = nearest((2048 if many else 4096) if whole > 8192 else whole, blocks)
    most = max(1, 2048 // int(block.default))
    wanted = max(1, min(16, int(block.default) // (2048 if many else 512)))
    long = whole > int(block.default)
    groups = [1, 4, 8] if scan.reverse and whole >= 8 else [1]
    knobs = {
        "ROWS": nearest(max(1, 1024 // int(block.default)), powers(1, min(64, most))),
        "BLOCK": block,
        "STAGES": nearest(2 if long and not many else 1, [1, 2, 3]),
        # Elements of 16 bytes; they divide a tile, also of a short row.
        "GROUP": nearest(min(whole, 4 if scan.x.dtype == "float32" else 8), groups),
        "num_warps": nearest(wanted, [w for w in (1, 2, 4, 8, 16) if w <= max(8, wanted * 2)]),
    }
    return _filled(graph, scan, "scan_rows.py.txt", "tiles of rows with a carry", knobs)


def _columns(graph: Graph, scan: Scan, units: int) -> Candidate | None:
    lanes = scan.outer * scan.inner
    knobs = {
        "ROWS": nearest(8, powers(1, 16)[2:]),
        "BLOCK": nearest(max(32, min(256, lanes // (2 * units))), [32, 64, 128, 256]),
        "num_warps": nearest(1 if lanes < 512 * units else 4, [1, 2, 4]),
    }
    return _filled(graph, scan, "scan_columns.py.txt", "a lane for each column", knobs)


def _split(graph: Graph, scan: Scan, units: int) -> Candidate | None:
    if scan.outer > 65535:
        return None
    most = max(2, scan.count // 2048)
    wanted = min(most, max(2, 4 * units // scan.outer))
    knobs = {
        "PIECES": nearest(wanted, [p for p in (2, 8, 32, 128, 512, 1024) if p <= max(2, most)]),
        "BLOCK": nearest(2048, [1024, 2048, 4096]),
        "num_warps": nearest(4, [4, 8]),
    }
    return _filled(graph, scan, "scan_split.py.txt", "pieces of long rows, read twice", knobs)


def _filled(
    graph: Graph, scan: Scan, template: str, idea: str, knobs: dict[str, Knob]
) -> Candidate | None:
    form = {
        "dim": str(scan.dim), "rank": str(len(scan.x.shape)), "reverse": str(scan.reverse),
        "exclusive": str(scan.exclusive), "product": str(scan.product),
        "masked": str(scan.mask is not None),
    }  # fmt: skip
    common = rendering.template("scan_common.py.txt").substitute(form)
    entry = "cumprod" if scan.product else "cumsum"
    handed = [scan.x.name, scan.mask.name if scan.mask else "None"]
    return filled(template, graph, entry, f"{entry}: {idea}", handed, knobs, common=common)

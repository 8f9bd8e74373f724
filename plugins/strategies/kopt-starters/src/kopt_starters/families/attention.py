"""Scaled dot-product attention: as one operator, or written out as products and softmax."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from kopt.model.candidate import Knob
from kopt_starters import rendering
from kopt_starters.families.attention_cuda import flash_kernel
from kopt_starters.families.filling import FLOATS, filled
from kopt_starters.gpu import nearest
from kopt_starters.graph import Value
from kopt_starters.hardware import operands_in_registers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kopt.model.candidate import Candidate
    from kopt.model.device import Target
    from kopt_starters.graph import Given, Graph, Node

_FUSED = {
    "_scaled_dot_product_flash_attention": (None, 3, 4),
    "_scaled_dot_product_flash_attention_for_cpu": (5, 3, 4),
    "_scaled_dot_product_efficient_attention": (3, 5, 6),
    "_scaled_dot_product_cudnn_attention": (3, 5, 6),
    "_scaled_dot_product_fused_attention_overrideable": (3, 5, 6),
}
"""Positions of mask, dropout and causality."""
_RESHAPES = {"expand", "view", "_unsafe_view", "reshape", "clone"}
_NARROW = 256
"""The widest head whose tiles fit on chip whole."""
_KEYS = 1024
"""Keys of which a program can have all scores in registers."""
_LONGEST = 16384
"""Keys of which a program can have one row of scores in registers."""
_SCRATCH_BYTES = 8 << 30
"""Memory that scores may take."""


@dataclass(frozen=True)
class Attention:
    """softmax(scale q k^T) v over the last two dimensions."""

    q: Value
    k: Value
    v: Value
    scale: float
    causal: bool
    """A row looks at columns up to its own number."""


class AttentionKernels:
    """Kernels for a reference that is one attention."""

    name = "attention"

    def propose(self, graph: Graph, target: Target) -> Iterable[Candidate]:
        """Return kernels for an attention; empty for any other graph, and with a mask."""
        found = recognised(graph) if target.language in {"triton", "cuda"} else None
        if found is None:
            return []
        if target.language == "cuda":
            kernel = flash_kernel(graph, found)
            return [] if kernel is None else [kernel]
        head = max(found.q.shape[-1], found.v.shape[-1])
        tight = operands_in_registers(target.device)
        kernels = [_flash(graph, found, tight)] if head <= _NARROW else []
        single = found.q.dtype == "float32"
        if head > (128 if single else _NARROW):
            kernels += [_apart(graph, found, tight)] if single else []
            kernels.append(_wide(graph, found, tight))
        return [kernel for kernel in kernels if kernel is not None]


def recognised(graph: Graph) -> Attention | None:
    """Return the attention that a graph is; None where it is none."""
    if graph.result is None or not graph.nodes:
        return None
    found = _fused(graph) if len(graph.nodes) == 1 else _written_out(graph)
    if found is None:
        return None
    q, k, v = found.q, found.k, found.v
    if len(q.shape) < 3 or not len(q.shape) == len(k.shape) == len(v.shape):
        return None
    same = q.shape[:-2] == k.shape[:-2] == v.shape[:-2] and q.shape[-1] == k.shape[-1]
    typed = {q.dtype, k.dtype, v.dtype, graph.result.dtype} == {q.dtype} and q.dtype in FLOATS
    fits = k.shape[-2] == v.shape[-2] and graph.result.shape == (*q.shape[:-1], v.shape[-1])
    full = min(q.elements, k.elements, v.elements) > 0
    arguments = all(graph.producer(value) is None for value in (q, k, v))
    return found if same and typed and fits and full and arguments else None


def _fused(graph: Graph) -> Attention | None:
    (node,) = graph.nodes
    if node.operator not in _FUSED or graph.result != node.output:
        return None
    mask, dropout, causal = _FUSED[node.operator]
    masks = [node.named.get("attn_mask"), node.named.get("attn_bias")]
    masks += [node.argument(mask, "attn_mask")] if mask is not None else []
    if any(each is not None for each in masks) or node.argument(dropout, "dropout_p", 0.0) != 0:
        return None
    q, k, v = node.given[:3]
    if not isinstance(q, Value) or not isinstance(k, Value) or not isinstance(v, Value):
        return None
    scale = node.named.get("scale")
    if not isinstance(scale, int | float):
        scale = q.shape[-1] ** -0.5
    return Attention(q, k, v, float(scale), node.argument(causal, "is_causal", False) is True)


class _Peeling:
    """Takes operators off a value from its end, and remembers which."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.used: list[Node] = []

    def take(self, value: Given, *operators: str) -> Node | None:
        """Return the operator that made a value, if it is one of these."""
        node = self.graph.producer(value) if isinstance(value, Value) else None
        if node is None or node.operator not in operators:
            return None
        self.used.append(node)
        return node

    def matrices(self, value: Given) -> Given:
        """Return what a value has the matrices of, in another number of dimensions at most."""
        while isinstance(value, Value):
            node = self.graph.producer(value)
            before = node.given[0] if node is not None else None
            if node is None or node.operator not in _RESHAPES or not isinstance(before, Value):
                break
            if before.shape[-2:] != value.shape[-2:] or before.elements != value.elements:
                break
            self.used.append(node)
            value = before
        return value

    def scaled(self, value: Given) -> tuple[Given, float]:
        """Return what a value is a multiple of, and the factor."""
        factor = 1.0
        while True:
            value = self.matrices(value)
            node = self.graph.producer(value) if isinstance(value, Value) else None
            if node is None or node.operator not in {"mul", "div"} or len(node.given) != 2:
                return value, factor
            number = node.given[1]
            if node.named or not isinstance(number, int | float) or not number:
                return value, factor
            self.used.append(node)
            factor = factor * number if node.operator == "mul" else factor / number
            value = node.given[0]


def _written_out(graph: Graph) -> Attention | None:
    """Match matmul(softmax(scale * matmul(q, transposed k)), v)."""
    peel = _Peeling(graph)
    applied = peel.take(peel.matrices(graph.result), "bmm", "matmul")
    if applied is None:
        return None
    softmax = peel.take(peel.matrices(applied.given[0]), "_softmax", "_safe_softmax")
    v = peel.matrices(applied.given[1])
    if softmax is None or softmax.argument(1, "dim") not in (-1, len(softmax.output.shape) - 1):
        return None
    scores, scale = peel.scaled(softmax.given[0])
    product = peel.take(scores, "bmm", "matmul")
    if product is None:
        return None
    q, on_q = peel.scaled(product.given[0])
    right, on_right = peel.scaled(product.given[1])
    transposed = peel.take(right, "transpose")
    if transposed is None or not _swaps_last(transposed):
        return None
    k, on_k = peel.scaled(transposed.given[0])
    if len({id(node) for node in peel.used}) != len(graph.nodes):
        return None
    if not isinstance(q, Value) or not isinstance(k, Value) or not isinstance(v, Value):
        return None
    return Attention(q, k, v, scale * on_q * on_right * on_k, False)


def _swaps_last(node: Node) -> bool:
    rank = len(node.output.shape)
    dims = [node.argument(1, "dim0"), node.argument(2, "dim1")]
    return {dim % rank for dim in dims if isinstance(dim, int)} == {rank - 2, rank - 1}


def _precision(found: Attention) -> Knob:
    """Return how float32 products are done; halves are multiplied exactly in any case."""
    if found.q.dtype == "float32":
        return Knob(default="tf32x3", choices=("tf32x3", "ieee"))
    return Knob(default="ieee", choices=("ieee",))


def _places(found: Attention) -> dict[str, str]:
    form = {"scale": repr(found.scale), "causal": str(found.causal)}
    return {
        "head": str(found.q.shape[-1]),
        "value": str(found.v.shape[-1]),
        "common": rendering.template("attention_common.py.txt").substitute(form),
    }


def _handed(found: Attention) -> list[str]:
    return [found.q.name, found.k.name, found.v.name]


def _flash(graph: Graph, found: Attention, tight: bool) -> Candidate | None:
    """Return the kernel of one pass; ``tight``: operands take registers from sums and scores."""
    head = max(found.q.shape[-1], found.v.shape[-1])
    single, wide = found.q.dtype == "float32", head > 128
    rows = [16, 32] if wide and single else [64, 128]
    columns = [16, 32] if wide and single else [32, 64] if wide or single else [32, 64, 128]
    least = 16 if tight else 32
    knobs = {
        "BM": nearest(least if wide and single else 64 if wide or single else 128, rows),
        "BN": nearest(16 if wide and single else 32 if single else 64, columns),
        "PRECISION": _precision(found),
        "num_stages": nearest(2, [1, 2] if wide or single else [1, 2, 3]),
        "num_warps": nearest(8 if head > 64 or tight else 4, [4, 8]),
    }
    return filled(
        "attention_flash.py.txt", graph, "attention", "attention: one pass, scores stay on chip",
        _handed(found), knobs, **_places(found),
    )  # fmt: skip


def _wide(graph: Graph, found: Attention, tight: bool) -> Candidate | None:
    keys = max(16, 1 << (found.k.shape[-2] - 1).bit_length())
    if keys > _KEYS or prod(found.q.shape[:-2]) >= 2**20:
        return None
    single = found.q.dtype == "float32"
    knobs = {
        "BM": nearest((16384 if single or tight else 32768) // keys, [16, 32, 64]),
        "BK": nearest(16 if single else 64, [16, 32] if single else [32, 64]),
        "BM2": nearest(128, [64, 128]),
        "BN2": nearest(128, [64, 128, 256]),
        "PRECISION": _precision(found),
        "num_warps": nearest(8, [8, 16]),
    }
    return filled(
        "attention_wide.py.txt", graph, "attention", "attention: whole rows of scores, then v",
        _handed(found), knobs, keys=keys, **_places(found),
    )  # fmt: skip


def _apart(graph: Graph, found: Attention, tight: bool) -> Candidate | None:
    batch, queries, keys = prod(found.q.shape[:-2]), found.q.shape[-2], found.k.shape[-2]
    rows = max(16, 1 << (keys - 1).bit_length())
    if rows > _LONGEST or 4 * batch * queries * keys > _SCRATCH_BYTES or batch >= 2**20:
        return None
    knobs = {
        "BM": nearest(128, [64, 128]),
        "BN": nearest(64 if tight else 128, [64, 128]),
        "BK": nearest(32, [16, 32]),
        "PRECISION": _precision(found),
        "num_stages": nearest(3, [2, 3, 4]),
        "num_warps": nearest(8, [4, 8]),
    }
    return filled(
        "attention_apart.py.txt", graph, "attention", "attention: scores, softmax, then v turned",
        _handed(found), knobs, keys=rows, **_places(found),
    )  # fmt: skip

"""Attention in one pass in CUDA C++, on tensor cores: halves, with heads of two widths."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kopt_starters import rendering
from kopt_starters.cuda import ELEMENTS, launch
from kopt_starters.families.filling import filled_cuda
from kopt_starters.gpu import nearest

if TYPE_CHECKING:
    from kopt.model.candidate import Candidate, Knob
    from kopt_starters.families.attention import Attention
    from kopt_starters.graph import Graph

_HEADS = (64, 128)
_HELD = 2048
"""Elements of the queries that a warp can have in registers, beside as many sums."""


def flash_kernel(graph: Graph, found: Attention) -> Candidate | None:
    """Return the kernel of an attention; None for float32 and for heads of other widths."""
    head = found.q.shape[-1]
    heads = head in _HEADS and found.v.shape[-1] == head
    if not heads or found.q.dtype == "float32" or not 0 < found.scale < math.inf:
        return None
    knobs = _knobs(head)
    places = {
        "header": _header(found, knobs),
        "element": ELEMENTS[found.q.dtype].type,
        "head": str(head),
        "causal": "true" if found.causal else "false",
        "scale": repr(found.scale),
    }
    return filled_cuda(
        "attention_flash.cu", graph, "attention: one pass on tensor cores, scores stay on chip",
        knobs, places,
    )  # fmt: skip


def _knobs(head: int) -> dict[str, Knob]:
    rows = [rows for rows in (16, 32) if rows * head <= _HELD]
    return {
        "WARP_M": nearest(32, rows),
        "WARPS": nearest(4, [4, 8]),
        "BLOCK_N": nearest(64, [32, 64]),
        "STAGES": nearest(2, [2, 3]),
    }


def _header(found: Attention, knobs: dict[str, Knob]) -> str:
    q, k, v = (rendering.identifier(each.name) for each in (found.q, found.k, found.v))
    rank, pitch = len(found.q.shape), found.q.shape[-1] + 8
    lead, queries, keys = (
        f"prod({q}.shape[:-2])",
        f"{q}.shape[{rank - 2}]",
        f"{k}.shape[{rank - 2}]",
    )
    same = [f"{each}.shape[{rank - 1}] == {found.q.shape[-1]}" for each in dict.fromkeys([q, k, v])]
    others = dict.fromkeys(each for each in (k, v) if each != q)
    same += [f"prod({each}.shape[:-2]) == {lead}" for each in others]
    same += [f"{v}.shape[{rank - 2}] == {keys}"] if v != k else []
    required = ", ".join(f'"{each}"' for each in same)
    shared = f"4 * STAGES * BLOCK_N * {pitch} + WARPS * WARP_M * max({2 * pitch}, 4 * BLOCK_N + 16)"
    grid = f"{lead} * cdiv({queries}, WARPS * WARP_M)"
    lines = [
        f"requires = [{required}]",
        'flags = ["-ftz=true"]',
        *launch("attend", [grid], ["32 * WARPS"], [q, k, v, "out", queries, keys]),
        f'shared = "{shared}"',
    ]
    return rendering.header("//", lines, knobs)

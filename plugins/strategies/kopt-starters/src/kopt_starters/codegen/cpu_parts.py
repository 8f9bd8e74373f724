"""Rewrites a graph in parts as loops in C++ do it best: no rescaling, divisions that round once."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from kopt_starters.codegen.rewriting import Made, Parts
from kopt_starters.codegen.statistics import PREFIX
from kopt_starters.graph import Value

if TYPE_CHECKING:
    from kopt_starters.graph import Graph, Node


def in_cpu_parts(graph: Graph) -> Graph:
    """Return a graph in parts with softmax and logsumexp as a maximum, then a sum of powers.

    A maximum costs less per element than a power to rescale by, and the second read is of what
    a cache still has, if rows are not very long. Means are divided by their count, as in PyTorch:
    1 / count would be rounded before.
    """
    nodes: list[Node] = []
    for node in graph.nodes:
        kind = node.operator.removeprefix(PREFIX)
        if not node.operator.startswith(PREFIX) or kind not in ("softmax", "logsumexp"):
            nodes.append(_divided(node))
            continue
        (x, dims), (top, total) = node.given, node.outputs
        assert isinstance(x, Value)
        parts = Parts(node)
        parts.nodes.append(replace(node, operator=f"{PREFIX}max", outputs=(top,)))
        below = top
        if kind == "logsumexp":  # an infinity is not taken from itself
            size = parts.add("abs", top, shape=top.shape)
            infinite = parts.add("eq", size, Made(math.inf), shape=top.shape, dtype="bool")
            below = parts.add("where", infinite, Made(0.0), top, shape=top.shape)
        above = parts.add("sub", x, below, shape=x.shape)
        power = parts.add("exp_below", above, shape=x.shape)
        made = f"{PREFIX}sum"
        parts.nodes.append(replace(node, operator=made, given=(power, dims), outputs=(total,)))
        nodes += parts.nodes
    return replace(graph, nodes=tuple(nodes))


def _divided(node: Node) -> Node:
    """Return a product with 1 / count that a rewrite made as a division by the count."""
    factor = node.given[-1] if node.operator == "mul" else None
    if not isinstance(factor, Made) or not factor:
        return node
    count = round(1 / factor)
    exact = count > 0 and math.isclose(count * factor, 1, rel_tol=1e-12)
    return replace(node, operator="div", given=(node.given[0], Made(count))) if exact else node

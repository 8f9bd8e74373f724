"""Prepares a graph for being cut: names that parameters may have, and nothing that does nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kopt_starters.codegen.axes import SAME, NotCoveredError
from kopt_starters.codegen.normalisations import batch_norm
from kopt_starters.codegen.rewriting import Parts
from kopt_starters.graph import Graph, Node, Value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kopt_starters.graph import Given

VIEWS = frozenset({"_unsafe_view", "flatten", "reshape", "squeeze", "unsqueeze", "view"})
"""Operators that only give a tensor another shape."""
_BATCH_NORMS = frozenset(
    {"native_batch_norm", "_native_batch_norm_legit_no_training", "cudnn_batch_norm"}
)


def tidied(graph: Graph) -> Graph | None:
    """Return a graph of the same results in which a cut can be made after any operator.

    Copies are left out, normalisations by given statistics are element-wise operators, and values
    are named ``made_1`` and so on. None where an output is an argument, or a copy of one.
    """
    graph = _without_copies(graph)
    if any(graph.tensor(value.name) for value in graph.results):
        return None
    graph = replace(graph, nodes=tuple(_named_activations(graph)))
    return named(replace(graph, nodes=tuple(_plainer(graph.nodes))))


def _without_copies(graph: Graph) -> Graph:
    same: dict[str, Value] = {}
    nodes = []
    for node in graph.nodes:
        new = given_instead(node, lambda value: same.get(value.name, value))
        source = new.tensors[0] if new.tensors else None
        if node.operator in SAME | VIEWS and source is not None and _alike(source, node.output):
            same[node.output.name] = source
        else:
            nodes.append(new)
    results = tuple(same.get(value.name, value) for value in graph.results)
    return replace(graph, nodes=tuple(nodes), results=results)


def _alike(one: Value, other: Value) -> bool:
    return (one.shape, one.dtype) == (other.shape, other.dtype)


def _plainer(nodes: Iterable[Node]) -> list[Node]:
    """Return operators with batch norms by given statistics written out."""
    found: list[Node] = []
    for node in nodes:
        parts = Parts(node)
        if node.operator in _BATCH_NORMS and not _trains(node):
            try:
                batch_norm(parts)
            except NotCoveredError:
                parts = Parts(node)
        found += parts.nodes or [node]
    return found


def _named_activations(graph: Graph) -> list[Node]:
    """Return operators with ``x * tanh(softplus(x))`` as mish, which needs one exponential."""
    found = []
    for node in graph.nodes:
        x = _mish_of(graph, node)
        found.append(Node("mish", "default", (x,), {}, node.outputs) if x else node)
    return needed(found, graph.results)


def _mish_of(graph: Graph, node: Node) -> Value | None:
    if node.operator != "mul" or len(node.tensors) != 2 or len(node.given) != 2:
        return None
    for x, other in (node.tensors, node.tensors[::-1]):
        tanh = graph.producer(other)
        soft = graph.producer(tanh.tensors[0]) if tanh and tanh.operator == "tanh" else None
        plain = soft is not None and soft.operator == "softplus" and len(soft.given) == 1
        if soft is not None and plain and not soft.named and soft.given[0] == x:
            return x
    return None


def _trains(node: Node) -> bool:
    return not node.operator.endswith("no_training") and node.argument(5, "training") is not False


def named(graph: Graph) -> Graph:
    """Return the graph without copies, what operators make named in order, as parameters may be."""
    graph = _without_copies(graph)
    taken = {argument.name for argument in graph.arguments}
    stem = next(s for s in ("made", "made_here", "piece") if not _begins(taken, s))
    names: dict[str, str] = {}
    for node in graph.nodes:
        for value in node.outputs:
            names[value.name] = f"{stem}_{len(names) + 1}"

    def renamed(value: Value) -> Value:
        return replace(value, name=names.get(value.name, value.name))

    nodes = [
        replace(given_instead(node, renamed), outputs=tuple(map(renamed, node.outputs)))
        for node in graph.nodes
    ]
    return replace(graph, nodes=tuple(nodes), results=tuple(map(renamed, graph.results)))


def _begins(names: Iterable[str], stem: str) -> bool:
    return any(name.startswith(stem) for name in names)


def needed(nodes: Sequence[Node], results: Iterable[Value]) -> list[Node]:
    """Return those operators that results need, in order."""
    wanted = {value.name for value in results}
    found = []
    for node in reversed(nodes):
        if not wanted.isdisjoint(value.name for value in node.outputs):
            found.append(node)
            wanted |= {value.name for value in node.tensors}
    return found[::-1]


def given_instead(node: Node, other: Callable[[Value], Value]) -> Node:
    """Return an operator that is given other tensors."""

    def changed(given: Given) -> Given:
        if isinstance(given, Value):
            return other(given)
        return tuple(map(changed, given)) if isinstance(given, tuple) else given

    named: Mapping[str, Given] = {name: changed(value) for name, value in node.named.items()}
    return replace(node, given=tuple(map(changed, node.given)), named=named)

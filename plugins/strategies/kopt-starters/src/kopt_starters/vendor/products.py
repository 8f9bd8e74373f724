"""Products by the vendor's library, with all that follows by element in one kernel."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from kopt.model.candidate import Knob
from kopt_starters.codegen import NotCoveredError, epilogue
from kopt_starters.codegen.launcher import checks
from kopt_starters.codegen.leading import Leading
from kopt_starters.codegen.writer import elementwise_rule, identifier
from kopt_starters.graph import Value
from kopt_starters.vendor.rendering import handed, stored, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kopt.model.candidate import Candidate
    from kopt_starters.codegen import Epilogue
    from kopt_starters.graph import Given, Graph, Node

_OPERANDS = {"mm": 2, "bmm": 2, "addmm": 3, "baddbmm": 3}
_VIEWS = {name: name for name in ("t", "transpose", "permute", "expand", "unsqueeze", "squeeze")}
_VIEWS |= dict.fromkeys(("view", "reshape", "_unsafe_view"), "reshape")
_DTYPES = frozenset({"float32", "float16", "bfloat16"})


def products(graph: Graph) -> Iterator[Candidate | None]:
    """Yield a candidate for a product of arguments that at least two element-wise operators follow.

    The framework multiplies as it does for the reference. Raises NotCoveredError where something is
    not understood.
    """
    found = [node for node in graph.nodes if node.operator in _OPERANDS]
    if len(found) != 1 or _following(graph, found[0].output) < 2:
        return
    tail = epilogue(graph, found[0].output)
    if tail is None or {found[0].output.dtype, tail.result.dtype} - _DTYPES:
        return
    value = found[0].output
    coordinates = [f"at_{dim}" for dim in range(len(value.shape))]
    ending = stored(tail, coordinates, "flat", " + place * 0")
    knobs = {
        "BLOCK": Knob(default=1024, choices=(512, 1024, 2048)),
        "num_warps": Knob(default=4, choices=(2, 4, 8)),
    }
    leading = _leading(graph, found[0], tail)
    shape = Leading.shape(leading, tail.result.shape)
    result = f"{shape}, torch.{tail.result.dtype}, {handed(tail)}"
    body = [
        *checks(graph, tail.scalars.values(), leading=leading),
        f"return _finished({_called(graph, found[0], leading)}, {result}, BLOCK, num_warps)",
    ]
    idea = "vendor: product in cuBLAS, all that follows in one kernel"
    places = [f"{name} = {_coordinate(value.shape, at)}" for at, name in enumerate(coordinates)]
    yield write(graph, ["product"], tail, ending, body, knobs, idea, places)


def _following(graph: Graph, value: Value) -> int:
    """Return how many element-wise operators there are after a value."""
    reached, count = {value.name}, 0
    for node in graph.nodes:
        if reached.isdisjoint(given.name for given in node.tensors):
            continue
        reached |= {output.name for output in node.outputs}
        count += elementwise_rule(node) is not None
    return count


def _coordinate(shape: tuple[int, ...], at: int) -> str:
    below = prod(shape[at + 1 :])
    text = "place" if below == 1 else f"place // {below}"
    return text if at == 0 else f"{text} % {shape[at]}"


def _leading(graph: Graph, node: Node, tail: Epilogue) -> Leading | None:
    """Return the rows, or batches, where all holds for fewer of them."""
    *added, left, right = node.tensors
    several = "bmm" in node.operator
    led, fixed = ([left, right], added) if several else ([left], [*added, right])
    if any(each.shape[:1] == node.output.shape[:1] for each in added):
        return None
    roots = [[_root(graph, each) for each in some] for some in (led, fixed)]
    found = tail.leading(*roots)
    kept = found and all(_kept(graph, each, found.extent) for each in led)
    return found if kept else None


def _root(graph: Graph, value: Value) -> Value:
    """Return the argument that a value is a view of."""
    node = graph.producer(value)
    return _root(graph, node.tensors[0]) if node and node.tensors else value


def _kept(graph: Graph, value: Value, extent: int) -> bool:
    """Whether an argument's first dimension stays the outermost through all views of it."""
    node = graph.producer(value)
    if node is None:
        return value.shape[0] == extent
    rank, turned = len(value.shape), node.operator == "transpose"
    dims = [dim % rank for dim in node.given[1:] if isinstance(dim, int)]
    still = (turned and 0 not in dims) or _VIEWS.get(node.operator) == "reshape"
    return still and value.shape[0] % extent == 0 and _kept(graph, node.tensors[0], extent)


def _called(graph: Graph, node: Node, leading: Leading | None) -> str:
    """Return the product as a call of the framework."""
    if node.overload != "default" or len(node.given) != _OPERANDS[node.operator]:
        raise NotCoveredError(f"{node.operator} is given {node.given!r}")
    given = [_viewed(graph, each, leading) for each in node.given]
    given += [f"{name}={value!r}" for name, value in node.named.items() if _number(value)]
    return f"torch.{node.operator}({', '.join(given)})"


def _number(given: Given) -> bool:
    if not isinstance(given, bool | int | float):
        raise NotCoveredError(f"a scale {given!r}")
    return True


def _viewed(graph: Graph, given: Given, leading: Leading | None) -> str:
    """Return an argument with the views of it that an operator is given."""
    if not isinstance(given, Value):
        raise NotCoveredError(f"an operand {given!r}")
    node = graph.producer(given)
    if node is None:
        return identifier(given.name)
    if node.operator not in _VIEWS or node.named or len(node.tensors) != 1:
        raise NotCoveredError(f"an operand made by {node.operator}")
    rest = ", ".join(repr(each) for each in node.given[1:])
    if leading and _root(graph, given).name in leading.names and node.operator != "transpose":
        rest = Leading.shape(leading, given.shape)
    return f"{_viewed(graph, node.given[0], leading)}.{_VIEWS[node.operator]}({rest})"

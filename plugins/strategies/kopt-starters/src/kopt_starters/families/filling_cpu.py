"""Makes a family's candidate from a template in C++: header, conditions, places."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kopt.model.kernel_file import parse_kernel
from kopt_starters import rendering
from kopt_starters.codegen.axes import NotCoveredError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from kopt.model.candidate import Candidate, Knob
    from kopt_starters.codegen.leading import Leading
    from kopt_starters.graph import Graph


_OPENING = ("lanes", "functions", "statistics", "ranges", "loops")
"""Parts that begin a kernel with statistics over rows or columns: ``opening`` is all of them."""


def filled_cpp(
    template: str,
    entry: str,
    idea: str,
    arguments: Sequence[str],
    requires: Sequence[str],
    knobs: Mapping[str, Knob],
    **places: object,
) -> Candidate:
    """Return a C++ template's candidate; all of its ``.cpp`` parts are handed over by name.

    :param arguments: expressions of what its entry takes, in order.
    :param requires: conditions for which it was made; see ``shapes_hold`` and ``scalars_hold``.
    :param places: what else the template leaves open.
    """
    rows = [f'entry = "{entry}"', f"arguments = {json.dumps([*arguments])}"]
    rows += [f"requires = {json.dumps([*requires])}"] if requires else []
    parts = {name: rendering.text(f"{name}.cpp") for name in _OPENING}
    parts |= {name: str(value) for name, value in places.items()}
    parts["opening"] = "\n".join(parts[name] for name in _OPENING)
    parts["entry"] = entry
    parts["header"] = rendering.header("//", rows, knobs)
    source = rendering.template(template).substitute(parts)
    return parse_kernel(source, "cpp", strategy="starters", idea=idea)


def named(names: Sequence[str]) -> list[str]:
    """Return arguments' names as a header has them. Raises NotCoveredError where one cannot be."""
    found = [rendering.identifier(name) for name in names]
    if any(not name.isidentifier() or name == "out" for name in found):
        raise NotCoveredError("an argument's name is no parameter's")
    return found


def shapes_hold(graph: Graph, leading: Leading | None = None) -> Iterator[str]:
    """Yield conditions that tensors are of the shapes that the graph has.

    Those that have a leading axis may have less of it, and all the same.
    """
    first = leading_extent(graph, leading)
    for argument in graph.arguments:
        if argument.tensor is None:
            continue
        [name] = named([argument.name])
        led = leading is not None and argument.name in leading.names
        yield f"{name}.ndim == {len(argument.tensor.shape)}"
        for dim, extent in enumerate(argument.tensor.shape):
            if dim or not led:
                yield f"{name}.shape[{dim}] == {extent}"
            elif f"{name}.shape[0]" == first:
                yield f"{first} <= {extent}"
            else:
                yield f"{name}.shape[0] == {first}"


def leading_extent(graph: Graph, leading: Leading | None) -> str:
    """Return the expression of the leading extent; empty where there is none."""
    led = (a.name for a in graph.arguments if a.tensor and leading and a.name in leading.names)
    return next((f"{named([name])[0]}.shape[0]" for name in led), "")


def scalars_hold(graph: Graph, handed: Collection[str] = ()) -> Iterator[str]:
    """Yield conditions that arguments which are no tensors, nor ``handed`` over, are as they were.

    Raises NotCoveredError for one that is no number.
    """
    for argument in graph.arguments:
        name = rendering.identifier(argument.name)
        if argument.tensor is not None or name in handed:
            continue
        if not isinstance(argument.value, int | float):
            raise NotCoveredError(f"argument {name} is no tensor and no number")
        yield f"{name} == {argument.value!r}"

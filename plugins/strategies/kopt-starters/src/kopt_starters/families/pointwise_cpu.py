"""Element-wise references on a CPU: one pass in C++, written past the cache where that pays."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kopt.model.kernel_file import parse_kernel
from kopt_starters.codegen.axes import NotCoveredError, fresh, strides_of
from kopt_starters.codegen.functions import Term
from kopt_starters.codegen.lanes import InLanes
from kopt_starters.codegen.parts import in_parts, result_of
from kopt_starters.codegen.writer import Load, Writer, identifier, scalar_names
from kopt_starters.cpu import flat_knobs
from kopt_starters.families.pointwise import plan_of, rows_of
from kopt_starters.families.stepwise_cpu import stepwise
from kopt_starters.rendering import header, template, text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kopt.model.candidate import Candidate, Knob
    from kopt.model.device import Target
    from kopt_starters.graph import Graph, Value

_TAKEN = frozenset({
    "all", "at", "begin", "bits", "choose", "count", "elements", "end", "lanes", "load", "mine",
    "out", "pointwise", "share", "smaller", "larger", "store", "stream", "threads", "total",
})  # fmt: skip
_SHORT = 16
"""Rows below this are no vectors."""


class PointwiseCpu:
    """Element-wise operators over float32 tensors, broadcast or not."""

    name = "pointwise-cpu"

    def propose(self, graph: Graph, target: Target) -> Iterable[Candidate]:
        """Return one C++ kernel; none where anything is not element-wise.

        Over a flat range where no argument is broadcast, else over rows.
        """
        result = result_of(graph)
        if target.language != "cpp" or result is None or result.dtype != "float32":
            return []
        for write in (_flat, _rows):
            try:
                return [write(in_parts(graph), result, target)]
            except NotCoveredError:
                continue
        return []


def _rows(graph: Graph, result: Value, target: Target) -> Candidate:
    """Return a kernel for rows along which every argument is read in order, or does not move."""
    plan = plan_of(graph, result, {})
    if not plan.groups:
        raise NotCoveredError("a single element")
    step, last = rows_of(plan), plan.groups[-1][-1]
    if step.cols < _SHORT or any(load.strides.get(last, 0) > 1 for load in step.loads):
        raise NotCoveredError("rows that are no vectors")
    nbytes = 4 * (result.elements + sum(value.elements for value in plan.arguments))
    knobs = flat_knobs(nbytes, target.device)
    shared = step.rows < 4 * target.device.units
    idea = "pointwise: one pass over rows"
    return stepwise(graph, [(step, shared)], knobs, entry="pointwise", idea=idea)


def _flat(graph: Graph, result: Value, target: Target) -> Candidate:
    places = fresh(result.shape)
    steps = strides_of(places, result.shape)
    arguments: dict[str, Value] = {}

    def load(wanted: Load) -> Term:
        if wanted.strides != steps or wanted.argument.dtype != "float32":
            raise NotCoveredError("an argument of another shape or dtype")
        arguments[wanted.argument.name] = wanted.argument
        name = f"{identifier(wanted.argument.name)}_value"
        writer.lines.append(f"{name} = {name}")  # its load is put in for this
        return Term(name, "float")

    writer = Writer(graph, load, scalars=scalar_names(graph))
    term = writer.value(result, places)
    if term.kind != "float" or not arguments:
        raise NotCoveredError("no result in float32")
    lanes = InLanes()
    lines = lanes.body(line for line in writer.lines if not _is_load(line))
    loads = [
        f"const lanes {_name(n)}_value = parameters({_name(n)} + at, count);" for n in arguments
    ]
    body = [*loads, *lines, f"return {term.text};"]
    knobs = flat_knobs(4 * result.elements * (len(arguments) + 1), target.device)
    scalars = [name.removesuffix("_value") for name in sorted(writer.used)]
    source = template("pointwise_flat.cpp").substitute(
        header=_header(list(arguments), scalars, knobs),
        lanes=text("lanes.cpp"),
        ranges=text("ranges.cpp"),
        functions=f"{text('functions.cpp')}\n{lanes.functions()}",
        parameters=", ".join(f"const float* {_name(name)}" for name in arguments),
        scalar_parameters="".join(f", double {name}" for name in scalars),
        scalars="".join(f"    const lanes {n}_value = all((float){n});\n" for n in scalars),
        body="\n".join(f"            {line}" for line in body),
    )
    return parse_kernel(source, "cpp", strategy="starters", idea="pointwise: one pass")


def _is_load(line: str) -> bool:
    left, _, right = line.partition(" = ")
    return left == right


def _name(name: str) -> str:
    found = identifier(name)
    if found in _TAKEN or not found.isidentifier() or found.startswith("_"):
        raise NotCoveredError("an argument's name is no parameter's")
    return found


def _header(tensors: list[str], scalars: list[str], knobs: dict[str, Knob]) -> str:
    names = [_name(name) for name in tensors]
    rows = [
        'entry = "pointwise"',
        f"arguments = {json.dumps([*names, 'out', f'{names[0]}.numel', *scalars])}",
    ]
    if len(names) > 1:
        same = [f"{name}.shape == {names[0]}.shape" for name in names[1:]]
        rows.append(f"requires = {json.dumps(same)}")
    return header("//", rows, knobs)

"""Makes a candidate in C++ from steps that follow each other, a function for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopt_starters.codegen.column_loops import ColumnLoops
from kopt_starters.codegen.lanes import InLanes
from kopt_starters.codegen.leading import EXTENT
from kopt_starters.codegen.row_loops import RowLoops
from kopt_starters.codegen.writer import identifier
from kopt_starters.families.filling_cpu import (
    filled_cpp,
    leading_extent,
    named,
    scalars_hold,
    shapes_hold,
)
from kopt_starters.rendering import text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kopt.model.candidate import Candidate, Knob
    from kopt_starters.codegen.steps import Step
    from kopt_starters.graph import Graph, Value


def stepwise(
    graph: Graph,
    steps: Sequence[tuple[Step, bool]],
    knobs: Mapping[str, Knob],
    *,
    entry: str,
    idea: str,
) -> Candidate:
    """Return a kernel file of steps, each with whether all threads share its rows or columns.

    What a step makes for those after it lies in a buffer of the entry. Where all steps keep a leading
    axis, the kernel holds for less of it. Raises NotCoveredError.
    """
    lanes, leading = InLanes(), steps[0][0].leading
    extent = leading_extent(graph, leading)
    functions, calls, buffers = [], [], []
    for number, (step, shared) in enumerate(steps):
        rowwise = step.rowwise or not step.reductions
        kind = RowLoops if rowwise else ColumnLoops
        loops = kind(step, lanes, shared, str(number))
        functions.append(loops.function())
        to = "out"
        if number < len(steps) - 1:
            to = f"{identifier(step.result.name)}_ptr"
            count = step.result.elements
            size = f"{leading.count(count) if leading else count} * sizeof(float)"
            calls.append(f"float* const {to} = (float*)malloc({size});")
            buffers.append(to)
        given = [*loops.arguments, to, *(f"all((float){name})" for name in loops.scalars)]
        given += [EXTENT] if leading else []
        calls.append(f"step{number}({', '.join(given)});")
    calls += [f"free({name});" for name in buffers]
    tensors = _read(graph, [step for step, _ in steps])
    scalars = sorted({name for step, _ in steps for name in step.scalars})
    names = named([value.name for value in tensors])
    handed = named([name.removesuffix("_value") for name in scalars])
    out = "int64_t" if steps[-1][0].result.dtype == "int64" else "float"
    parameters = [f"const float* {name}_ptr" for name in names]
    parameters += [f"{out}* out", *(f"double {name}" for name in scalars)]
    parameters += [f"int64_t {EXTENT}"] if leading else []
    return filled_cpp(
        "stepwise.cpp", entry, idea, [*names, "out", *handed, *([extent] if leading else [])],
        [*shapes_hold(graph, leading), *scalars_hold(graph, handed)], knobs,
        functions=f"{text('functions.cpp')}\n{lanes.functions()}", steps="\n".join(functions),
        parameters=", ".join(parameters), calls="\n".join(f"    {line}" for line in calls),
    )  # fmt: skip


def _read(graph: Graph, steps: Sequence[Step]) -> list[Value]:
    """Return the arguments that are read, in order of their first read."""
    loads = (load.argument for step in steps for load in step.loads)
    names = {argument.name for argument in graph.arguments}
    return list({value.name: value for value in loads if value.name in names}.values())

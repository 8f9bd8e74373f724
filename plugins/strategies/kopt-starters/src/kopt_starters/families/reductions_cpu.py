"""Reductions on a CPU, in C++: with what leads to them and what follows them, in float32."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from kopt.model.candidate import Knob
from kopt_starters import cpu
from kopt_starters.codegen.axes import NotCoveredError, merged
from kopt_starters.codegen.cpu_parts import in_cpu_parts
from kopt_starters.codegen.parts import in_parts, result_of
from kopt_starters.codegen.steps import steps_of
from kopt_starters.families.stepwise_cpu import stepwise
from kopt_starters.operator import Layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kopt.model.candidate import Candidate
    from kopt.model.device import Device, Target
    from kopt_starters.codegen.steps import Step
    from kopt_starters.graph import Graph

_PREFETCH = Knob(default=2048, choices=(0, 512, 2048))
"""Elements ahead. 8 KiB took two thirds of the time of 2 KiB where a whole tensor was summed, and half
of that of none in sums of neighbouring columns."""


class ReductionsCpu:
    """One reduction, or several of one row or one after the other, and element-wise operators."""

    name = "reductions-cpu"

    def propose(self, graph: Graph, target: Target) -> Iterable[Candidate]:
        """Return kernels whose threads have rows of their own, or share each; the better one first.

        None where anything is not understood, or is of another dtype than float32.
        """
        result = result_of(graph)
        if target.language != "cpp" or result is None or result.dtype not in ("float32", "int64"):
            return []
        try:
            parts = in_cpu_parts(in_parts(graph))
            steps = steps_of(parts, result)
            main = max(steps, key=lambda step: step.rows * step.cols)
            layout = layout_of(main, target.device)
            kinds = [True, False] if shares(layout) else [False]
            return [_candidate(parts, steps, main, layout, shared=kind) for kind in kinds]
        except NotCoveredError:
            return []


def layout_of(step: Step, device: Device) -> Layout:
    """Return the extents of a step: where columns are reduced, ``inner`` of them side by side."""
    if step.rowwise:
        return Layout(step.rows, step.cols, 1, True, 4, device)
    groups = merged(step.kept, [step.steps, *(load.strides for load in step.loads)])
    inner = prod(axis.extent for axis in groups[-1])
    return Layout(step.rows // inner, step.cols, inner, False, 4, device)


def shares(layout: Layout) -> bool:
    """Return whether rows, or blocks of columns, are too few to keep all threads busy."""
    return cpu.few_rows(layout) or cpu.few_columns(layout)


def _knobs(step: Step, layout: Layout, *, shared: bool) -> dict[str, Knob]:
    if step.rowwise:
        knobs = (cpu.row_knobs if step.full else cpu.sum_knobs)(layout)
        knobs["PREFETCH"] = _PREFETCH
    else:
        knobs = (cpu.column_knobs if step.full else cpu.column_sum_knobs)(layout)
        if shared:  # threads part the elements of columns: blocks may be as wide as there are any
            blocks = [int(block) for block in knobs["BLOCK"].choices]
            fits = [block for block in blocks if block >= layout.inner]
            knobs["BLOCK"] = Knob(default=min(fits or blocks[-1:]), choices=tuple(blocks))
        # Beyond a block's end lie its next elements only where it is as wide as a row.
        near = layout.inner <= int(knobs["BLOCK"].default)
        knobs["PREFETCH"] = Knob(default=_PREFETCH.default if near else 0, choices=(0, 2048))
    return {**knobs, **({"THREADS": cpu.several_threads(layout)} if shared else {})}


def _candidate(
    graph: Graph, steps: Sequence[Step], main: Step, layout: Layout, *, shared: bool
) -> Candidate:
    """Return a kernel file; ``shared`` says how threads work on the step with most work."""
    kinds = [
        (step, shared if step is main else shares(layout_of(step, layout.device))) for step in steps
    ]
    over = "rows" if main.rowwise else "columns"
    how = f"{over} shared by the threads" if shared else f"{over} of its own for each thread"
    knobs = _knobs(main, layout, shared=shared)
    return stepwise(graph, kinds, knobs, entry="reduction", idea=f"reductions: {how}")

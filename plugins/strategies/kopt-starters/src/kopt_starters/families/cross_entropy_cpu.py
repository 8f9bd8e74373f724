"""Cross-entropy of logits with one class each on a CPU, in C++: one read of the logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopt_starters import cpu
from kopt_starters.codegen.axes import NotCoveredError
from kopt_starters.families.cross_entropy import recognised
from kopt_starters.families.filling_cpu import filled_cpp, named, scalars_hold
from kopt_starters.operator import Layout

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kopt.model.candidate import Candidate
    from kopt.model.device import Target
    from kopt_starters.graph import Graph

_ENDINGS = {
    "none": "for (int64_t row = 0; row < rows; ++row) out[row] = losses[row];",
    "mean": "*out = all / counted;",
    "sum": "*out = all;",
}


class CrossEntropyCpu:
    """One kernel for a reference that is the cross-entropy of its arguments in float32."""

    name = "cross-entropy-cpu"

    def propose(self, graph: Graph, target: Target) -> Iterable[Candidate]:
        """Return the kernel for a cross-entropy; empty for any other graph."""
        loss = recognised(graph)
        if loss is None or target.language != "cpp" or loss.x.dtype != "float32":
            return []
        rows, classes = loss.x.shape
        try:
            x, labels = named([loss.x.name, loss.target.name])
            requires = [f"{x}.ndim == 2", f"{labels}.shape[0] == {x}.shape[0]"]
            requires += scalars_hold(graph)
        except NotCoveredError:
            return []
        knobs = cpu.sum_knobs(Layout(rows, classes, 1, True, 4, target.device))
        return [
            filled_cpp(
                "cross_entropy.cpp", "cross_entropy", "cross-entropy: rows, second read from cache",
                [x, labels, "out", f"{x}.shape[0]", f"{x}.shape[1]"], requires, knobs,
                ignored=loss.ignored, ending=f"    {_ENDINGS[loss.reduction]}",
            )
        ]  # fmt: skip

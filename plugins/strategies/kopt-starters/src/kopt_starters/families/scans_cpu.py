"""Running sums and products along a dimension on a CPU, in C++: reversed, exclusive, masked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopt.model.candidate import Knob
from kopt_starters import cpu
from kopt_starters.codegen.axes import NotCoveredError
from kopt_starters.families.filling_cpu import filled_cpp, named, scalars_hold
from kopt_starters.families.scans import recognised
from kopt_starters.operator import Layout

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kopt.model.candidate import Candidate
    from kopt.model.device import Target
    from kopt_starters.families.scans import Scan
    from kopt_starters.graph import Graph


class ScansCpu:
    """Kernels for a reference that is one scan in float32; sums are in double, as PyTorch's are."""

    name = "scans-cpu"

    def propose(self, graph: Graph, target: Target) -> Iterable[Candidate]:
        """Return kernels for a scan, the better one first; empty for any other graph."""
        scan = recognised(graph) if target.language == "cpp" else None
        if scan is None or scan.x.dtype != "float32":
            return []
        rowwise = scan.inner == 1
        layout = Layout(scan.outer, scan.count, scan.inner, rowwise, 4, target.device)
        # Products of pieces may leave what a double can hold where that of all of them does not.
        kinds = [True, False] if cpu.few_rows(layout) and not scan.product else [False]
        try:
            return [_candidate(graph, scan, layout, shared=kind) for kind in kinds]
        except NotCoveredError:
            return []


def _candidate(graph: Graph, scan: Scan, layout: Layout, *, shared: bool) -> Candidate:
    names = named([value.name for value in (scan.x, scan.mask) if value is not None])
    x, dim = names[0], scan.dim
    knobs = (cpu.row_knobs if layout.rowwise else cpu.column_knobs)(layout)
    if layout.rowwise:  # there, writing past the cache took a seventh more time
        knobs["STREAM"] = Knob(default=0, choices=(0, 1))
    if shared:
        knobs["THREADS"] = cpu.several_threads(layout)
    how = "columns side by side" if not layout.rowwise else "rows, vectors with a carry"
    extents = [f"prod({x}.shape[:{dim}])", f"{x}.shape[{dim}]", f"prod({x}.shape[{dim + 1}:])"]
    requires = [f"{x}.ndim == {len(scan.x.shape)}", *scalars_hold(graph)]
    # One of the two forms alone gets the knobs that suit it.
    requires.append(f"prod({x}.shape[{dim + 1}:]) {'==' if layout.rowwise else '>'} 1")
    requires += [f"{mask}.shape == {x}.shape" for mask in names[1:]]
    return filled_cpp(
        "scan.cpp", "scan", f"scan: {how}{', shared by the threads' if shared else ''}",
        [*names, "out", *extents], requires, knobs, product=int(scan.product),
        reverse=int(scan.reverse), exclusive=int(scan.exclusive), masked=int(scan.mask is not None),
        shared=int(shared), parameters=f"const float* x{', const uint8_t* mask' * (len(names) - 1)}",
        mask="mask" if scan.mask else "nullptr", statistic="Product" if scan.product else "Sum",
        state="product" if scan.product else "sum",
    )  # fmt: skip

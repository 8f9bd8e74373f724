"""Maximum and average pooling over one, two or three trailing dimensions on a CPU, in C++."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from kopt_starters import cpu
from kopt_starters.codegen.axes import NotCoveredError
from kopt_starters.families.filling import powers
from kopt_starters.families.filling_cpu import filled_cpp, named, scalars_hold
from kopt_starters.families.pooling import recognised
from kopt_starters.gpu import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kopt.model.candidate import Candidate, Knob
    from kopt.model.device import Device, Target
    from kopt_starters.families.pooling import Pool
    from kopt_starters.graph import Graph

_WIDEST = 64
"""Window along the row that is still joined one position after the other."""
_SPAN = 8192
"""Elements of a row that one block of results may need: they stay in the first cache."""


class PoolingCpu:
    """One kernel for a reference that is one pooling in float32."""

    name = "pooling-cpu"

    def propose(self, graph: Graph, target: Target) -> Iterable[Candidate]:
        """Return a kernel for a pooling; empty for any other graph."""
        pool = recognised(graph) if target.language == "cpp" else None
        if pool is None or pool.x.dtype != "float32" or pool.window[2] > _WIDEST:
            return []
        if pool.stride[2] > _WIDEST:
            return []
        try:
            return [_candidate(graph, pool, target.device)]
        except NotCoveredError:
            return []


def _candidate(graph: Graph, pool: Pool, device: Device) -> Candidate:
    [x] = named([pool.x.name])
    extents = [f"{x}.shape[{-d}]" if d <= pool.dims else "1" for d in (3, 2, 1)]
    pooled = [f"out.shape[{-d}]" if d <= pool.dims else "1" for d in (3, 2, 1)]
    return filled_cpp(
        "pool.cpp", "pool", f"{pool.kind} pooling: over rows as wide as they are, then along them",
        [x, "out", f"prod({x}.shape[:{-pool.dims}])", *extents, *pooled],
        [f"{x}.ndim == {len(pool.x.shape)}", *scalars_hold(graph)], _knobs(pool, device),
        maximum=int(pool.kind == "max"), include=int(pool.include), divisor=pool.divisor or 0,
        window=_row(pool.window), stride=_row(pool.stride), padding=_row(pool.padding),
        dilation=_row(pool.dilation), step=pool.stride[2], wide=pool.window[2],
        apart=pool.dilation[2],
    )  # fmt: skip


def _row(values: Iterable[int]) -> str:
    return f"{{{', '.join(map(str, values))}}}"


def _knobs(pool: Pool, device: Device) -> dict[str, Knob]:
    knobs = cpu.flat_knobs(4 * (pool.x.elements + prod(pool.pooled)), device)
    most = max(16, _SPAN // pool.stride[2])
    block = nearest(min(512, most), [n for n in powers(64, 2048) if n <= most] or [16])
    return {"THREADS": knobs["THREADS"], "VECTOR": knobs["VECTOR"], "BLOCK": block}

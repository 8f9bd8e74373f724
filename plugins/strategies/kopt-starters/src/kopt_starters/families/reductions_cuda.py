"""Long rows in CUDA C++: a cluster holds a row on chip, which is read once and written once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from kopt.model.candidate import Knob
from kopt_starters.codegen.axes import NotCoveredError
from kopt_starters.codegen.cluster_rows import ClusterRows
from kopt_starters.codegen.launcher import indented
from kopt_starters.codegen.parts import in_parts, result_of
from kopt_starters.codegen.steps import steps_of
from kopt_starters.cuda import ACCESS_BYTES, ELEMENTS, launch, places
from kopt_starters.families.filling import filled_cuda
from kopt_starters.families.filling_cpu import leading_extent, shapes_hold
from kopt_starters.gpu import nearest
from kopt_starters.hardware import capability, shared_bytes
from kopt_starters.rendering import header, identifier, part, template

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kopt.model.candidate import Candidate
    from kopt.model.device import Device, Target
    from kopt_starters.codegen.steps import Step
    from kopt_starters.graph import Graph

_CLUSTERS = 90
"""The capability from which on there are thread block clusters."""
_LONG = 64 << 10
"""Bytes of a row from which on one block for each would leave too little of a multiprocessor."""
_LONGEST = 1 << 30
"""Elements of a row that 32 bits count."""
_BESIDE = 4 << 10
"""Bytes of a multiprocessor's shared memory beyond what one block may have."""
_SYSTEM = 1 << 10
"""Bytes that each block takes for the system."""
_PORTABLE, _MOST = 8, 16
"""Blocks of a cluster: on every device with clusters, and on those for data centres if asked for."""
_IDEA = "reductions: one read, rows on chip, held by a cluster"


class ReductionsCuda:
    """Reductions of long rows with element-wise results: softmax, norms of a row and the like."""

    name = "reductions-cuda"

    def propose(self, graph: Graph, target: Target) -> Iterable[Candidate]:
        """Return the kernel; none where rows are short, do not fit, or are not all understood."""
        result = result_of(graph)
        wanted = target.language == "cuda" and capability(target.device) >= _CLUSTERS
        if not wanted or result is None or result.dtype not in ELEMENTS:
            return []
        try:
            steps = steps_of(in_parts(graph), result)
            found = _candidate(graph, steps[0], target.device) if len(steps) == 1 else None
        except NotCoveredError:
            return []
        return [] if found is None else [found]


class _Held(NamedTuple):
    """How a row is divided."""

    piece: int
    """Elements of 16 bytes."""
    pieces: int
    """That a row may lie in, as it begins within one."""
    exchanged: int
    """Bytes of a block's shared memory beside its pieces."""
    device: Device

    def bytes(self, size: int) -> int:
        """Return what a block of a cluster of ``size`` takes of its multiprocessor."""
        return self.exchanged + -(-self.pieces // size) * ACCESS_BYTES + _SYSTEM

    def blocks(self, size: int) -> int:
        """Return how many blocks a multiprocessor has room for."""
        least = self.bytes(size)
        if least - _SYSTEM > shared_bytes(self.device):
            return 0
        return (shared_bytes(self.device) + _BESIDE) // least


def _held(step: Step, rows: ClusterRows, device: Device) -> _Held:
    piece = ACCESS_BYTES // ELEMENTS[step.result.dtype].size
    return _Held(piece, (step.cols + piece - 2) // piece + 1, 16 + 64 * rows.state_bytes, device)


def _knobs(step: Step, held: _Held) -> dict[str, Knob] | None:
    """Return the knobs; None where no cluster can hold a row, or rows are too few for the device."""
    # Three blocks or two: one computes and waits for others of its row while memory is at work.
    most = _MOST if capability(held.device) < 120 else _PORTABLE
    sizes = [size for size in (1, 2, 4, _PORTABLE, _MOST) if size <= most and held.blocks(size)]
    if not sizes:
        return None
    portable = [size for size in sizes if size <= _PORTABLE]
    size = next((n for blocks in (3, 2) for n in portable if held.blocks(n) >= blocks), sizes[-1])
    if step.rows * size < held.device.units:
        return None
    blocks = min(4, held.blocks(size))
    threads = {1: 1024, 2: 512}.get(blocks, 256)
    near = [n for n in sizes if size // 2 <= n <= 2 * size]
    return {
        "SIZE": Knob(default=size, choices=tuple(near)),
        "THREADS": nearest(threads, (256, 512, 1024)),
        # One, as measured on an H200: blocks that end are followed by others sooner than rows are.
        "ROWS": nearest(1, (1, 2, 4, 8)),
        "UNROLL": nearest(4, (1, 2, 4)),
    }


def _candidate(graph: Graph, step: Step, device: Device) -> Candidate | None:
    """Return the kernel of a step. Raises NotCoveredError where it is not that of rows in memory."""
    rows, dtype = ClusterRows(step), step.result.dtype
    held = _held(step, rows, device)
    long = step.cols * ELEMENTS[dtype].size > _LONG and step.cols < _LONGEST
    knobs = _knobs(step, held)
    if not long or knobs is None:
        return None
    functions, levels = rows.functions(), rows.levels()
    of_row = rows.parameters()
    extent = leading_extent(graph, step.leading)
    count = f"{extent} * {step.rows // step.leading.extent}" if step.leading else str(step.rows)
    x = identifier(rows.x.name)
    given = [x, *(identifier(value.name) for value in of_row.values()), "out", count]
    lines = [
        f"requires = {json.dumps([*shapes_hold(graph, step.leading)])}",
        # Divisions are off by 2 units in the last place at most, square roots are exact.
        'flags = ["--prec-div=false"]',
        *launch("reduction", [f"cdiv({count}, ROWS) * SIZE"], ["THREADS"], given),
        'cluster = ["SIZE"]',
        f'shared = "{held.exchanged} + {ACCESS_BYTES} * cdiv({held.pieces}, SIZE)"',
    ]
    parts = places(dtype, held.piece)
    return filled_cuda("rows_cluster.cu", graph, _IDEA, knobs, {
        "header": header("//", lines, knobs),
        "pieces": template("pieces.cu").substitute(parts).rstrip("\n"),
        "statistics": f"{part('scalar_functions.cu')}\n\n{part('row_statistics.cu')}",
        "functions": functions,
        "levels": levels,
        "length": str(step.cols),
        "state": str(rows.state_bytes),
        "capacity": str(shared_bytes(device) + _BESIDE),
        "parameters": "".join(f"const Element *__restrict__ {name}, " for name in of_row),
        "read": indented(rows.read(), 8).strip(),
        "measure": indented(rows.measure(), 8).strip(),
    })  # fmt: skip

"""Gated MLPs in Triton: two products of one input, in one kernel with what joins them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kopt.model.candidate import Knob
from kopt.model.kernel_file import parse_kernel
from kopt_starters import rendering
from kopt_starters.codegen.axes import NotCoveredError, leaves
from kopt_starters.codegen.launcher import checks, indented, opening
from kopt_starters.codegen.writer import identifier
from kopt_starters.families.filling import FLOATS
from kopt_starters.products.knobs import Sizes, tile_knobs, widest_tile
from kopt_starters.products.pairs import pair_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kopt.model.candidate import Candidate
    from kopt.model.device import Device, Target
    from kopt_starters.graph import Graph
    from kopt_starters.products.pairs import Matrix, Pair

_ENTRY = "gated_mlp"
_LONGEST_STRIDE = 1 << 22
"""Within a tile, offsets are 32 bits wide."""


class GatedMlp:
    """Kernels for the gated hidden layer of an MLP, as ``silu(x @ a) * (x @ b)``."""

    name = "mlp"

    def propose(self, graph: Graph, target: Target) -> Iterable[Candidate]:
        """Return the kernel for two products joined by element; empty for any other graph."""
        pair = pair_of(graph) if target.language == "triton" else None
        if pair is None or not _computable(pair):
            return []
        try:
            return [_written(graph, pair, target.device)]
        except NotCoveredError:
            return []


def _computable(pair: Pair) -> bool:
    dtypes = {matrix.tensor.dtype for matrix in (pair.left, *pair.right)}
    strides = [s for matrix in (pair.left, *pair.right) for s in matrix.strides[1:]]
    fits = len(dtypes) == 1 and {*dtypes, pair.epilogue.result.dtype} <= FLOATS
    return fits and max(*strides, pair.sizes[2]) < _LONGEST_STRIDE and pair.epilogue.in_order


def _written(graph: Graph, pair: Pair, device: Device) -> Candidate:
    """Return the kernel file. Raises NotCoveredError where names would clash."""
    tail = pair.epilogue
    coordinates = ["z", "m", "n"] if len(tail.value.shape) == 3 else ["m", "n"]
    if tail.result.elements >= 1 << 31:
        coordinates[-2:] = ["m.to(tl.int64)", "n.to(tl.int64)"]
    lines, joined = tail.lines("first", coordinates, "rows & columns", ["second"])
    helpers = tail.helpers(lines)
    knobs = _knobs(pair, device)
    source = rendering.template("product_pair.py.txt").substitute(
        header=rendering.header("#", [f'entry = "{_ENTRY}"'], knobs),
        helpers=f"\n{helpers.rstrip()}" if helpers else "",
        walk=rendering.text("product_walk.py.txt").rstrip(),
        parameters=", ".join(["x", "a", "b", *tail.parameters, *tail.scalars]),
        finish=indented([*lines, f"joined = {joined}"]),
        launcher=_launcher(graph, pair, knobs),
    )
    idea = "mlp: both products of a tile in one loop, joined in registers"
    return parse_kernel(source, "triton", strategy="starters", idea=idea)


def _knobs(pair: Pair, device: Device) -> dict[str, Knob]:
    """Return the knobs of a product twice as wide: that many accumulators a program has."""
    batches, rows, columns, depth = pair.sizes
    itemsize = 4 if pair.left.tensor.dtype == "float32" else 2
    matrices = (pair.left, *pair.right)
    # What is not aligned is read and stored element by element, which takes registers too.
    lines = [columns, *(step for matrix in matrices for step in matrix.strides if step > 1)]
    aligned = all(step * itemsize % 16 == 0 for step in lines)
    widest = widest_tile(itemsize, device, roomy=aligned and itemsize == 2)
    along = all(matrix.strides[1] == 1 for matrix in pair.right)
    sizes = Sizes(batches, rows, 2 * columns, depth, itemsize, device, widest, along)
    knobs = tile_knobs(sizes)
    wide, deep = knobs["BLOCK_N"], knobs["BLOCK_K"]
    choices = sorted({max(16, int(choice) // 2) for choice in wide.choices})
    knobs["BLOCK_N"] = Knob(default=max(16, int(wide.default) // 2), choices=tuple(choices))
    if not aligned and itemsize == 4 and not sizes.in_registers:
        knobs["BLOCK_K"] = Knob(default=deep.choices[0], choices=deep.choices)
    knobs.setdefault("PRECISION", Knob(default="ieee", choices=("ieee",)))
    return knobs | {"GROUP": Knob(default=8, choices=(4, 8, 16))}


def _launcher(graph: Graph, pair: Pair, knobs: dict[str, Knob]) -> str:
    """Return the entry: what it refuses, and a call with sizes and strides.

    The rows may be as many as there are, unless what follows the products looks at them.
    """
    left, tail, (batches, _, columns, depth) = pair.left, pair.epilogue, pair.sizes
    x, sizes, shape = identifier(left.tensor.name), str(pair.sizes), str(tail.result.shape)
    strides = [left.strides, *(matrix.strides for matrix in pair.right)]
    fixed = graph
    lines = []
    if _any_rows(pair):
        others = tuple(a for a in graph.arguments if a.name != left.tensor.name)
        fixed = replace(graph, arguments=others)
        rank = len(left.tensor.shape)
        lines += [
            f"if {x}.dim() != {rank} or {x}.shape[-1] != {depth}:",
            f'    raise ValueError("for {x} of {rank} dimensions, the last {depth} wide, only")',
        ]
        sizes = f"({batches}, {x}.numel() // {depth}, {columns}, {depth})"
        shape = f"(*{x}.shape[:-1], {columns})"
        strides[0] = (0, depth, 1)
    lines += checks(fixed, tail.scalars.values())
    given = [_operand(matrix) for matrix in (left, *pair.right)]
    given += [f"{_named(load.argument.name)}.contiguous()" for load in tail.loads]
    given += tail.scalars.values()
    result = f"torch.empty({shape}, dtype=torch.{tail.result.dtype}, device={x}.device)"
    lines += [
        "return _launch(",
        f"    ({', '.join(given)}),",
        f"    {result},",
        f"    {sizes}, {tuple(step for each in strides for step in each)},",
        f"    {', '.join(f'{name}={name}' for name in knobs)})",
    ]
    return f"{opening(graph, _ENTRY, knobs)}\n{indented(lines)}"


def _any_rows(pair: Pair) -> bool:
    """Whether the kernel holds for any number of rows: x and the result are rows in order."""
    left, tail, (batches, rows, columns, depth) = pair.left, pair.epilogue, pair.sizes
    shape = left.tensor.shape
    used = {matrix.tensor.name for matrix in pair.right} | tail.reads
    dense = left.strides[1:] == (depth if rows > 1 else 0, 1 if depth > 1 else 0)
    in_order = shape[-1] == depth and tail.result.shape == (*shape[:-1], columns)
    along_rows = {axis for axis in leaves(tail.places)[-2]}
    still = not any(load.strides.get(axis) for load in tail.loads for axis in along_rows)
    plain = batches == 1 and len(tail.value.shape) == 2 and left.tensor.name not in used
    return plain and dense and in_order and still


def _named(name: str) -> str:
    """Return an argument, or a part of one, as the entry can write it."""
    argument, bracket, part = name.partition("[")
    return f"{identifier(argument)}{bracket}{part}"


def _operand(matrix: Matrix) -> str:
    name = f"{identifier(matrix.tensor.name)}.contiguous()"
    return f"{name}.view(-1)[{matrix.start}:]" if matrix.start else name

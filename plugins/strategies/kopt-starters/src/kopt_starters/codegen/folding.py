"""Kernels of a step over a strided dimension whose rows begin in between groups of 16 bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd, prod

from kopt_starters.codegen.axes import Axis, merged
from kopt_starters.codegen.steps import Step
from kopt_starters.codegen.tiles import FLOAT_BYTES, Tiles

_READ_BYTES = 16
"""Bytes that one thread reads at a time at most."""
_LAST_ROWS = 128
"""Positions of a program that merges states."""


@dataclass(frozen=True)
class Fold:
    """So many neighbouring rows, as one, are a multiple of 16 bytes long."""

    rows: int
    inner: int
    """Elements of one row."""
    count: int
    """Rows that are reduced to one."""

    @property
    def width(self) -> int:
        """Elements of so many rows."""
        return self.rows * self.inner


def fold_of(step: Step) -> Fold | None:
    """Return how rows are to be joined; None where reads are aligned as it is, or cannot be.

    Rows are what lies between two elements that are reduced to one. All that is read moves with them.
    """
    moving = [load for load in step.loads if any(load.strides.values())]
    if step.full or step.levels > 1 or not moving:
        return None
    accesses = [load.strides for load in moving]
    kept, reduced = merged(step.kept, accesses), merged(step.reduced, accesses)
    if not kept or len(kept) > 2 or len(reduced) != 1:
        return None
    inner, count = prod(axis.extent for axis in kept[-1]), step.cols
    wanted = {kept[-1][-1]: 1, reduced[0][-1]: inner}
    if len(kept) == 2:
        wanted[kept[0][-1]] = inner * count
    if any(not _walks(strides, wanted) for strides in accesses):
        return None
    itemsize = min(FLOAT_BYTES.get(load.argument.dtype, _READ_BYTES) for load in moving)
    rows = _READ_BYTES // gcd(_READ_BYTES, inner * itemsize)
    return Fold(rows, inner, count) if rows > 1 and not count % rows else None


def _walks(strides: Mapping[Axis, int], wanted: Mapping[Axis, int]) -> bool:
    return all(strides.get(axis, 0) == step for axis, step in wanted.items())


@dataclass(frozen=True)
class FoldedTiles(Tiles):
    """A tile is ROWS positions of joined rows by BLOCK of these, which one thread reads 16 bytes of.

    Each of the joined rows leaves its own state; a second kernel merges them.
    """

    @property
    def fold(self) -> Fold:
        """How rows are joined; only for a step for which ``fold_of`` says so."""
        found = fold_of(self.step)
        assert found is not None
        return found

    def folded(self) -> str:
        """Return the kernel that leaves a state for each position of joined rows."""
        fold = self.fold
        lines = [
            f"q = (tl.program_id(0){self._wide} * ROWS + tl.arange(0, ROWS))[:, None]",
            f"k_in = q < KEPT * {fold.rows}",
            f"first = q % {fold.width} + q // {fold.width} * {fold.inner * fold.count}",
            f"begin, stop = 0, REDUCED // {fold.rows}",
            *self._sweep(0, f"REDUCED // {fold.rows}", f"(REDUCED // {fold.rows} * 1.0)"),
        ]
        for each in self.step.reductions:
            if each.statistic.kind in ("argmax", "argmin"):
                at = each.states[1]
                lines.append(f"{at} = {at} * {fold.rows} + q % {fold.width} // {fold.inner}")
        lines += [
            f"tl.store({state}_parts + q, {state}, mask=k_in)"
            for state in self._states(self.step.reductions)
        ]
        return self._kernel("folded", [*self.buffers], lines)

    def merging(self) -> str:
        """Return the kernel that merges the states of BLOCK joined rows, and writes the result."""
        fold = self.fold
        lines = [
            *self._rows(),
            f"q = k % {fold.inner} + k // {fold.inner} * {fold.width}"
            f" + tl.arange(0, BLOCK)[None, :] * {fold.inner}",
        ]
        for each in self.step.reductions:
            lines += [
                f"{state} = tl.load({state}_parts + q, mask=k_in, other={value})"
                for state, value in zip(each.states, each.statistic.initial, strict=True)
            ]
            lines += self._merged(each, "(REDUCED // BLOCK * 1.0)", "(REDUCED * 1.0)")
        return self._kernel("merging", [*self.buffers], [*lines, *self._finish("REDUCED")])

    def launch(self, given: str, taken: str, knobs: Mapping[str, str]) -> list[str]:
        """Return lines of the entry, where ``_out`` is to be filled and ``given`` passed first."""
        step, rows = self.step, self.fold.rows
        sizes = f"KEPT={step.rows_text}, REDUCED={step.cols}"
        return [
            *(
                f"{buffer} = torch.empty({step.rows_text} * {rows}, dtype=torch.{dtype}, device=_device)"
                for buffer, dtype in self.buffers.items()
            ),
            f"_folded{self.name}[(triton.cdiv({step.rows_text} * {rows}, {knobs['ROWS']}),)](",
            f"    {given}, {taken}, {sizes}, ROWS={knobs['ROWS']}, BLOCK={knobs['BLOCK']},",
            f"    num_warps={knobs['num_warps']})",
            f"_merging{self.name}[(triton.cdiv({step.rows_text}, {_LAST_ROWS}),)](",
            f"    {given}, {taken}, {sizes}, ROWS={_LAST_ROWS}, BLOCK={rows})",
        ]

    def _whole_access(self, at: str) -> tuple[str, str]:
        return f"first + r * {self.fold.width}", "inside"

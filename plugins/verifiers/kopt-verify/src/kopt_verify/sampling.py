"""Inputs small enough to put many wrong results through the accuracy rule within seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopt.model.reference import Change

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kopt.model.reference import InputSet, Reference

_BYTES = {"cpu": 4 << 20, "cuda": 64 << 20}
"""Of arguments, state and outputs: what is larger is made smaller."""
_LEAST = 16
"""Rows that are kept at least."""


class Sampler:
    """Draws inputs of a workload, with fewer rows or smaller extents where they are large."""

    def __init__(self, reference: Reference, workload: str) -> None:
        self._reference, self._workload = reference, workload
        self.extents: Mapping[str, int] = {}
        """The smaller extents, by name; empty where the workload is drawn as it is."""
        size = reference.signature.workloads[workload].compulsory_bytes
        most = _BYTES.get(reference.device.kind, 4 << 20)
        if size > most:
            self.extents = self._reduced(size / most)

    def draw(self, seed: int, distribution: str) -> InputSet:
        """Draw a set of arguments; to be closed by the caller."""
        if not self.extents:
            return self._reference.inputs(self._workload, seed, distribution)
        found = self._sample(seed, distribution, self.extents)
        return found or self._reference.inputs(self._workload, seed, distribution)

    def _sample(self, seed: int, distribution: str, extents: Mapping[str, int]) -> InputSet | None:
        change = Change(name="a sample", extents=extents, distribution=distribution)
        return self._reference.changed_inputs(self._workload, seed, change)

    def _reduced(self, times: float) -> Mapping[str, int]:
        """Return the first smaller extent with which the reference runs; the rows come first."""
        for name, extent in self._reference.extents(self._workload).items():
            smaller = max(_LEAST, int(extent / times))
            if smaller >= extent:
                continue
            sample = self._sample(0, "native", {name: smaller})
            if sample is not None:
                sample.close()
                return {name: smaller}
        return {}

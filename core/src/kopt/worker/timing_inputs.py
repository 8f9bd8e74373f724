"""The rotating inputs that timing runs on, drawn anew for a confirmation."""

from __future__ import annotations

import secrets

from kopt.errors import CandidateError
from kopt.model.problem import Workload
from kopt.model.reference import InputSet, Reference
from kopt.model.verification import Status

_MOST_SETS, _MOST_SETS_ON_GPU = 8, 16
"""Each set costs time at an opening and at every measurement, more of it on a CPU."""
_MEMORY_FRACTION = 0.25
_ROOM = 0.5
"""Part of the memory that the judge's tensors may take at a verification: the reference's intermediate
results, the candidate and the baselines need the rest."""


class TimingInputs:
    """Per measured workload enough input sets to outgrow the last-level cache twice."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self._sets: dict[str, list[InputSet]] = {}
        self.workloads: tuple[Workload, ...] = tuple(
            w for w in reference.problem.workloads if w.role == "measure"
        )

    def of(self, workload: str) -> list[InputSet]:
        """Return a workload's input sets, drawn on first use."""
        if workload not in self._sets:
            self._sets[workload] = [
                self._reference.inputs(workload, secrets.randbits(31))
                for _ in range(self._count(workload))
            ]
        return self._sets[workload]

    def _count(self, workload: str) -> int:
        device = self._reference.device
        each = max(1, self._reference.signature.workloads[workload].compulsory_bytes)
        # A shared server cache of hundreds of MB is not this process's own: 64 MB is plenty there.
        cache = device.cache_bytes if device.kind == "cuda" else min(device.cache_bytes, 64 << 20)
        wanted = max(2, -(-2 * cache // each))
        affordable = int(device.memory_bytes * _MEMORY_FRACTION // (2 * each))
        most = _MOST_SETS_ON_GPU if device.kind == "cuda" else _MOST_SETS
        return max(1, min(wanted, most, affordable))

    @property
    def large(self) -> bool:
        """Whether the inputs take so much memory that others must not keep any in reserve."""
        first = self._reference.signature.first.compulsory_bytes
        return first > self._reference.device.memory_bytes // 64

    @property
    def crowding(self) -> bool:
        """Whether a verification beside the timing inputs might not find room."""
        workloads = self._reference.signature.workloads
        held = sum(
            len(sets) * workloads[name].compulsory_bytes for name, sets in self._sets.items()
        )
        needed = max(workload.memory_bytes for workload in workloads.values())
        return bool(held) and held + needed > self._reference.device.memory_bytes * _ROOM

    def check_unchanged(self) -> None:
        """Raise CandidateError where timed calls wrote into their inputs; they are restored."""
        mutable = set(self._reference.problem.mutates)
        hurt: set[str] = set()
        for inputs in (each for sets in self._sets.values() for each in sets):
            changed = set(inputs.changed())
            if changed:
                inputs.restore()
            hurt |= changed - mutable
        if hurt:
            raise CandidateError(
                Status.MUTATES_INPUT, f"timed calls changed the input {', '.join(sorted(hurt))}"
            )

    def close(self) -> None:
        """Give the memory back; the next use draws new sets."""
        for inputs in (each for sets in self._sets.values() for each in sets):
            inputs.close()
        self._sets.clear()

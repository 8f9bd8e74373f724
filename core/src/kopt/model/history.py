"""A read-only view of what a run has evaluated so far."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kopt.model.candidate import Candidate
from kopt.model.evaluation import Evaluation


class History:
    """Evaluations in the order in which they were recorded, one per candidate id."""

    def __init__(self, evaluations: Sequence[Evaluation] = (), *, baseline: str = "") -> None:
        """``baseline`` names the one that ``best`` and ``ranked`` compare against."""
        self._by_id: dict[str, Evaluation] = {e.id: e for e in evaluations}
        self.baseline = baseline
        self.copy_speedup: float | None = None
        """The baseline's time over that of a plain copy of the compulsory bytes, which hardly a kernel
        beats. None on a CPU, and where the bytes fit into the device's cache."""

    def __iter__(self) -> Iterator[Evaluation]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, candidate_id: object) -> bool:
        return candidate_id in self._by_id

    def get(self, candidate_id: str) -> Evaluation | None:
        """Return the evaluation of a candidate id, or None."""
        return self._by_id.get(candidate_id)

    def add(self, evaluation: Evaluation) -> None:
        """Record one more (the session's business; plugins only read)."""
        self._by_id[evaluation.id] = evaluation

    def speedup(self, evaluation: Evaluation) -> float:
        """Median speedup over the run's baseline; 0 where it was not measured."""
        if evaluation.measurement is None:
            return 0.0
        interval = evaluation.measurement.speedup.get(self.baseline)
        return interval.median if interval else 0.0

    def ranked(self) -> list[Evaluation]:
        """Measured evaluations, fastest first; equal ones in the order of their ids.

        Of candidates that are one, the first that was measured.
        """
        measured = [e for e in self if e.measured and not e.same_as]
        return sorted(measured, key=lambda e: (-self.speedup(e), e.id))

    def best(self) -> Evaluation | None:
        """The fastest correct one, or None."""
        ranked = self.ranked()
        return ranked[0] if ranked else None

    def of_structure(self, candidate: Candidate) -> list[Evaluation]:
        """Evaluations that differ from ``candidate`` in knob values only."""
        wanted = candidate.structure
        return [e for e in self if e.candidate.structure == wanted]

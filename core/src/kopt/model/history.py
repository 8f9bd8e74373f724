"""A read-only view of what a run has evaluated so far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from kopt.model.candidate import Candidate
from kopt.model.diagnosis import Profile
from kopt.model.evaluation import Evaluation


class Profiled(NamedTuple):
    """What profilers said of a candidate, and when."""

    profiles: tuple[Profile, ...]
    after: int
    """Evaluations that there were by then."""


class History:
    """Evaluations in the order in which they were recorded, one per candidate id."""

    def __init__(
        self,
        evaluations: Sequence[Evaluation] = (),
        *,
        baseline: str = "",
        profiled: Mapping[str, Profiled] | None = None,
    ) -> None:
        """``baseline`` names the one that ``best`` and ``ranked`` compare against.

        :param profiled: by candidate id, what was profiled.
        """
        self._profiled = dict(profiled or {})
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

    def add_profiles(self, candidate_id: str, profiles: Sequence[Profile]) -> None:
        """Record what profilers say now, the first time alone (the session's business)."""
        self._profiled.setdefault(candidate_id, Profiled(tuple(profiles), len(self)))

    def profiles(self, candidate_id: str) -> tuple[Profile, ...]:
        """Return what profilers said of a candidate, as it was first profiled; () where it never was.

        Only those are profiled that became parents in a run with a judge, and those whose strategy
        predicted metrics (``Candidate.watched``).
        """
        found = self._profiled.get(candidate_id)
        return found.profiles if found else ()

    def until(self, count: int) -> History:
        """Return the history as it was when ``count`` candidates had been evaluated."""
        then = {name: each for name, each in self._profiled.items() if each.after <= count}
        found = History(list(self)[:count], baseline=self.baseline, profiled=then)
        found.copy_speedup = self.copy_speedup
        return found

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

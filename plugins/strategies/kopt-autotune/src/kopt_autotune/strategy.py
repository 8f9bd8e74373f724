"""The strategy: which settings of a parent's knobs to try next, given what is known of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

import kopt
from kopt.errors import KernelFileError
from kopt.model.kernel_file import load_kernel
from kopt_autotune.sampling import sample
from kopt_autotune.space import Setting, Space

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kopt.model.candidate import Candidate, KnobValue
    from kopt.model.device import Target
    from kopt.model.evaluation import Evaluation
    from kopt.model.history import History

IMPROVEMENT = 0.01
"""A setting is an improvement where it is this much faster than the last improvement was."""
FIRST_MOVES = 10
"""Settings of a large space that are known before TPE takes over from one-knob moves."""


class Autotune:
    """Tunes the knobs of each parent; it keeps no state between calls."""

    class Options(kopt.Options):
        """Options of autotune."""

        kernel: Path | None = None
        """A kernel file of yours, to begin with; without it, other strategies' kernels are tuned."""
        max_sweep: int = Field(default=64, gt=0)
        """Spaces up to this many settings are swept whole, larger ones sampled."""
        batch: int = Field(default=4, gt=0)
        """Proposals per parent and round."""
        patience: int = Field(default=12, gt=0)
        """Leave a kernel after this many settings in a row without an improvement of more than
        1 %; failed ones count."""
        seed: int = Field(default=0, ge=0)
        """Of the sampler."""

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or self.Options()

    @kopt.hookimpl
    def kopt_check(self) -> Sequence[kopt.Check]:
        """Say whether the kernel file that was given can be read."""
        path = self.options.kernel
        if path is None:
            return []
        try:
            load_kernel(path)
        except KernelFileError as error:
            fix = "give a kernel file, as -o strategy.autotune.kernel=my_kernel.py"
            return [kopt.Check(name="kernel file", state="fail", detail=str(error), fix=fix)]
        return [kopt.Check(name="kernel file", state="ok", detail=str(path))]

    @kopt.hookimpl
    def kopt_propose(
        self, parent: Evaluation | None, history: History, target: Target
    ) -> Sequence[Candidate]:
        """Propose the next settings of the parent's knobs that were not evaluated yet.

        In the first round: the kernel file that was given. Raises KernelFileError for a wrong one.

        First come settings that change one knob of the fastest setting so far, to a neighbouring
        value before a far one; then the rest, by how many knobs they change.
        """
        if parent is None:
            return self._given((target.language, *target.beside))
        if not parent.candidate.knobs:
            return []
        space = Space(parent.candidate)
        known = _known(space, parent, history)
        if len(known) >= space.size or _stale(known, history) >= self.options.patience:
            return []
        found = self._next(space, known, history)
        return [_proposal(parent.candidate, space.values(setting)) for setting in found]

    def _given(self, languages: Sequence[str]) -> list[Candidate]:
        path = self.options.kernel
        if path is None:
            return []
        candidate = load_kernel(path)
        if candidate.language not in languages:
            raise KernelFileError(
                f"{path} is {candidate.language}, and this run builds {' and '.join(languages)}; add --backend "
                f"{candidate.language}"
            )
        return [candidate.model_copy(update={"idea": path.name})]

    def _next(
        self, space: Space, known: dict[Setting, Evaluation], history: History
    ) -> list[Setting]:
        batch = self.options.batch
        origin = _fastest(known, history)
        if space.size <= self.options.max_sweep:
            return [at for at in space.nearest_first(origin) if at not in known][:batch]
        moves = [at for at in space.moves(origin) if at not in known][:batch]
        if moves and len(known) < FIRST_MOVES:
            return moves
        speedups = {
            at: history.speedup(evaluation) if evaluation.measured else None
            for at, evaluation in known.items()
        }
        return sample(space, speedups, batch, self.options.seed)


def _known(space: Space, parent: Evaluation, history: History) -> dict[Setting, Evaluation]:
    """Return what was evaluated of the space, in the history's order; the parent at least."""
    known: dict[Setting, Evaluation] = {}
    for evaluation in history.of_structure(parent.candidate):
        setting = space.setting(evaluation.candidate)
        if setting is not None:
            known.setdefault(setting, evaluation)
    own = space.setting(parent.candidate)
    assert own is not None, "a candidate lies in its own space"
    known.setdefault(own, parent)
    return known


def _fastest(known: dict[Setting, Evaluation], history: History) -> Setting:
    """Return the fastest setting; the first known one where none was measured."""
    measured = [at for at, evaluation in known.items() if evaluation.measured]
    if not measured:
        return next(iter(known))
    return min(measured, key=lambda at: (-history.speedup(known[at]), known[at].id))


def _stale(known: dict[Setting, Evaluation], history: History) -> int:
    """Return how many settings came after the last improvement."""
    best, stale = None, 0
    for evaluation in known.values():
        stale += 1
        if evaluation.measured:
            speedup = history.speedup(evaluation)
            if best is None or speedup > best * (1 + IMPROVEMENT):
                best, stale = speedup, 0
    return stale


def _proposal(parent: Candidate, values: dict[str, KnobValue]) -> Candidate:
    now = parent.chosen
    changed = {name: value for name, value in values.items() if value != now[name]}
    idea = ", ".join(f"{name}={value}" for name, value in changed.items())
    return parent.with_values("autotune", idea, **changed)

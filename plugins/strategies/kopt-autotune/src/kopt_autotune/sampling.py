"""optuna's TPE sampler, asked for settings of a space that is too large to sweep."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from kopt_autotune.space import Setting, Space

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import optuna

ASKS_PER_PROPOSAL = 16
"""TPE repeats itself once it has converged; after so many vain asks per proposal it is done."""


def sample(
    space: Space, speedups: Mapping[Setting, float | None], count: int, seed: int
) -> list[Setting]:
    """Return up to ``count`` settings that are not among ``speedups`` (None: failed), by TPE.

    The same arguments give the same answer: the study is built anew from what is known, and the
    sampler's seed is made of ``seed`` and how much that is. Failed settings are told as pruned,
    which TPE ranks below every measured one (Bergstra et al., Algorithms for Hyper-Parameter
    Optimization, 2011; pruned trials are optuna's extension). So are the settings of this batch,
    to keep them apart.
    """
    import optuna  # here, because it costs a quarter of a second

    with _quiet():
        study = optuna.create_study(
            direction="maximize",
            sampler=optuna.samplers.TPESampler(
                seed=(seed + len(speedups)) % 2**32, n_startup_trials=0
            ),
        )
        knobs = _distributions(space)
        study.add_trials([_trial(space, knobs, at, value) for at, value in speedups.items()])
        return _fresh(study, space, knobs, set(speedups), count)


def _fresh(
    study: optuna.Study,
    space: Space,
    knobs: dict[str, optuna.distributions.BaseDistribution],
    known: set[Setting],
    count: int,
) -> list[Setting]:
    import optuna

    found: list[Setting] = []
    for _ in range(count * ASKS_PER_PROPOSAL):
        trial = study.ask(knobs)
        setting = tuple(int(trial.params[name]) for name in space.names)
        study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        if setting not in known:
            known.add(setting)
            found.append(setting)
        if len(found) == count:
            break
    return found


def _distributions(space: Space) -> dict[str, optuna.distributions.BaseDistribution]:
    """Return one categorical distribution per knob, over the positions of its choices."""
    import optuna

    return {
        name: optuna.distributions.CategoricalDistribution(list(range(len(values))))
        for name, values in zip(space.names, space.choices, strict=True)
    }


def _trial(
    space: Space,
    knobs: dict[str, optuna.distributions.BaseDistribution],
    setting: Setting,
    speedup: float | None,
) -> optuna.trial.FrozenTrial:
    import optuna

    states = optuna.trial.TrialState
    return optuna.trial.create_trial(
        params=dict(zip(space.names, setting, strict=True)),
        distributions=knobs,
        value=speedup,
        state=states.PRUNED if speedup is None else states.COMPLETE,
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence optuna's log, which is the process's, and give it back as it was."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)

"""Profiles and diagnoses of a round's parents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopt.stages.profiling import profiled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kopt.hooks import Hooks
    from kopt.model.completion import LanguageModel
    from kopt.model.device import Device
    from kopt.model.diagnosis import Diagnosis, Profile
    from kopt.model.evaluation import Evaluation
    from kopt.model.history import History
    from kopt.model.probe import Probe
    from kopt.model.problem import Problem, Signature


class Diagnoser:
    """Profiles each parent once, and has the judges look at it in every round."""

    def __init__(
        self,
        hooks: Hooks,
        problem: Problem,
        signature: Signature,
        device: Device,
        probe: Callable[[Evaluation], Probe],
        llm: LanguageModel | None = None,
    ) -> None:
        self._hooks, self._problem, self._signature = hooks, problem, signature
        self._device, self._probe, self._llm = device, probe, llm
        self._profiles: dict[str, list[Profile]] = {}

    def recall(self, parent: str, profiles: Sequence[Profile]) -> None:
        """Take over the profiles of a candidate that an earlier part of the run made."""
        self._profiles[parent] = list(profiles)

    def profiles(self, parent: Evaluation) -> list[Profile]:
        """Return the profiles of a correct candidate."""
        if parent.id not in self._profiles:
            self._profiles[parent.id] = profiled(
                self._hooks, self._problem, self._signature, parent, self._device,
                self._probe(parent),
            )  # fmt: skip
        return self._profiles[parent.id]

    def diagnose(self, parent: Evaluation, history: History) -> list[Diagnosis]:
        """Return what the judges make of a parent."""
        return self._hooks.kopt_judge(
            self._problem, self._signature, parent, self.profiles(parent), self._device, history,
            llm=self._llm,
        )  # fmt: skip

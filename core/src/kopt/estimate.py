"""What a run would ask of its language model, and what that would cost: nothing is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kopt.config import run_config
from kopt.errors import ConfigError, PluginUnavailableError
from kopt.loading import load_hooks, named_plugins, refuse_unmetered, without_idle_options
from kopt.machine import choose_device, refuse_untimeable
from kopt.model.completion import Usage
from kopt.model.device import Target
from kopt.model.history import History
from kopt.optimize import backends_beside, choose_backend, judge_settings
from kopt.reporter import Silent
from kopt.runs.state import state_of
from kopt.worker.client import LocalEvaluator

if TYPE_CHECKING:
    from kopt.config import Settings
    from kopt.hooks import Hooks
    from kopt.model.budget import Budget
    from kopt.model.completion import ExpectedCalls, Price
    from kopt.model.problem import Problem
    from kopt.model.run import RunConfig
    from kopt.reporter import Steps


@dataclass(frozen=True)
class ExpectedCost:
    """Requests of one kind, by whom they are made, and their model's price."""

    plugin: str
    calls: ExpectedCalls
    price: Price | None
    """None: nobody knows it."""

    @property
    def tokens(self) -> int:
        """Of all its calls together."""
        return self.calls.calls * (self.calls.input_tokens + self.calls.output_tokens)

    @property
    def usd(self) -> float | None:
        """Of all its calls together; None where the price is unknown."""
        if self.price is None:
            return None
        one = Usage(input_tokens=self.calls.input_tokens, output_tokens=self.calls.output_tokens)
        return self.calls.calls * self.price.of(one)


@dataclass(frozen=True)
class Estimate:
    """What a run is expected to ask and to pay."""

    model: str | None
    """The language model plugin; None: the run has none."""
    costs: tuple[ExpectedCost, ...]
    budget: Budget
    refused: str
    """Why the run would be refused as it is configured; empty where it would begin."""
    left_out: tuple[str, ...]
    """Plugins that failed to say what they would ask."""
    others: int = 0
    """Candidates for the first round from strategies that need no language model: where there are
    some, it is asked for no first kernel."""

    @property
    def calls(self) -> int:
        """How many requests in all."""
        return sum(cost.calls.calls for cost in self.costs)

    @property
    def tokens(self) -> int:
        """How many in all, in and out."""
        return sum(cost.tokens for cost in self.costs)

    @property
    def usd(self) -> float | None:
        """How much in all; None where the price of a part is unknown."""
        known = [cost.usd for cost in self.costs if cost.usd is not None]
        return sum(known) if len(known) == len(self.costs) else None

    @property
    def shares(self) -> dict[str, float]:
        """Return of each limit that is set how much of what is expected it allows, from 0 to 1.

        One that cannot be compared, as money at an unknown price, is left out.
        """
        pairs = {"tokens": (self.budget.tokens, self.tokens), "usd": (self.budget.usd, self.usd)}
        return {
            name: min(1.0, limit / expected) if expected else 1.0
            for name, (limit, expected) in pairs.items()
            if limit is not None and expected is not None
        }


def estimate(problem: Problem, settings: Settings, steps: Steps | None = None) -> Estimate:
    """Ask strategies what they would ask of the run's language model, and the model its price.

    The problem is opened in a judge process, since what is asked depends on shapes; nothing is
    timed. Raises KoptError for a configuration with which no run could begin, except where only
    the language model is at fault: that is in the answer.
    """
    config = _config(settings)
    hooks = load_hooks(config, named_plugins(config))
    if not hooks.has("llm"):
        refuse_unmetered(hooks, config.budget)
        return Estimate(None, (), config.budget, "", ())
    (steps or Silent()).preparing(problem.name, config.device)
    others, expected = _expected(problem, config, hooks)
    costs = tuple(
        ExpectedCost(plugin, calls, hooks.kopt_price(calls.role))
        for plugin, calls in expected if calls.calls
    )  # fmt: skip
    left_out = tuple(f"{f.role} {f.plugin!r} failed: {f.error}" for f in hooks.failures)
    return Estimate(config.llm, costs, config.budget, _refused(hooks, config), left_out, others)


def _config(settings: Settings) -> RunConfig:
    """Return the configuration that a run with these settings would have. Raises KoptError."""
    language = settings.backend.rpartition(":")[2] if settings.backend else None
    device = choose_device(settings.device, [language] if language else [])
    backend = choose_backend(settings.backend, device)
    refuse_untimeable(backend.rpartition(":")[2], device)
    config = run_config(settings, device, backend, backends_beside(settings, device, backend))
    return without_idle_options(config, settings.origins, named_plugins(config))


def _expected(
    problem: Problem, config: RunConfig, hooks: Hooks
) -> tuple[int, Sequence[tuple[str, ExpectedCalls]]]:
    """Return how many candidates a run begins with as it is, and what it would ask for."""
    evaluator = LocalEvaluator(judge_settings(config, hooks, state_of(problem, config, [])))
    try:
        device, signature = evaluator.prepare()
    finally:
        evaluator.close()
    language, *beside = config.languages
    target = Target(language=language, beside=tuple(beside), device=device)
    others = len(hooks.first_without_model(problem, signature, target, History()))
    return others, hooks.kopt_expect(problem, signature, target, config.budget, others)


def _refused(hooks: Hooks, config: RunConfig) -> str:
    """Return why a run would not begin."""
    try:
        hooks.ensure_available()
        refuse_unmetered(hooks, config.budget)
    except (PluginUnavailableError, ConfigError) as error:
        return str(error)
    return ""

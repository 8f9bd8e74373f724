"""``kopt estimate``: what a run would ask of a language model, before anything is spent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from kopt.cli.options import (
    AsJson,
    Backend,
    BuildTimeout,
    BuildWorkers,
    ConfigFile,
    DeviceName,
    Executor,
    Judges,
    Llm,
    MaxTime,
    MaxTokens,
    MaxTrials,
    MaxUsd,
    PluginOptions,
    ProblemPath,
    Profilers,
    RunsDir,
    RunTimeout,
    Search,
    Seed,
    Strategies,
    Verb,
    Verifiers,
    settings_of,
)  # fmt: skip

if TYPE_CHECKING:
    from rich.table import Table

    from kopt.estimate import Estimate, ExpectedCost

_FLAGS = {"tokens": "--max-tokens", "usd": "--max-usd"}


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("estimate", cls=Verb)(estimate)


def estimate(
    problem: ProblemPath,
    backend: Backend = None,
    strategy: Strategies = None,
    search: Search = None,
    verifier: Verifiers = None,
    profiler: Profilers = None,
    judge: Judges = None,
    llm: Llm = None,
    executor: Executor = None,
    device: DeviceName = None,
    max_time: MaxTime = None,
    max_trials: MaxTrials = None,
    max_tokens: MaxTokens = None,
    max_usd: MaxUsd = None,
    seed: Seed = None,
    build_workers: BuildWorkers = None,
    build_timeout: BuildTimeout = None,
    run_timeout: RunTimeout = None,
    runs_dir: RunsDir = None,
    config: ConfigFile = None,
    option: PluginOptions = None,
    as_json: AsJson = False,
) -> int:
    """Say what kopt optimize with these options would ask of a language model, and its price.

    Nothing is asked, timed or searched. Exits 1 where such a run would be refused.
    """
    given: dict[str, object] = {
        "backend": backend, "strategies": strategy, "search": search, "verifiers": verifier,
        "profilers": profiler, "judges": judge, "llm": llm, "executor": executor, "device": device,
        "max_time": max_time, "max_trials": max_trials,
        "max_tokens": max_tokens, "max_usd": max_usd, "seed": seed,
        "build_workers": build_workers, "build_timeout": build_timeout,
        "run_timeout": run_timeout, "runs_dir": runs_dir,
    }  # fmt: skip
    settings = settings_of(given, options=option, config=config, problem=problem)
    from kopt.cli.output import print_json
    from kopt.cli.progress import ProgressReporter
    from kopt.estimate import estimate as look
    from kopt.optimize import load_problem

    loaded = load_problem(problem)
    with ProgressReporter() as progress:
        found = look(loaded, settings, progress)
    if as_json:
        print_json({"schema": 1, "problem": loaded.name, **_as_json(found)})
    else:
        _put(found)
    return 1 if found.refused else 0


def _as_json(found: Estimate) -> dict[str, Any]:
    prices = {c.price.model: c.price.to_json() for c in found.costs if c.price is not None}
    return {
        "llm": found.model,
        "requests": [
            {
                "by": cost.plugin, **cost.calls.to_json(), "total_tokens": cost.tokens,
                "usd": cost.usd, "model": cost.price.model if cost.price else None,
            }
            for cost in found.costs
        ],
        "total": {"calls": found.calls, "tokens": found.tokens, "usd": found.usd},
        "prices": list(prices.values()),
        "limits": {
            name: {"limit": getattr(found.budget, name), "share": found.shares.get(name)}
            for name in _FLAGS if getattr(found.budget, name) is not None
        },
        "first_kernels_of_others": found.others,
        "refused": found.refused, "left_out": list(found.left_out),
    }  # fmt: skip


def _put(found: Estimate) -> None:
    from rich.markup import escape

    from kopt.cli.output import put

    if found.model is None:
        put("No language model is named (--llm): nothing will be asked, and nothing paid.")
        return
    if found.costs:
        put(_table(found), "")
    else:
        put("No strategy and no judge of this run expects to ask the language model anything.")
    limits = _limits(found) if found.costs else []
    for line in [*_first(found), *_prices(found), *limits, *found.left_out]:
        put(escape(line))
    if found.refused:
        put(f"[red]Such a run would be refused:[/] {escape(found.refused)}")


def _table(found: Estimate) -> Table:
    from rich.markup import escape

    from kopt.cli.output import plain_table

    table = plain_table(
        "BY", "ROLE", "CALLS>", "TOKENS IN>", "TOKENS OUT>", "TOKENS IN ALL>", "USD>", "BECAUSE"
    )
    for cost in found.costs:
        table.add_row(*map(escape, _row(cost)))
    total = ["all", "", f"{found.calls:,}", "", "", f"{found.tokens:,}", _usd(found.usd), ""]
    table.add_row(*total, style="bold")
    return table


def _row(cost: ExpectedCost) -> list[str]:
    calls = cost.calls
    return [
        cost.plugin, calls.role, f"{calls.calls:,}", f"{calls.input_tokens:,}",
        f"{calls.output_tokens:,}", f"{cost.tokens:,}", _usd(cost.usd), calls.basis,
    ]  # fmt: skip


def _usd(value: float | None) -> str:
    return "price unknown" if value is None else f"{value:.4f}"


def _first(found: Estimate) -> list[str]:
    """Return why no first kernels are asked for, where that is so."""
    if not found.others:
        return []
    has = "a first kernel" if found.others == 1 else f"{found.others} first kernels"
    return [f"other strategies have {has}: none is asked for, unless none of them turns out right"]


def _prices(found: Estimate) -> list[str]:
    """Return a line for each price that was used."""
    prices = dict.fromkeys(cost.price for cost in found.costs if cost.price is not None)
    return [
        f"price of {price.model}: ${price.input_usd:g} in, ${price.output_usd:g} out for a million "
        f"tokens{f' ({price.source})' if price.source else ''}"
        for price in prices
    ]


def _limits(found: Estimate) -> list[str]:
    """Return a line for each limit: how much of what is expected it allows."""
    lines = []
    for name, flag in _FLAGS.items():
        limit = getattr(found.budget, name)
        if limit is None:
            continue
        amount = f"{flag} {limit:,}" if name == "tokens" else f"{flag} {limit:g}"
        share = found.shares.get(name)
        if share is None:
            lines.append(f"{amount}: cannot be compared, the price is unknown")
        elif share < 1:
            calls = int(share * found.calls)
            lines.append(f"{amount}: ends the asking after about {calls} of {found.calls} calls")
        else:
            lines.append(f"{amount}: allows all of it")
    return lines or ["no limit is set: --max-tokens and --max-usd set one"]

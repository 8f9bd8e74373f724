"""From a finished run to the row of its problem."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from kopt.model.measurement import Interval, fastest_of
from kopt.model.work import bound_ms, work_of
from kopt.suites.records import Chosen, Over, Row

if TYPE_CHECKING:
    from kopt.model.measurement import Measurement
    from kopt.model.problem import Signature
    from kopt.model.run import Run
    from kopt.model.work import Bound
    from kopt.suites.problem import SuiteProblem

EAGER, COMPILE = "eager", "torch.compile"
_SAME = Interval(median=1.0, low=1.0, high=1.0)
_MOST = 1e308


def row_of(
    problem: SuiteProblem,
    run: Run,
    signature: Signature | None,
    seconds: float,
    *,
    closest: Measurement | None = None,
) -> Row:
    """Return the row of a run that has ended.

    :param signature: what opening the problem taught; None where it was not opened.
    :param seconds: wall clock of this part.
    :param closest: of the best kernel in the search, where none was confirmed.
    """
    improved = run.status == "improved" and run.best is not None
    verdict = "improved" if improved else "baseline" if run.baselines else "failed"
    times, speedup, best = _compared(run, improved=improved)
    kopt_ms = times.get("kopt")
    bound = _bound(run, signature) if signature else None
    least = bound.total_ms if bound else None
    return Row(
        id=problem.id, name=problem.name, problem_id=run.problem.id, derived=problem.derived,
        verdict=verdict, status=run.status, reason=run.reason, run=run.id,
        eager_ms=times.get(EAGER), compile_ms=times.get(COMPILE), best_baseline=best,
        best_baseline_ms=times.get(best) if best else None, kopt_ms=kopt_ms,
        chosen=_kernel(run) if improved else _kept(run, best), speedup=speedup, bound_ms=least,
        of_bound_percent=100.0 * least / kopt_ms if least and kopt_ms else None,
        limited_by=bound.limited_by if bound else None,
        stages=_stages(run) if improved else {},
        stage_seconds=_stage_seconds(run) if improved else {}, seconds=max(seconds, run.spend.seconds),
        device_id=run.device.uuid if run.device else "",
        clocks=run.device.clocks if run.device else None, trials=run.trials, baselines=run.baselines, failed_baselines=run.failed_baselines,
        measurement=run.best.measurement if run.best else closest,
    )  # fmt: skip


def failed_row(
    problem: SuiteProblem, error: str, seconds: float, *, problem_id: str = "", run: str = ""
) -> Row:
    """Return the row of a problem that ended with an error."""
    return Row(
        id=problem.id, name=problem.name, problem_id=problem_id, derived=problem.derived,
        verdict="failed", status="error", reason=error, run=run, seconds=seconds,
    )  # fmt: skip


def ratio(over: Interval, under: Interval) -> Interval:
    """Return one over the other: the medians' ratio, and ends that no pair of values exceeds."""
    return Interval(
        median=over.median / under.median,
        low=over.low / under.high,
        high=min(over.high / under.low, _MOST) if under.low > 0 else _MOST,
    )


def _compared(
    run: Run, *, improved: bool
) -> tuple[dict[str, float], dict[Over, Interval], str | None]:
    """Return times (of baselines and ``kopt``), speedups, and the best baseline's name."""
    times = {name: measured.latency_ms for name, measured in run.baselines.items()}
    measurement = run.best.measurement if improved and run.best else None
    over: dict[str, Interval] = {}
    if measurement is not None:
        # Both sides of these were timed in the same blocks.
        times |= _beside(measurement)
        times["kopt"], over = measurement.latency_ms, dict(measurement.speedup)
        best = min(over, key=lambda name: over[name].median)
    elif times:
        best = fastest_of(run.baselines)
        over = {name: _between(run.baselines, best, name) for name in times}
        times["kopt"] = times[best]
    else:
        return {}, {}, None
    found: dict[Over, Interval] = {"best": over[best]}
    if EAGER in over:
        found["eager"] = over[EAGER]
    if COMPILE in over:
        found["torch.compile"] = over[COMPILE]
    return times, found, best


def _beside(measurement: Measurement) -> dict[str, float]:
    """Return each baseline's time from the blocks that were interleaved with the kernel's."""
    sums: dict[str, float] = {}
    total = sum(each.weight for each in measurement.workloads)
    for each in measurement.workloads:
        for pair in each.pairs:
            share = each.weight / total * statistics.median(pair.baseline_samples_ms)
            sums[pair.baseline] = sums.get(pair.baseline, 0.0) + share
    return sums


def _between(baselines: dict[str, Measurement], name: str, other: str) -> Interval:
    """Return how much faster one baseline is than another, by what both were timed beside."""
    if name == other:
        return _SAME
    ours, theirs = baselines[name].speedup, baselines[other].speedup
    common = next(iter(ours))
    over_common = _SAME if name == common else ours[common]
    return over_common if other == common else ratio(over_common, theirs[common])


def _kernel(run: Run) -> Chosen:
    assert run.best is not None
    candidate = run.best.candidate
    path = run.source_path
    return Chosen(
        what="kernel", name=candidate.idea, language=candidate.language,
        strategy=candidate.strategy, id=candidate.id, knobs=dict(candidate.chosen),
        source=path.read_text(encoding="utf-8") if path and path.is_file() else "",
    )  # fmt: skip


def _kept(run: Run, best: str | None) -> Chosen | None:
    return Chosen(what="baseline", name=best, language=run.config.reference) if best else None


def _stages(run: Run) -> dict[str, str]:
    assert run.best is not None
    return {
        f"{verification.verifier}.{stage.stage}": stage.outcome
        for verification in run.best.verifications
        for stage in verification.stages
    }


def _stage_seconds(run: Run) -> dict[str, float]:
    assert run.best is not None
    return {
        f"{verification.verifier}.{stage.stage}": round(stage.seconds, 3)
        for verification in run.best.verifications
        for stage in verification.stages
        if stage.seconds is not None
    }


def _bound(run: Run, signature: Signature) -> Bound | None:
    """Return the bound on ``latency_ms``: the weighted mean over the measured workloads."""
    peaks = run.device.peaks if run.device else None
    measured = [each for each in run.problem.workloads if each.role == "measure"]
    if peaks is None:
        return None
    precision = run.problem.tolerance.precision
    bounds = [bound_ms(work_of(signature.workloads[w.name]), peaks, precision) for w in measured]
    totals = [bound.total_ms for bound in bounds]
    known = [total for total in totals if total is not None]
    if len(known) < len(totals):
        return None
    weights = [each.weight for each in measured]
    mean = sum(w * total for w, total in zip(weights, known, strict=True)) / sum(weights)
    longest = max(bounds, key=lambda bound: bound.total_ms or 0.0)
    return longest.model_copy(update={"total_ms": mean})

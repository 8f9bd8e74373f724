"""A run, an evaluation or a measurement as JSON and as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from kopt.model.evaluation import Evaluation
    from kopt.model.measurement import Measurement
    from kopt.model.problem import Problem
    from kopt.model.run import Run

SCHEMA = 1
_ARITHMETIC = {
    "strict": "float32 arithmetic: strict, the reference without TF32",
    "tf32": "float32 arithmetic: tf32, the reference with TF32 wherever possible",
}


def arithmetic(problem: Problem) -> str:
    """Say which float32 arithmetic kernels are held to, where it is not that of the defaults."""
    return _ARITHMETIC.get(problem.tolerance.precision, "")


def run_json(run: Run) -> dict[str, Any]:
    """Return the object that ``kopt optimize --json`` ends with."""
    return {
        "schema": SCHEMA, "status": run.status, "reason": run.reason, "run": run.id,
        "folder": str(run.folder.absolute()),
        "problem": {"name": run.problem.name, "format": run.problem.format, "id": run.problem.id},
        "device": run.device.to_json() if run.device else None,
        "precision": run.problem.tolerance.precision,
        "baselines": {name: _times(m) for name, m in run.baselines.items()},
        "failed_baselines": run.failed_baselines, "copy_ms": run.copy_ms,
        "best": _best(run), "keep": run.keep,
        "verification": stages(run.best) if run.best else {},
        "trials": run.trials, "spend": run.spend.to_json(), "plugins": run.plugins,
    }  # fmt: skip


def _times(measurement: Measurement) -> dict[str, Any]:
    return {
        "latency_ms": measurement.latency_ms,
        "call_ms": max(w.call_ms for w in measurement.workloads),
        "samples_ms": [list(w.pairs[0].samples_ms) for w in measurement.workloads],
    }


def _best(run: Run) -> dict[str, Any] | None:
    if run.best is None or run.best.measurement is None:
        return None
    best, measurement = run.best, run.best.measurement
    moved = sum(w.weight * w.bytes_moved for w in measurement.workloads)
    total = sum(w.weight for w in measurement.workloads)
    return {
        "id": best.id, "backend": best.build.backend if best.build else run.config.backend,
        "language": best.candidate.language,
        "strategy": best.candidate.strategy, "idea": best.candidate.idea,
        "source_path": str(run.source_path.absolute()) if run.source_path else None, "knobs": best.candidate.chosen,
        "latency_ms": measurement.latency_ms,
        "call_ms": max(w.call_ms for w in measurement.workloads),
        "setup_ms": measurement.setup_ms,
        "bandwidth_gb_s": moved / total / measurement.latency_ms / 1e6,
        "of_copy": run.copy_ms / measurement.latency_ms if run.copy_ms else None,
        "speedup": {name: i.to_json() for name, i in measurement.speedup.items()},
        "noise": measurement.noise, "binary_id": best.build.binary_id if best.build else "",
        "resources": best.build.resources if best.build else {},
        "error_ratio": worst_ratio(best),
        "workloads": [w.to_json() for w in measurement.workloads],
    }  # fmt: skip


def further_times(measurement: Measurement) -> str:
    """Return the times beside the headline's, in words: per call, warm, set-up."""
    call = max(w.call_ms for w in measurement.workloads)
    parts = [f"{call:.4g} ms a call with its launch"]
    if len(measurement.workloads) == 1 and measurement.workloads[0].warm_ms:
        parts.append(f"{measurement.workloads[0].warm_ms:.4g} ms on inputs used just before")
    if measurement.setup_ms is not None:
        parts.append(f"{measurement.setup_ms:.4g} ms for the first call of a process")
    return ", ".join(parts)


def stages(evaluation: Evaluation) -> dict[str, str]:
    """Return stage to outcome over all verifiers; a stage that two have is named in full."""
    found: dict[str, str] = {}
    for verification in evaluation.verifications:
        for stage in verification.stages:
            name = (
                stage.stage
                if stage.stage not in found
                else f"{verification.verifier}.{stage.stage}"
            )
            found[name] = stage.outcome
    return found


def worst_ratio(evaluation: Evaluation) -> float | None:
    """Return the largest error ratio of any verifier."""
    ratios = [v.error_ratio for v in evaluation.verifications if v.error_ratio is not None]
    return max(ratios, default=None)


def stage_table(evaluation: Evaluation) -> Table:
    """Return each stage's outcome with its evidence, one piece of evidence a line."""
    from rich.markup import escape

    from kopt.cli.output import plain_table

    table = plain_table("STAGE", "OUTCOME", "EVIDENCE")
    colours = {"pass": "green", "fail": "red", "not run": "dim"}
    for verification in evaluation.verifications:
        for stage in verification.stages:
            outcome = f"[{colours[stage.outcome]}]{stage.outcome}[/]"
            pieces = stage.evidence.split("; ") if len(stage.evidence) > 100 else [stage.evidence]
            for number, piece in enumerate(pieces):
                shown = ("", "") if number else (escape(stage.stage), outcome)
                table.add_row(*shown, escape(piece))
    return table


def speedups(measurement: Measurement) -> str:
    """Return in words how a kernel compares with each baseline."""
    return ", ".join(
        f"{interval.median:.3f}x over {name} ({interval.low:.3f} to {interval.high:.3f})"
        for name, interval in measurement.speedup.items()
    )


def measured_verdict(evaluation: Evaluation) -> str:
    """Return ``improved``, ``not-improved`` or what is wrong with a kernel.

    Improved is what beats every baseline by more than the noise.
    """
    measurement = evaluation.measurement
    if measurement is None:
        return str(evaluation.status)
    return "improved" if all(map(measurement.beats, measurement.speedup)) else "not-improved"


def stage_seconds(evaluation: Evaluation) -> dict[str, float]:
    """Return what each stage took, of those whose time is told apart."""
    return {
        stage.stage: round(stage.seconds, 3)
        for verification in evaluation.verifications
        for stage in verification.stages
        if stage.seconds is not None
    }


def evaluation_json(evaluation: Evaluation) -> dict[str, Any]:
    """Return what ``kopt verify`` and ``kopt show --candidate`` print."""
    return {
        "schema": SCHEMA, "id": evaluation.id, "status": str(evaluation.status),
        "detail": evaluation.detail, "language": evaluation.candidate.language,
        "knobs": evaluation.candidate.chosen, "verification": stages(evaluation),
        "evidence": {
            stage.stage: stage.evidence for v in evaluation.verifications for stage in v.stages
        },
        "stage_seconds": stage_seconds(evaluation),
        "error_ratio": worst_ratio(evaluation),
        "build": evaluation.build.to_json() if evaluation.build else None,
        "measurement": evaluation.measurement.to_json() if evaluation.measurement else None,
        "seconds": evaluation.seconds,
        **({"same_as": evaluation.same_as} if evaluation.same_as else {}),
    }  # fmt: skip

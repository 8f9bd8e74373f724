"""The words and the exit code of a run's end are true."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from kopt.cli.finishing import print_run, show_run, verdict
from kopt.model.measurement import Interval
from kopt.model.run import Run

Make = Callable[..., Run]
KEYS = {
    "status", "run", "problem", "device", "baselines", "best", "verification", "trials", "spend",
}  # fmt: skip


@pytest.mark.parametrize(
    ("status", "code"),
    [("improved", 0), ("not-improved", 1), ("failed", 1), ("interrupted", 2), ("running", 2)],
)
def test_each_end_has_its_exit_code(
    run_of: Make, status: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show_run(run_of(status), as_json=True) == code
    data = json.loads(capsys.readouterr().out)
    assert set(data) >= KEYS
    assert data["status"] == status


def test_the_json_of_an_improved_run(run_of: Make, capsys: pytest.CaptureFixture[str]) -> None:
    show_run(run_of("improved", 2.0), as_json=True)
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    data = json.loads(out)
    best = data["best"]
    assert {"id", "backend", "source_path", "latency_ms"} <= set(best)
    assert best["speedup"] == {"eager": {"median": 2.0, "low": 1.98, "high": 2.02}}
    assert data["baselines"]["eager"]["latency_ms"] == 1.0
    assert data["verification"] == {"accuracy": "pass"}
    assert data["trials"] == {"correct": 2, "wrong": 1}
    assert data["spend"]["trials"] == 3


def test_an_improved_run_says_over_what(run_of: Make, capsys: pytest.CaptureFixture[str]) -> None:
    show_run(run_of("improved", 2.0), as_json=False)
    out = capsys.readouterr().out
    assert "vector_add on test cpu: improved" in out
    assert "beats eager by 2.00x (1.98 to 2.02)." in out
    assert "one [pass]" in out
    assert "sources/[1].cpp" in out
    assert "2 correct, 1 wrong in 12 s; it ended because: why" in out


def test_a_run_that_beat_nothing_says_what_stood(
    run_of: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of("not-improved", 1.005)
    assert show_run(run, as_json=False) == 1
    out = capsys.readouterr().out
    assert "Nothing beat eager by more than the noise (1.0%): keep eager." in out
    assert "1.005x" in out
    assert "source:" in out


def test_what_to_keep(run_of: Make) -> None:
    """The best where it beat everything; else the fastest baseline, whichever that is."""
    assert run_of("improved", 2.0).keep == "best"
    run = run_of("not-improved", 1.005)
    slow = run.baselines["eager"]
    quick = slow.model_copy(update={"latency_ms": slow.latency_ms / 2})
    assert run.keep == "eager"
    assert (
        run.model_copy(update={"baselines": {"eager": slow, "compiled": quick}}).keep == "compiled"
    )
    assert run.model_copy(update={"baselines": {}}).keep == ""


def test_the_closest_baseline_is_named(run_of: Make) -> None:
    run = run_of("improved", 4.0)
    assert run.best is not None
    assert run.best.measurement is not None
    speedup = {**run.best.measurement.speedup, "close": Interval(median=1.5, low=1.4, high=1.6)}
    best = run.best.model_copy(
        update={"measurement": run.best.measurement.model_copy(update={"speedup": speedup})}
    )
    said = verdict(run.model_copy(update={"best": best}))
    assert said == (
        "The best kernel beats close by 1.50x (1.40 to 1.60) and every other baseline by more."
    )


def test_a_paused_run_says_what_it_waits_for(
    run_of: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    waiting = f"1 of 1 answers have still to be written: /{'long/' * 60}[a].reply.md"
    print_run(run_of("interrupted", reason=waiting))
    assert f"\n{waiting}\n" in capsys.readouterr().out
    print_run(run_of("interrupted", reason="interrupted; go on with `kopt resume`"))
    assert capsys.readouterr().out.count("go on with") == 1


def test_a_run_without_a_right_kernel_says_where_to_look(run_of: Make) -> None:
    run = run_of("not-improved")
    assert verdict(run).endswith(f"kopt show {run.id}")
    interrupted = run_of("interrupted")
    assert interrupted.trials
    assert f"is not confirmed yet (kopt show {interrupted.id}); go on" in verdict(interrupted)
    early = interrupted.model_copy(update={"trials": {}})
    assert verdict(early) == f"It was interrupted; go on with: kopt resume {interrupted.id}"
    assert "kopt plugins" in verdict(run_of("failed"))


def test_where_nothing_was_tried_a_baseline_is_to_be_kept(run_of: Make) -> None:
    run = run_of("not-improved").model_copy(update={"trials": {}})
    assert verdict(run) == "Nothing was tried: keep eager."

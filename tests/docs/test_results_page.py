"""scripts/results_page.py writes docs/results.md from the suites' records, losses included."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kopt.model.measurement import Interval
from kopt.suites.records import Chosen, Planned, Row, SuiteRecord, SuiteSettings, write_suite
from kopt.testing.records import gpu

KERNEL = Chosen(what="kernel", name="one | pass", language="triton", strategy="starters")
BASELINE = Chosen(what="baseline", name="torch.compile", language="torch")
ROWS = (
    Row(id="1", name="softmax", verdict="improved", status="improved", seconds=20, chosen=KERNEL,
        eager_ms=4.0, compile_ms=2.0, best_baseline="torch.compile", best_baseline_ms=2.0,
        kopt_ms=1.0, of_bound_percent=93.0,
        speedup={"torch.compile": Interval(median=2.0, low=1.9, high=2.1),
                 "best": Interval(median=2.0, low=1.9, high=2.1)}),
    Row(id="2", name="sum", verdict="baseline", status="not-improved", seconds=30, chosen=BASELINE,
        best_baseline="torch.compile", best_baseline_ms=3.0, kopt_ms=3.0,
        trials={"correct": 3, "oom": 1},
        reason="budget: 90 of 80 seconds used; the fastest candidate was not confirmed: "
               "infrastructure-error: no trustworthy answer to kopt_verify: verifier 'verify' "
               "(kopt-verify 0.2.0) failed in kopt_verify: OutOfMemoryError: " + "x" * 200,
        speedup={"torch.compile": Interval(median=1.0, low=1.0, high=1.0),
                 "best": Interval(median=1.0, low=1.0, high=1.0)}),
    Row(id="3", name="topk", verdict="failed", status="error", reason="it is\nno problem", seconds=1),
)  # fmt: skip


def run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / "scripts" / "results_page.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_page_shows_the_records_as_they_are(root: Path) -> None:
    done = run(root, "--check")
    assert done.returncode == 0, f"run scripts/results_page.py\n{done.stderr}"


def test_wins_losses_failures_and_what_was_not_run(root: Path, tmp_path: Path) -> None:
    planned = tuple(Planned(id=n, name=name) for n, name in
                    [("1", "softmax"), ("2", "sum"), ("3", "topk"), ("4", "late")])  # fmt: skip
    record = SuiteRecord(
        suite="made-up", dtype="float32", kopt="0.2.0", created=1.0, runs="runs", device=gpu(),
        settings=SuiteSettings(seconds=60.0), rows=ROWS, planned=planned,
    )  # fmt: skip
    folder, page = tmp_path / "records", tmp_path / "page.md"
    folder.mkdir()
    given = ("--records", str(folder), "--page", str(page))
    assert run(root, *given).returncode == 0
    assert not page.exists(), "there is nothing to show"
    write_suite(folder / "a.json", record)
    assert run(root, *given, "--check").returncode == 1
    assert run(root, *given).returncode == 0
    assert run(root, *given, "--check").returncode == 0
    text = page.read_text()
    assert "| 1 | softmax | 4 | 2 | 2 torch.compile | 1 | 2.00x (1.90 to 2.10) |" in text
    assert "| triton: one / pass | 20 |" in text
    assert "| 2 | sum |" in text and "| baseline torch.compile | 30 |" in text
    assert "failed: it is" in text
    assert "Not run: 4 late." in text
    (kept,) = [line for line in text.splitlines() if line.startswith("| 2 | sum | torch.compile 3")]
    assert "| 3 correct, 1 oom | budget: 90 of 80 seconds used; " in kept
    assert "not confirmed: infrastructure-error: OutOfMemoryError: xxx" in kept
    assert kept.endswith("xxx ... |")
    assert "1 improved, 1 keep their fastest baseline, 1 failed, 1 not run" in text


def test_goals_say_what_is_missing_and_which_problems_stand_in_the_way(
    root: Path, tmp_path: Path
) -> None:
    slow = ROWS[1].model_copy(update={"id": "4", "seconds": 301.0})
    record = SuiteRecord(
        suite="kernelbench-level1", dtype="float32", kopt="0.2.0", created=1.0, runs="runs",
        device=gpu(), settings=SuiteSettings(seconds=60.0), rows=(*ROWS, slow),
        planned=tuple(Planned(id=row.id, name=row.name) for row in (*ROWS, slow)),
    )  # fmt: skip
    folder, page = tmp_path / "records", tmp_path / "page.md"
    folder.mkdir()
    write_suite(folder / "a.json", record)
    assert run(root, "--records", str(folder), "--page", str(page)).returncode == 0
    lines = page.read_text().splitlines()
    assert "| problems with a verified answer | 100 | 3 | missed | 3 |" in lines
    assert "| faster than torch.compile, interval above 1 | 75 | 1 | missed | 2, 3, 4 |" in lines
    assert "| geomean over torch.compile | 2.00x | 1.26x | missed |  |" in lines
    assert "| answered within five minutes | 100 | 3 | missed | 4 |" in lines

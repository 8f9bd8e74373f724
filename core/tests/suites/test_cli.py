"""``kopt suite`` as a user has it, as far as nothing needs to be run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kopt.cli.app import main
from kopt.cli.suite_tables import show_outcome
from kopt.suites.records import write_suite
from kopt.suites.rows import row_of
from kopt.suites.runner import SuiteOutcome
from kopt.testing.problems import vector_add_signature


class Said(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def kopt(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any
) -> Callable[..., Said]:
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> Said:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Said(ended.value.code, out, err)

    return call


@pytest.fixture
def record(made: Any, tmp_path: Path) -> Path:
    """A kernel, a kept baseline and a failure."""
    rows = [
        row_of(made.problem(1), made.run("improved", 0.5), vector_add_signature(), 4.0),
        row_of(made.problem(2), made.run("not-improved"), None, 4.0),
        made.row(3, "failed").model_copy(update={"reason": "Traceback\n  x\nValueError: [bad]"}),
    ]
    path = tmp_path / "a.json"
    write_suite(path, made.record(rows, planned=4))
    return path


def test_show(kopt: Callable[..., Said], record: Path) -> None:
    said = kopt("suite", "show", record)
    assert said.code == 0
    lines = said.out.splitlines()
    assert lines[0] == "made-up in float32 on test cpu"
    one, two, three = (next(line for line in lines if f" add{n} " in line) for n in (1, 2, 3))
    assert "2.200x" in one and "starters (cpp): one pass" in one
    assert "1.000x" in two and "baseline torch.compile" in two
    assert "failed: ValueError: [bad]" in three
    assert "4 problems: 1 improved, 1 keep their fastest baseline, 1 failed, 1 not run" in said.out
    assert "kopt doctor --measure" in said.out
    shown = json.loads(kopt("suite", "show", record, "--json").out)
    assert shown["schema"] == 1
    assert shown["summary"]["fast_p"]["eager"]["1.5"] == 0.5
    assert shown["rows"][0]["measurement"]["workloads"][0]["pairs"]


def test_compare(kopt: Callable[..., Said], record: Path, made: Any, tmp_path: Path) -> None:
    rows = [row_of(made.problem(1), made.run("improved", 1.0 / 1.1), None, 4.0)]
    write_suite(tmp_path / "b.json", made.record(rows))
    said = kopt("suite", "compare", record, "b.json", "--over", "best")
    assert said.code == 0
    [row] = [line for line in said.out.splitlines() if " add1 " in line]
    assert row.split()[:6] == ["1", "add1", "2.200x", "1.210x", "1.818", "1.747"]
    assert "A is faster on 1, B on 0, neither on 0" in said.out
    assert "in A alone: 2" in said.out
    shown = json.loads(kopt("suite", "compare", record, "b.json", "--json").out)
    assert (shown["over"], shown["a_wins"], shown["only_a"]) == ("torch.compile", 1, ["2"])
    assert kopt("suite", "compare", record, record, "--over", "x").code == 4


def test_exit_codes(made: Any, capsys: pytest.CaptureFixture[str]) -> None:
    good = made.record([made.row(1, best=2.0, eager=2.0)])
    cases = [
        (good, False, 0), (good, True, 2), (made.record([made.row(1, "failed")]), False, 1),
        (made.record([made.row(1, best=2.0)], planned=2), False, 1),
    ]  # fmt: skip
    for record, interrupted, code in cases:
        outcome = SuiteOutcome(record, interrupted)
        assert show_outcome(outcome, Path("r.json"), as_json=True) == code
        assert json.loads(capsys.readouterr().out)["suite"] == "made-up"
        assert show_outcome(outcome, Path("r.json"), as_json=False) == code
        assert "record: r.json" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("table5",), "no suite and no folder 'table5'; suites are kernelbench, table4, showcase"),
        (("kernelbench",), "needs --root"),
        (("kernelbench", "--root", "nowhere"), "no KernelBench/level1 in it"),
        (("table4", "--level", "2"), "--level is KernelBench's"),
        (("table4", "--dtype", "bfloat16"), "is in float16"),
        (("table4", "--precision", "exact"), "must be one of reference, strict, tf32"),
        (("table4", "--each-workload"), "--each-workload is for a folder of problems"),
        ((".", "--dtype", "float32"), "the problems in . say their own dtypes"),
        ((".", "--level", "1"), "--level is KernelBench's"),
        ((".",), "has no problem"),
        (("table4", "--ids", "0-x"), "neither a number nor a range"),
        (("table4", "--time-per-problem", "soon"), "--time-per-problem: 'soon' is no duration"),
        (("table4", "--option", "nothing"), "not ROLE.NAME.KEY=VALUE"),
    ],
)
def test_wrong_usage(kopt: Callable[..., Said], arguments: tuple[str, ...], message: str) -> None:
    said = kopt("suite", "run", *arguments)
    assert said.code == 4
    assert message in " ".join(said.err.split())
    assert not Path(".kopt").exists()


def test_a_record_that_is_none(kopt: Callable[..., Said]) -> None:
    assert kopt("suite", "show", "nothing.json").code == 4

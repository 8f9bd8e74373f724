"""A suite's record on the disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kopt.errors import RunStoreError
from kopt.suites.records import read_suite, write_suite
from kopt.suites.rows import row_of


def test_what_is_written_is_read(made: Any, tmp_path: Path) -> None:
    rows = [
        row_of(made.problem(1), made.run("improved", 0.5), None, 1.0),
        row_of(made.problem(2), made.run("not-improved"), None, 1.0),
        made.row(3, "failed"),
    ]
    record = made.record(rows)
    path = tmp_path / "below" / "record.json"
    write_suite(path, record)
    assert read_suite(path) == record
    assert json.loads(path.read_text())["schema"] == 1
    assert [each.name for each in path.parent.iterdir()] == ["record.json"]


def test_rows_stand_in_the_order_of_the_plan(made: Any) -> None:
    record = made.record([made.row(3)], planned=4).with_row(made.row(1)).with_row(made.row(2))
    assert [row.id for row in record.rows] == ["1", "2", "3"]
    assert [each.id for each in record.missing] == ["4"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read"),
        ("[1]", "no suite's record"),
        ('{"schema": 2}', "schema 1"),
        ('{"schema": 1, "suite": 3}', "suite: Input should be a valid string"),
    ],
)
def test_what_is_no_record_says_so(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(text)
    with pytest.raises(RunStoreError, match=message):
        read_suite(path)
    with pytest.raises(RunStoreError, match="no such file"):
        read_suite(tmp_path / "none.json")

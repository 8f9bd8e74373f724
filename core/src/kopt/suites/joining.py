"""Several records of one suite as one, for looking at: a suite that was run in parts."""

from __future__ import annotations

from collections.abc import Sequence

from kopt.errors import ConfigError
from kopt.suites.records import Planned, SuiteRecord, SuiteSettings


def joined(records: Sequence[SuiteRecord]) -> SuiteRecord:
    """Return one record with the rows of all, in the order of their ids.

    Ratios were measured in pairs on one device each, so those of two devices of one model may stand
    in one table. So may parts with different budgets of time: the largest is the record's. Raises
    ConfigError for another suite, dtype, model of device or other settings, and for a problem that
    two records have.
    """
    first, *others = records
    for other in others:
        _refuse_unlike(first, other)
    rows = {row.id: row for record in records for row in record.rows}
    if len(rows) < sum(len(record.rows) for record in records):
        ids = [row.id for record in records for row in record.rows]
        twice = next(each for each in ids if ids.count(each) > 1)
        raise ConfigError(f"problem {twice} is in two of these records; show them apart")
    planned = {each.id: each for record in records for each in record.planned}
    order = sorted(planned, key=_place)
    return first.model_copy(
        update={
            "settings": max((r.settings for r in records), key=lambda each: each.seconds),
            "planned": tuple(Planned(id=each, name=planned[each].name) for each in order),
            "rows": tuple(rows[each] for each in order if each in rows),
        }
    )


def _refuse_unlike(first: SuiteRecord, other: SuiteRecord) -> None:
    for what, a, b in (
        ("suites", first.suite, other.suite),
        ("dtypes", first.dtype, other.dtype),
        ("devices", first.device.name, other.device.name),
        ("settings", _but_budget(first), _but_budget(other)),
    ):
        if a != b:
            raise ConfigError(
                f"these records are of different {what}: {a} and {b}; show them apart"
            )


def _but_budget(record: SuiteRecord) -> SuiteSettings:
    return record.settings.model_copy(update={"seconds": 1.0})


def _place(problem: str) -> tuple[int, str]:
    return (int(problem), "") if problem.isdigit() else (0, problem)

"""Several records of one suite as one, for looking at: a suite that was run in parts."""

from __future__ import annotations

from collections.abc import Sequence

from kopt.errors import ConfigError
from kopt.suites.records import Planned, Row, SuiteRecord, SuiteSettings


def joined(records: Sequence[SuiteRecord], *, latest: bool = False) -> SuiteRecord:
    """Return one record with the rows of all, in the order of their ids.

    Ratios were measured in pairs on one device each, so those of two devices of one model may stand
    in one table. So may parts with different budgets of time: the largest is the record's. Raises
    ConfigError for another suite, dtype, model of device or other settings, and for a problem that
    two records have.

    :param latest: a problem that two records have has the row of the one that was begun last,
        whatever it says.
    """
    first, *others = records
    for other in others:
        _refuse_unlike(first, other)
    rows = _standing(records)
    if not latest and (twice := replaced(records)):
        raise ConfigError(
            f"problem {twice[0].id} is in two of these records; show them apart, or --latest"
        )
    planned = {each.id: each for record in records for each in record.planned}
    order = sorted(planned, key=_place)
    return first.model_copy(
        update={
            "settings": max((r.settings for r in records), key=lambda each: each.seconds),
            "planned": tuple(Planned(id=each, name=planned[each].name) for each in order),
            "rows": tuple(rows[each] for each in order if each in rows),
        }
    )


def replaced(records: Sequence[SuiteRecord]) -> list[Row]:
    """Return the rows of problems that a record begun later has too, in the order of their ids."""
    standing = _standing(records)
    rows = [row for record in records for row in record.rows if row is not standing[row.id]]
    return sorted(rows, key=lambda row: _place(row.id))


def _standing(records: Sequence[SuiteRecord]) -> dict[str, Row]:
    in_time = sorted(records, key=lambda record: record.created)
    return {row.id: row for record in in_time for row in record.rows}


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

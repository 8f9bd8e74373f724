"""Parts of a suite as one record."""

from __future__ import annotations

from typing import Any

import pytest

from kopt.errors import ConfigError
from kopt.suites.joining import joined, replaced
from kopt.suites.records import Planned, SuiteRecord, SuiteSettings
from kopt.testing.records import cpu, gpu


def part(made: Any, *numbers: int, **more: Any) -> SuiteRecord:
    planned = tuple(Planned(id=str(n), name=f"add{n}") for n in numbers)
    record: SuiteRecord = made.record([made.row(n, best=2.0) for n in numbers])
    return record.model_copy(update={"planned": planned, **more})


def test_rows_of_all_stand_in_the_order_of_their_numbers(made: Any) -> None:
    found = joined([part(made, 2, 10), part(made, 1, 9), part(made, 3)])
    assert [row.id for row in found.rows] == ["1", "2", "3", "9", "10"]
    assert found.missing == ()


def test_one_record_is_itself(made: Any) -> None:
    assert joined([part(made, 1, 2)]) == part(made, 1, 2)


def test_what_is_still_to_be_run_stays_so(made: Any) -> None:
    planned = tuple(Planned(id=str(n), name="a") for n in (1, 4))
    found = joined([part(made, 1, planned=planned), part(made, 2)])
    assert [each.id for each in found.missing] == ["4"]


@pytest.mark.parametrize(
    ("change", "said"),
    [({"suite": "other"}, "different suites: made-up and other"),
     ({"dtype": "bfloat16"}, "different dtypes"),
     ({"device": gpu()}, "different devices"),
     ({"settings": SuiteSettings(seconds=60.0, seed=7)}, "different settings")],
)  # fmt: skip
def test_unlike_records_are_not_joined(made: Any, change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        joined([part(made, 1), part(made, 2, **change)])


def test_two_devices_of_one_model_may_be(made: Any) -> None:
    other = cpu().model_copy(update={"uuid": "another"})
    assert len(joined([part(made, 1), part(made, 2, device=other)]).rows) == 2


def test_the_largest_budget_of_the_parts_is_told(made: Any) -> None:
    longer = SuiteSettings(seconds=90.0)
    assert joined([part(made, 1, settings=longer), part(made, 2)]).settings == longer
    assert joined([part(made, 1), part(made, 2, settings=longer)]).settings == longer


def test_a_problem_in_two_records_is_refused(made: Any) -> None:
    with pytest.raises(ConfigError, match="problem 1 is in two"):
        joined([part(made, 1, 2), part(made, 1)])


def test_the_row_of_the_record_begun_last_stands(made: Any) -> None:
    old, new = part(made, 1, 2, created=1.0), part(made, 1, created=2.0)
    worse = new.rows[0].model_copy(update={"verdict": "failed"})
    new = new.model_copy(update={"rows": (worse,)})
    for order in ([old, new], [new, old]):
        assert joined(order, latest=True).rows == (worse, old.rows[1])
        assert replaced(order) == [old.rows[0]]


def test_nothing_is_replaced_where_no_problem_is_in_two_records(made: Any) -> None:
    assert replaced([part(made, 1), part(made, 2)]) == []

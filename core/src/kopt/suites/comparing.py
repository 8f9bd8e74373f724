"""Two records of a suite beside each other, by their speedups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from kopt.errors import ConfigError
from kopt.model.measurement import Interval
from kopt.model.record import Record
from kopt.suites.rows import ratio
from kopt.suites.statistics import geomean

if TYPE_CHECKING:
    from kopt.suites.records import Over, Row, SuiteRecord

Winner = Literal["A", "B", "tie"]


class ComparedRow(Record):
    """One problem that both records have a speedup of."""

    id: str
    name: str
    a: Interval
    b: Interval
    ratio: Interval
    """A's speedup over B's."""
    winner: Winner
    """``tie`` where the ratio's interval has 1 in it."""
    a_ms: float | None = None
    """kopt's time; None where the devices differ, as two devices' times compare nothing."""
    b_ms: float | None = None
    same_problem: bool
    """Whether both were run on the very same source, inputs and tolerance."""


class Comparison(Record):
    """Two records."""

    over: str
    rows: tuple[ComparedRow, ...]
    geomean: float
    """Of A's speedup over B's, over the problems of both."""
    a_wins: int
    b_wins: int
    ties: int
    only_a: tuple[str, ...]
    """Ids of problems with a speedup in A alone."""
    only_b: tuple[str, ...]
    differing: tuple[str, ...]
    """What of device, driver, framework, dtype and settings differs, as ``torch: 2.11 | 2.13``."""
    same_device: bool


def compare(a: SuiteRecord, b: SuiteRecord, over: Over) -> Comparison:
    """Compare the problems that both have; those of another suite compare nothing.

    Raises ConfigError where the suites differ, or no problem is in both.
    """
    if a.suite != b.suite:
        raise ConfigError(f"these are records of two suites: {a.suite} and {b.suite}")
    ours, theirs = _known(a, over), _known(b, over)
    common = [key for key in ours if key in theirs]
    if not common:
        raise ConfigError(f"no problem has a speedup over {over} in both records")
    same = a.device.identity == b.device.identity
    rows = tuple(_row(ours[key], theirs[key], over, same_device=same) for key in common)
    return Comparison(
        over=over, rows=rows, geomean=geomean([row.ratio.median for row in rows]),
        a_wins=sum(row.winner == "A" for row in rows),
        b_wins=sum(row.winner == "B" for row in rows),
        ties=sum(row.winner == "tie" for row in rows),
        only_a=tuple(row.id for key, row in ours.items() if key not in theirs),
        only_b=tuple(row.id for key, row in theirs.items() if key not in ours),
        differing=_differing(a, b), same_device=same,
    )  # fmt: skip


def _known(record: SuiteRecord, over: Over) -> dict[tuple[str, str], Row]:
    return {(row.id, row.name): row for row in record.rows if over in row.speedup}


def _row(a: Row, b: Row, over: Over, *, same_device: bool) -> ComparedRow:
    between = ratio(a.speedup[over], b.speedup[over])
    winner: Winner = "A" if between.low > 1.0 else "B" if between.high < 1.0 else "tie"
    return ComparedRow(
        id=a.id, name=a.name, a=a.speedup[over], b=b.speedup[over], ratio=between, winner=winner,
        a_ms=a.kopt_ms if same_device else None, b_ms=b.kopt_ms if same_device else None,
        same_problem=a.problem_id == b.problem_id,
    )  # fmt: skip


def _differing(a: SuiteRecord, b: SuiteRecord) -> tuple[str, ...]:
    ours, theirs = _told(a), _told(b)
    return tuple(
        f"{key}: {ours.get(key, 'absent')} | {theirs.get(key, 'absent')}"
        for key in sorted(ours | theirs)
        if ours.get(key) != theirs.get(key)
    )


def _told(record: SuiteRecord) -> dict[str, str]:
    settings = {f"settings.{k}": str(v) for k, v in record.settings.to_json().items()}
    plugins = {f"plugins.{k}": v for k, v in record.plugins.items()}
    return {**record.device.identity, "dtype": record.dtype, **settings, **plugins}

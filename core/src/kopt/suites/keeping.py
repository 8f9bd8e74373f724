"""A suite's record from one call of ``kopt suite run`` to the next: begun, gone on with, held alone."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from kopt._version import __version__
from kopt.errors import ConfigError, ProblemError, RunStoreError
from kopt.suites.preparing import refuse_other_device
from kopt.suites.records import Planned, SuiteRecord

if TYPE_CHECKING:
    from kopt.model.device import Device
    from kopt.suites.problem import Suite, SuiteProblem
    from kopt.suites.records import SuiteSettings

FAILED = "failed"


def begun(
    suite: Suite,
    settings: SuiteSettings,
    device: Device,
    plugins: dict[str, str],
    root: Path,
    file: Path,
) -> SuiteRecord:
    """Return a new record, whose runs will lie in a folder of their own below ``root``."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    runs = root / f"{file.stem}-{stamp}-{os.urandom(2).hex()}"
    return SuiteRecord(
        suite=suite.name, dtype=suite.dtype, kopt=__version__, created=time.time(),
        runs=runs.as_posix(), device=device, plugins=plugins, settings=settings,
    )  # fmt: skip


def continued(
    record: SuiteRecord, suite: Suite, settings: SuiteSettings, device: Device
) -> SuiteRecord:
    """Return a record that may be gone on with. Raises ConfigError, RunStoreError."""
    if (record.suite, record.dtype) != (suite.name, suite.dtype):
        raise ConfigError(
            f"the record is of {record.suite} in {record.dtype}, not of {suite.name} in "
            f"{suite.dtype}; name another file with -o"
        )
    before, now = record.settings.to_json(), settings.to_json()
    changed = [f"{key}: {before[key]} -> {now[key]}" for key in now if before[key] != now[key]]
    if changed:
        raise ConfigError(
            f"the record was begun with other settings ({', '.join(changed)}); go on with those, "
            "or name another file with -o"
        )
    refuse_other_device(record, device)
    return record


def with_plan(record: SuiteRecord, suite: Suite, chosen: Sequence[SuiteProblem]) -> SuiteRecord:
    """Return a record that these problems were asked for too."""
    wanted = {each.id for each in record.planned} | {each.id for each in chosen}
    planned = tuple(Planned(id=p.id, name=p.name) for p in suite.problems if p.id in wanted)
    return record.model_copy(update={"planned": planned})


def without(
    record: SuiteRecord, chosen: Sequence[SuiteProblem], again: Collection[str]
) -> SuiteRecord:
    """Return a record whose rows of some ids, or those that failed, have made way.

    Raises ConfigError for an id that is not among the chosen problems.
    """
    ids = {each.id for each in chosen}
    if unknown := sorted(set(again) - ids - {FAILED}):
        raise ConfigError(
            f"--again {', '.join(unknown)}: not among the problems of this call (--ids)"
        )
    gone = [
        row for row in record.rows
        if row.id in again or (FAILED in again and row.verdict == FAILED and row.id in ids)
    ]  # fmt: skip
    return record.model_copy(
        update={
            "rows": tuple(row for row in record.rows if row not in gone),
            "replaced": (*record.replaced, *(row.run for row in gone if row.run)),
        }
    )


def refuse_changed(record: SuiteRecord, chosen: Sequence[SuiteProblem], file: Path) -> None:
    """Raise ConfigError where a problem is no longer the one that its row tells of."""
    rows = {row.id: row for row in record.rows if row.problem_id}
    for each in chosen:
        if each.id in rows and not _is_same(each, rows[each.id].problem_id):
            raise ConfigError(
                f"problem {each.id} ({each.name}) has changed since it was recorded in {file}; run "
                f"it anew with --again {each.id}, or name another file with -o"
            )


def _is_same(problem: SuiteProblem, identity: str) -> bool:
    try:
        return problem.load().id == identity
    except ProblemError:
        return False


@contextmanager
def held(file: Path, root: Path) -> Iterator[None]:
    """Hold a record alone. Raises RunStoreError where another process does."""
    name = hashlib.sha256(str(file.absolute()).encode()).hexdigest()[:8]
    try:
        _make(root)
        path = root / f".{file.stem}-{name}.lock"
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise RunStoreError(
            f"{root} cannot be written: {error}; choose another with --runs-dir"
        ) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunStoreError(
                f"another `kopt suite run` is writing {file}; wait for it, or end it first"
            ) from None
        yield
    finally:
        os.close(handle)


def _make(root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    home = root.absolute().parent
    ignore = home / ".gitignore"
    if home.name == ".kopt" and not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")

"""What a suite's record file holds, and how it is written and read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from kopt.errors import RunStoreError
from kopt.model.device import Clocks, Device, DeviceKind
from kopt.model.measurement import Interval, Measurement
from kopt.model.problem import Precision
from kopt.model.record import Record
from kopt.model.verification import Status
from kopt.runs.files import finite, write_atomically

SCHEMA = 1
Verdict = Literal["improved", "baseline", "failed"]
Over = Literal["eager", "torch.compile", "best"]
OVER: tuple[Over, ...] = ("eager", "torch.compile", "best")
"""What a speedup is over; ``best`` is the baseline that comes closest to the winner."""


class Chosen(Record):
    """What kopt returns for a problem."""

    what: Literal["kernel", "baseline"]
    name: str
    """The kernel's idea, or the baseline's name."""
    language: str
    strategy: str = ""
    """Empty for a baseline."""
    id: str = ""
    """The candidate's id; likewise empty."""
    knobs: dict[str, Any] = Field(default_factory=dict)
    source: str = ""
    """The kernel's file as it is in the run's folder."""


class Row(Record):
    """One problem's outcome; None and missing keys: that could not be found out."""

    id: str
    name: str
    problem_id: str = ""
    """Hash of all that decides what is right and what is timed; empty where it could not be read."""
    derived: str = ""
    """What was changed in the problem's source, in words."""
    verdict: Verdict
    """``improved``: a kernel is chosen that beats every baseline by more than the noise.
    ``baseline``: nothing did, so the fastest baseline is. ``failed``: neither is there."""
    status: str
    """The run's status, or ``error``."""
    reason: str = ""
    """Why the run ended, or the error."""
    run: str = ""
    """Id of the run; empty where there is none."""
    eager_ms: float | None = None
    compile_ms: float | None = None
    """Of torch.compile in its default mode."""
    best_baseline: str | None = None
    best_baseline_ms: float | None = None
    kopt_ms: float | None = None
    chosen: Chosen | None = None
    speedup: dict[Over, Interval] = Field(default_factory=dict)
    """Exactly 1 over what is chosen itself."""
    bound_ms: float | None = None
    """What the problem takes at least at the device's measured rates."""
    of_bound_percent: float | None = None
    """The bound over ``kopt_ms``."""
    limited_by: str | None = None
    stages: dict[str, str] = Field(default_factory=dict)
    """``verifier.stage`` to outcome, of the chosen kernel."""
    stage_seconds: dict[str, float] = Field(default_factory=dict)
    """What its stages took when it was confirmed, of those whose time is told apart."""
    seconds: float = Field(ge=0)
    """Wall clock, of earlier parts too."""
    device_id: str = ""
    """The driver's id of the GPU, of those that the suite was spread over; empty for a CPU."""
    clocks: Clocks | None = None
    """The GPU's, when the baselines had been timed."""
    jobs: int = Field(default=1, gt=0)
    """Problems that were run at a time when it was."""
    trials: dict[str, int] = Field(default_factory=dict)
    """Candidates by status."""
    baselines: dict[str, Measurement] = Field(default_factory=dict)
    failed_baselines: dict[str, str] = Field(default_factory=dict)
    measurement: Measurement | None = None
    """Of the best kernel, chosen or not, with every sample of it and of the baselines beside it. One
    that was slower in the search is not confirmed: its protocol is ``search``."""

    @property
    def count(self) -> int:
        """Candidates in all."""
        return sum(self.trials.values())

    @property
    def short_of_memory(self) -> bool:
        """Whether it, a baseline or a candidate ended for lack of memory."""
        said = [self.reason, *self.failed_baselines.values()]
        return bool(self.trials.get(Status.OOM)) or any(
            "out of memory" in text.lower() for text in said
        )

    @property
    def crowded(self) -> bool:
        """Whether it lacked memory that others may have held: it says nothing yet of the problem."""
        return self.jobs > 1 and self.short_of_memory


class Planned(Record):
    """A problem that was asked for."""

    id: str
    name: str


class SuiteSettings(Record):
    """What each problem of a suite is run with; a record has one such. None: kopt's default."""

    seconds: float = Field(default=300.0, gt=0)
    """Budget of one problem."""
    trials: int | None = Field(default=None, gt=0)
    device: DeviceKind | None = None
    precision: Precision | None = None
    """Float32 arithmetic of the references, in place of the problems' own."""
    backend: str | None = None
    strategies: tuple[str, ...] | None = None
    search: str | None = None
    verifiers: tuple[str, ...] | None = None
    profilers: tuple[str, ...] | None = None
    judges: tuple[str, ...] | None = None
    seed: int | None = None
    options: dict[str, dict[str, object]] = Field(default_factory=dict)
    """Plugin options, ``role.name`` to options."""

    @property
    def named(self) -> dict[str, Any]:
        """What ``kopt.optimize`` takes by these names; as settings are called, too."""
        names = ("device", "backend", "strategies", "search", "verifiers", "profilers", "judges",
                 "seed")  # fmt: skip
        return {name: getattr(self, name) for name in names}


class SuiteRecord(Record):
    """A suite as far as it has been run."""

    suite: str
    """As ``kernelbench-level1``."""
    dtype: str
    kopt: str
    """Version that began it."""
    created: float
    """Seconds since 1970."""
    runs: str
    """The folder of its runs."""
    device: Device
    plugins: dict[str, str] = Field(default_factory=dict)
    """``role.name`` to distribution and version."""
    settings: SuiteSettings
    planned: tuple[Planned, ...] = ()
    """Everything that was asked for so far, in order."""
    rows: tuple[Row, ...] = ()
    """In the same order."""
    replaced: tuple[str, ...] = ()
    """Ids of runs whose rows made way for others."""

    @property
    def missing(self) -> tuple[Planned, ...]:
        """What has no row yet."""
        done = {row.id for row in self.rows}
        return tuple(each for each in self.planned if each.id not in done)

    def with_row(self, row: Row) -> SuiteRecord:
        """Return the record with a row added."""
        order = {each.id: place for place, each in enumerate(self.planned)}
        rows = sorted([*self.rows, row], key=lambda each: order[each.id])
        return self.model_copy(update={"rows": tuple(rows)})


def write_suite(path: Path, record: SuiteRecord) -> None:
    """Replace a record file, atomically. Raises RunStoreError."""
    data = {"schema": SCHEMA, **finite(record.to_json())}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(data, indent=1, allow_nan=False).encode() + b"\n")
    except OSError as error:
        raise RunStoreError(f"{path} cannot be written: {error}; name another with -o") from error


def read_suite(path: Path) -> SuiteRecord:
    """Read a record file. Raises RunStoreError where it is missing, damaged or of another schema."""
    try:
        raw = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise RunStoreError(f"{path}: no such file; `kopt suite run` writes one") from None
    except (OSError, ValueError) as error:
        raise RunStoreError(f"{path} cannot be read as a suite's record: {error}") from error
    if not isinstance(raw, dict) or raw.pop("schema", None) != SCHEMA:
        raise RunStoreError(
            f"{path} is no suite's record of schema {SCHEMA}, which this kopt reads"
        )
    try:
        return SuiteRecord.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise RunStoreError(f"{path} is no suite's record: {where}: {first['msg']}") from error

"""``kopt suite``: many problems one after another, with one record of what came out."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from kopt.cli.options import (
    AsJson,
    Backend,
    DeviceName,
    Group,
    MaxTrials,
    PrecisionName,
    Search,
    Strategies,
    Verb,
)  # fmt: skip

if TYPE_CHECKING:
    from types import FrameType

    from kopt.model.problem import Precision
    from kopt.suites.beside import Beside
    from kopt.suites.problem import Suite
    from kopt.suites.records import Over, SuiteSettings

_SUITES = "kernelbench, table4, showcase, or a folder of problems"
group = typer.Typer(
    cls=Group, help="Run many problems, and record what came out.", no_args_is_help=True
)

SuiteName = Annotated[str, typer.Argument(metavar="SUITE", help=f"Which one: {_SUITES}.")]
Root = Annotated[
    Path | None, typer.Option("--root", metavar="DIR", help="Checkout of KernelBench.")
]
Level = Annotated[
    int | None, typer.Option("--level", metavar="N", help="Of KernelBench (default 1).")
]
Ids = Annotated[
    str | None, typer.Option("--ids", metavar="IDS", help="Which problems, as 1-3,7 (default all).")
]
EachWorkload = Annotated[
    bool,
    typer.Option(
        "--each-workload", help="Of a folder: each workload of a problem is one of its own."
    ),
]
Dtype = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        metavar="float32|bfloat16",
        help="KernelBench's parameters and inputs (default float32, as its files are).",
    ),
]
TimePerProblem = Annotated[
    str, typer.Option("--time-per-problem", metavar="TIME", help="Budget of each, as 5m.")
]
Again = Annotated[
    str | None,
    typer.Option("--again", metavar="IDS", help="Run these anew, as 1-3,7; or the word failed."),
]
Option = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="KEY=VALUE",
        help="A plugin's option, as search.beam.width=4; repeat for more.",
    ),
]
Jobs = Annotated[
    int, typer.Option("--jobs", min=1, metavar="N", help="Problems at a time, on all devices.")
]
Gpus = Annotated[
    str | None,
    typer.Option(
        "--gpus", metavar="NUMBERS", help="Spread problems over these GPUs of one kind, as 0,1."
    ),
]
RunsRoot = Annotated[
    Path, typer.Option("--runs-dir", metavar="FOLDER", help="Folder of the suites' runs.")
]
Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FILE", help="The record (default below --runs-dir)."),
]
Latest = Annotated[
    bool,
    typer.Option("--latest", help="A problem in several records has the row of the latest one."),
]
RecordFiles = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Records of one suite.")]
RecordA = Annotated[Path, typer.Argument(metavar="A", help="A suite's record.")]
RecordB = Annotated[Path, typer.Argument(metavar="B", help="Another record of the same suite.")]
OverName = Annotated[
    str,
    typer.Option(
        "--over", metavar="BASELINE", help="Compare speedups over eager, torch.compile or best."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.add_typer(group, name="suite")


@group.command("run", cls=Verb)
def run(
    suite: SuiteName,
    root: Root = None,
    level: Level = None,
    ids: Ids = None,
    dtype: Dtype = None,
    precision: PrecisionName = None,
    each_workload: EachWorkload = False,
    time_per_problem: TimePerProblem = "5m",
    again: Again = None,
    backend: Backend = None,
    strategy: Strategies = None,
    search: Search = None,
    device: DeviceName = None,
    max_trials: MaxTrials = None,
    option: Option = None,
    jobs: Jobs = 1,
    gpus: Gpus = None,
    runs_dir: RunsRoot = Path(".kopt/suites"),
    output: Output = None,
    as_json: AsJson = False,
) -> int:
    """Run what is missing of a suite; the same command again goes on where it stopped.

    Examples:
    kopt suite run kernelbench --root KernelBench --level 1 --ids 1-20
    kopt suite run table4 -o table4.json
    kopt suite run my/problems --time-per-problem 2m
    """
    given: dict[str, object] = {
        "backend": backend, "strategies": strategy, "search": search, "device": device,
        "max_trials": max_trials,
    }  # fmt: skip
    chosen = _suite(suite, root, level, dtype, each_workload=each_workload).in_precision(precision)
    settings = _settings(given, time_per_problem, option, precision)
    from kopt.cli.suite_progress import SuiteProgress
    from kopt.cli.suite_tables import show_outcome
    from kopt.suites.beside import Beside
    from kopt.suites.keeping import FAILED
    from kopt.suites.problem import parse_ids
    from kopt.suites.runner import run_suite, solve

    parts = [chosen.name, chosen.dtype, *([precision] if precision else [])]
    file = output or runs_dir / f"{'-'.join(parts)}.json"
    spread = _gpus(gpus, device)
    jobs = max(jobs, len(spread))
    told = SuiteProgress(alone=jobs == 1)
    beside = Beside(told.line, jobs, spread)
    with _passing_on(beside) if jobs > 1 else nullcontext():
        outcome = run_suite(
            chosen, file, settings, told, runs_root=runs_dir, jobs=jobs,
            solving=solve if jobs == 1 else beside,
            numbers=parse_ids(ids) if ids else None,
            again={FAILED} if again == FAILED else set(map(str, parse_ids(again) if again else ())),
        )  # fmt: skip
    return show_outcome(outcome, file, as_json=as_json)


def _gpus(text: str | None, device: str | None) -> tuple[str, ...]:
    """Return the GPUs to spread problems over; the first is the one that this process sees."""
    if text is None:
        return ()
    from kopt.env import show_gpu
    from kopt.errors import ConfigError
    from kopt.suites.gpus import parse_gpus, showing

    if device == "cpu":
        raise ConfigError(
            "--gpus spreads problems over GPUs, and --device cpu uses none: leave one of the two out"
        )
    numbers = parse_gpus(text)
    show_gpu(showing(numbers[0]))
    return numbers


@contextmanager
def _passing_on(beside: Beside) -> Iterator[None]:
    """Have an interrupt reach the children, whose runs end resumably; a second one ends all."""

    def once(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        beside.interrupt()

    before = signal.signal(signal.SIGINT, once)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _settings(
    given: dict[str, object],
    time_per_problem: str,
    option: list[str] | None,
    precision: str | None,
) -> SuiteSettings:
    """Return what each problem is run with; no kopt.toml is read. Raises ConfigError."""
    from kopt.config import parse_duration, resolve
    from kopt.env import settings_from_environment
    from kopt.errors import ConfigError
    from kopt.suites.records import SuiteSettings

    try:
        seconds = parse_duration(time_per_problem)
    except ValueError as error:
        raise ConfigError(f"--time-per-problem: {error}") from error
    told = resolve(given, option or [], None, settings_from_environment())
    return SuiteSettings(
        seconds=seconds, trials=told.max_trials, device=told.device, backend=told.backend,
        strategies=told.strategies, search=told.search, verifiers=told.verifiers,
        profilers=told.profilers, judges=told.judges, seed=told.seed, options=told.options,
        precision=cast("Precision | None", precision),
    )  # fmt: skip


def _suite(
    name: str, root: Path | None, level: int | None, dtype: str | None, *, each_workload: bool
) -> Suite:
    from kopt.errors import ConfigError
    from kopt.suites.folder import folder_suite
    from kopt.suites.kernelbench import kernelbench_suite
    from kopt.suites.own import OWN, own_suite

    folder = None if name == "kernelbench" or name in OWN else Path(name)
    if folder is not None and not folder.is_dir():
        raise ConfigError(
            f"there is no suite and no folder {name!r}; suites are kernelbench, {', '.join(OWN)}"
        )
    if each_workload and folder is None:
        raise ConfigError(f"--each-workload is for a folder of problems, and {name} is a suite")
    if name == "kernelbench":
        if root is None:
            raise ConfigError(
                "suite kernelbench needs --root, the folder of a checkout of KernelBench"
            )
        return kernelbench_suite(root, level or 1, dtype or "float32")
    for flag, value in (("--root", root), ("--level", level)):
        if value is not None:
            raise ConfigError(f"{flag} is KernelBench's; suite {name} brings its problems along")
    if folder is not None:
        if dtype is not None:
            raise ConfigError(f"--dtype {dtype}: the problems in {name} say their own dtypes")
        return folder_suite(folder, each_workload=each_workload)
    suite = own_suite(name)
    if dtype not in (None, suite.dtype):
        raise ConfigError(f"--dtype {dtype}: suite {name} is in {suite.dtype}, as it was published")
    return suite


@group.command("compare", cls=Verb)
def compare(
    a: RecordA, b: RecordB, over: OverName = "torch.compile", as_json: AsJson = False
) -> int:
    """Compare two records of a suite by their speedups: per problem, who wins, and on the whole.

    Times are shown only where both come from the same device, driver and framework.
    """
    from kopt.cli.output import print_json
    from kopt.cli.suite_tables import put_comparison
    from kopt.suites.comparing import compare as compared
    from kopt.suites.records import read_suite

    found = compared(read_suite(a), read_suite(b), _over(over))
    if as_json:
        print_json({"schema": 1, "a": str(a), "b": str(b), **found.to_json()})
    else:
        put_comparison(found, str(a), str(b))
    return 0


def _over(text: str) -> Over:
    from kopt.errors import ConfigError
    from kopt.suites.records import OVER

    for known in OVER:
        if text == known:
            return known
    raise ConfigError(f"--over: {text!r} is not one of {', '.join(OVER)}")


@group.command("show", cls=Verb)
def show(files: RecordFiles, latest: Latest = False, as_json: AsJson = False) -> int:
    """Show a record: a row for each problem, and what they come to. Several are parts of one."""
    from kopt.cli.suite_tables import show_record
    from kopt.suites.joining import joined
    from kopt.suites.records import read_suite

    records = [read_suite(file) for file in files]
    show_record(joined(records, latest=latest), as_json=as_json)
    return 0

"""One run of a program under ncu, and what came of it."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kopt.errors import PluginError
from kopt_ncu.failures import explain
from kopt_ncu.metrics import TABLE, nsight_names
from kopt_ncu.report import read_report
from kopt_ncu.tool import command, wanted_metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kopt.model.diagnosis import KernelProfile
    from kopt.model.probe import UnderTool
    from kopt_ncu.settings import NcuOptions


class Collected(NamedTuple):
    """What a run under ncu gave."""

    kernels: tuple[KernelProfile, ...] = ()
    notes: tuple[str, ...] = ()
    whole: bool = False
    """Whether these are all launches of the call."""
    lasting: bool = False
    """Whether another run on this machine would fail in the same way."""


def collect(
    ncu: str, options: NcuOptions, under: Callable[[tuple[str, ...]], UnderTool], name: str
) -> Collected:
    """Run a program under ncu and read the report; never raises for what either does.

    :param under: runs the program through the command that it is given.
    :param name: of the report where ``options.keep`` has it kept.
    """
    with tempfile.TemporaryDirectory(prefix="kopt-ncu-") as scratch:
        report, log = Path(scratch) / "call.ncu-rep", Path(scratch) / "ncu.log"
        # One launch more than is kept tells whether there are more.
        outcome = under(
            command(ncu, options.metric_set, options.metrics, options.launches + 1, report, log)
        )
        words = log.read_text("utf-8", "replace") if log.is_file() else ""
        if not report.is_file():
            failure = explain(words, outcome, options.timeout_seconds)
            return Collected(notes=(failure.text,), lasting=failure.lasting)
        kept = _keep(report, options.keep, name)
        try:
            kernels = read_report(report, ncu)
        except PluginError as error:
            return Collected(notes=(*kept, str(error).replace(str(report), "ncu's report")))
    return _collected(kernels, options, outcome, kept)


def _collected(
    kernels: tuple[KernelProfile, ...],
    options: NcuOptions,
    outcome: UnderTool,
    kept: tuple[str, ...],
) -> Collected:
    cut = len(kernels) > options.launches
    shown = kernels[: options.launches]
    notes = [*kept, *_absent(shown, options)]
    if cut:
        notes.append(
            f"only the first {options.launches} launches of the call were profiled; "
            f"for more: -o profiler.ncu.launches={4 * options.launches}"
        )
    if outcome.fault:
        notes.append(
            f"the call did not end well under ncu, later launches are missing: {outcome.fault}"
        )
    return Collected(shown, tuple(notes), whole=not cut and not outcome.fault)


def _absent(kernels: Sequence[KernelProfile], options: NcuOptions) -> Iterator[str]:
    """Say what was asked for and has no value in any launch."""
    seen = {name for kernel in kernels for name in kernel.raw}
    asked = set(wanted_metrics(options.metric_set)) - seen
    ours = [source.name for source in TABLE if asked.intersection(nsight_names([source]))]
    if ours:
        yield f"ncu has no value on this GPU for {', '.join(ours)}"
    theirs = [name for name in options.metrics if name not in seen]
    if theirs:
        yield f"ncu has no value for {', '.join(theirs)}; check names with: ncu --query-metrics"


def _keep(report: Path, folder: Path | None, name: str) -> tuple[str, ...]:
    if folder is None:
        return ()
    try:
        folder.expanduser().mkdir(parents=True, exist_ok=True)
        shutil.copyfile(report, folder.expanduser() / f"{name}.ncu-rep")
    except OSError as error:
        return (f"the report could not be kept in {folder}: {error.strerror}; name another folder: -o profiler.ncu.keep=FOLDER",)  # fmt: skip
    return ()

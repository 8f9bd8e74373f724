"""The options of the profiler."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

import kopt
from kopt_ncu.tool import MetricSet

_NAME = re.compile(r"[A-Za-z][\w.]*")


def _split(value: object) -> object:
    """Take ``a,b`` for a list, as it is given on a command line."""
    return tuple(filter(None, re.split(r"[,\s]+", value))) if isinstance(value, str) else value


def _checked(names: tuple[str, ...]) -> tuple[str, ...]:
    wrong = [name for name in names if not _NAME.fullmatch(name)]
    if wrong:
        raise ValueError(f"no name of a metric, as dram__bytes_read.sum: {', '.join(wrong)}")
    return names


class NcuOptions(kopt.Options):
    """Options of the profiler."""

    metric_set: MetricSet = "judge"
    """``small``: launch, time, throughput and DRAM; ``judge``: all that kopt knows; ``full``: ncu's
    full set besides."""
    launches: int = Field(default=10, ge=1, le=10_000)
    """Kernel launches of a call that are profiled, from the first on: about half a second each."""
    metrics: Annotated[tuple[str, ...], BeforeValidator(_split), AfterValidator(_checked)] = ()
    """More metrics, by ncu's names; they come back in ``raw``."""
    timeout_seconds: float = Field(default=120.0, gt=0)
    """Of one candidate, its build included."""
    ncu: str = ""
    """Path of ncu; empty: found."""
    keep: Path | None = None
    """Folder in which each candidate's report is left, as CANDIDATE.ncu-rep."""

"""Finding ncu, and the command that profiles a call with it."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from kopt.env import cuda_homes
from kopt_ncu.metrics import SMALL, TABLE, nsight_names

MetricSet = Literal["small", "judge", "full"]
INSTALL = (
    "install Nsight Compute (apt install nsight-compute-2025.3.1, or the CUDA toolkit) and put ncu "
    "on PATH, or name it: -o profiler.ncu.ncu=/path/to/ncu"
)
_CUDA = "/usr/local/cuda"
_OWN_FOLDER = Path("/opt/nvidia/nsight-compute")
_VERSION = re.compile(r"Version (\d+(?:\.\d+)+)")
_VERSION_SECONDS = 20


def find_ncu(wanted: str = "") -> str | None:
    """Return the path of ncu: the one ``wanted``, or from PATH, CUDA's folders or its own; or None.

    :param wanted: a path or name; nothing else is taken then.
    """
    if wanted:
        return shutil.which(str(Path(wanted).expanduser()))
    places = [str(Path(home) / "bin") for home in (*cuda_homes(), _CUDA)]
    places += [str(folder) for folder in _versions(_OWN_FOLDER)]
    return shutil.which("ncu") or shutil.which("ncu", path=":".join(places))


@functools.cache
def version_of(ncu: str) -> str | None:
    """Return the version that ncu says it has, as ``2025.3.1.0``; None where it does not start."""
    try:
        done = subprocess.run(
            [ncu, "--version"], capture_output=True, text=True, timeout=_VERSION_SECONDS,
            check=False, errors="replace",
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(done.stdout)
    return found[1] if found and done.returncode == 0 else None


def wanted_metrics(metric_set: MetricSet, more: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the Nsight metrics to ask for by name; those of ``full``'s sections come on top."""
    table = SMALL if metric_set == "small" else TABLE
    return tuple(dict.fromkeys((*nsight_names(table), *more)))


def command(
    ncu: str,
    metric_set: MetricSet,
    more: Sequence[str],
    launches: int,
    report: Path,
    log: Path,
) -> tuple[str, ...]:
    """Return the command that profiles the program appended to it between start and stop.

    The result goes into ``report`` and ncu's own words into ``log``, so that nothing a candidate
    prints is taken for either. (With a report to write, ncu prints no CSV.)
    """
    return (
        ncu,
        # Locked clocks are slower than those that candidates are timed at.
        "--clock-control", "none",
        "--target-processes", "all",
        "--profile-from-start", "off",
        *(("--set", "full") if metric_set == "full" else ()),
        "--metrics", ",".join(wanted_metrics(metric_set, more)),
        "--launch-count", str(launches),
        "--force-overwrite",
        "--export", str(report),
        "--log-file", str(log),
    )  # fmt: skip


def _versions(folder: Path) -> list[Path]:
    def key(path: Path) -> list[int]:
        return [int(digits) for digits in re.findall(r"\d+", path.name)]

    return sorted(folder.glob("[0-9]*"), key=key, reverse=True)

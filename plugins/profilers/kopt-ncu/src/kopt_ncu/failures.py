"""Why ncu measured nothing, told from its own words, and what to do about it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kopt.model.probe import UnderTool

PERMISSION_FIX = (
    "set the NVIDIA kernel module's option NVreg_RestrictProfilingToAdminUsers=0 (a line 'options "
    "nvidia NVreg_RestrictProfilingToAdminUsers=0' in /etc/modprobe.d, then reload it or reboot), "
    "or run as root; in a container start it with --cap-add SYS_ADMIN"
)
_OLD_DRIVER_FIX = (
    "update the NVIDIA driver, or name an older ncu that fits it: -o profiler.ncu.ncu=/path/to/ncu"
)
_QUOTED_LINES = 3
_QUOTED_CHARACTERS = 300


class Failure(NamedTuple):
    """One way in which profiling fails."""

    name: str
    words: re.Pattern[str]
    """In what ncu printed."""
    what: str
    fix: str
    lasting: bool
    """Whether it is the machine's, so that the next candidate would fare no better."""


class Explained(NamedTuple):
    """A failure of one run."""

    name: str
    text: str
    """What, in ncu's words too, and the next step."""
    lasting: bool


def _failure(name: str, words: str, what: str, fix: str, *, lasting: bool = True) -> Failure:
    return Failure(name, re.compile(words, re.IGNORECASE | re.MULTILINE), what, fix, lasting)


FAILURES: tuple[Failure, ...] = (
    _failure(
        "permission", r"ERR_NVGPUCTRPERM|permission to access NVIDIA GPU Performance Counters",
        "this user may not read the GPU's performance counters", PERMISSION_FIX,
    ),
    _failure(
        "driver", r"driver is not compatible with Nsight Compute|InsufficientDriver|driver version is insufficient",
        "this ncu needs a newer NVIDIA driver", _OLD_DRIVER_FIX,
    ),
    _failure(
        "busy", r"driver resource was unavailable|concurrently collecting profiling data|HardwareBusy",
        "another profiler holds the GPU's counters", "stop it; of DCGM: dcgmi profile --pause",
        lasting=False,
    ),
    _failure(
        "unsupported", r"^==ERROR==.*(profiling is not supported|not supported (on|by|for) |unsupported )",
        "this ncu does not profile this GPU or system",
        "see ncu --list-chips; install an ncu that lists the GPU's chip (WSL and vGPU need settings of the host)",
    ),
    _failure(
        "lock", r"nsight-compute-lock|lock file",
        "ncu cannot take its lock file", "remove nsight-compute-lock in the folder for temporary files, or set TMPDIR to a folder of your own",
    ),
    _failure(
        "library", r"LibraryNotLoaded|Failed to load Nsight Compute CUDA modules|error while loading shared libraries|^==ERROR== Failed to initiali[sz]e",
        "ncu could not load or start a library that it needs", "reinstall Nsight Compute whole (ncu with its folders beside it), and check that libcuda.so.1 is found",
    ),
    _failure(
        "option", r"unrecogni[sz]ed option|invalid option|ambiguous option",
        "this ncu does not know an option that kopt gives it", "install Nsight Compute 2022.2 or newer",
    ),
    _failure(
        "replay", r"^==ERROR== (Failed to (prepare kernel for profiling|profile )|LaunchFailed|Out ?Of ?Memory)",
        "ncu could not run a kernel again and again, as it does to count",
        "kernels that wait for one another, or that leave no memory for a copy of what they write, cannot be replayed: "
        "use another profiler for this candidate", lasting=False,
    ),
    _failure(
        "metric", r"failed to (find|look ?up) metric|metrics? .{0,80}not found|no metrics to collect",
        "ncu does not know a metric that was asked for",
        "check names with ncu --query-metrics, or ask for less: -o profiler.ncu.metric_set=small", lasting=False,
    ),
)  # fmt: skip
"""What is told from ncu's words alone, first match first."""


def explain(log: str, outcome: UnderTool, seconds: float) -> Explained:
    """Return why a run under ncu gave no kernels.

    :param log: what ncu wrote into its log file. Only where that is empty, as where ncu did not
        start, is the joint output taken: a candidate's words are no evidence.
    :param seconds: the deadline that the run had.
    """
    printed = (log if log.strip() else outcome.output).splitlines()
    # Progress has kernels' names in it, which the candidate gives.
    words = "\n".join(line for line in printed if not line.startswith("==PROF=="))
    for failure in FAILURES:
        if failure.words.search(words):
            text = _text(failure.what, words, failure.fix, failure.words)
            return Explained(failure.name, text, failure.lasting)
    if outcome.fault and outcome.seconds >= seconds:
        what = f"ncu was not done after {seconds:g} s"
        fix = (
            "give it more time (-o profiler.ncu.timeout_seconds=600), fewer launches "
            "(-o profiler.ncu.launches=4) or fewer metrics (-o profiler.ncu.metric_set=small)"
        )
        return Explained("timeout", _text(what, "", fix), lasting=False)
    return _of_the_candidate(words, outcome)


def _of_the_candidate(words: str, outcome: UnderTool) -> Explained:
    stopped = outcome.fault or "returned an error code" in words
    if stopped:
        what = f"the candidate did not run under ncu: {outcome.fault or 'it ended with an error'}"
        fix = (
            "run it alone (kopt verify); one that needs most of the GPU's memory cannot be replayed"
        )
        return Explained("candidate", _text(what, words, fix), lasting=False)
    if "No kernels were profiled" in words:
        what = "the call launched no kernel that ncu saw"
        fix = "check that each call computes on the GPU, and does not return an earlier result"
        return Explained("no-kernels", _text(what, words, fix), lasting=False)
    what, fix = "ncu left no report and no reason", "run kopt plugins --check, and ncu by hand"
    return Explained("unknown", _text(what, words, fix), lasting=False)


def _text(what: str, words: str, fix: str, told_by: re.Pattern[str] | None = None) -> str:
    quoted = " / ".join(_telling(words, told_by))[:_QUOTED_CHARACTERS]
    return f"{what}{f' (ncu: {quoted})' if quoted else ''}; {fix}"


def _telling(words: str, told_by: re.Pattern[str] | None) -> Iterator[str]:
    """Yield the lines that say why, without ncu's marks."""
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    if told_by is not None:
        chosen = [line for line in lines if told_by.search(line)][:1]
    else:
        chosen = [line for line in lines if line.startswith(("==ERROR==", "==WARNING== No "))]
    for line in chosen[-_QUOTED_LINES:]:
        yield re.sub(r"^==[A-Z]+==\s*", "", line)

"""Every way in which ncu measures nothing: told, explained with the fix, and the run goes on.

Texts marked *recorded* are what ncu 2025.3.1 printed on an H100. The others are built from the
tool's known wording, as its users quote it in public, or (*supposed*) from its documentation.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kopt.hooks import Hooks
from kopt.model.diagnosis import Profile
from kopt.model.probe import UnderTool
from kopt.plugins.loader import adopt
from kopt.testing import problems, records
from kopt.testing.strategy import a_parent
from kopt_ncu import Ncu
from kopt_ncu.failures import FAILURES, explain

PARENT = a_parent()

PERMISSION = """\
==PROF== Connected to process 9012 (/usr/bin/python3.12)
==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance \
Counters on the target device 0. For instructions on enabling permissions and to get more \
information see https://developer.nvidia.com/ERR_NVGPUCTRPERM
==PROF== Disconnected from process 9012
==WARNING== No kernels were profiled.
"""
DRIVER = """\
==ERROR== An error was reported by the driver:
==ERROR== Cuda driver is not compatible with Nsight Compute.
==PROF== Connected to process 2305223 (/usr/bin/python3.11)
==ERROR== The application returned an error code (11).
"""
BUSY = """\
==PROF== Profiling "row_sum" - 0: 0%
==ERROR== An error was reported by the driver:
==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no other tool \
(like DCGM) is concurrently collecting profiling data.
==ERROR== Failed to profile "row_sum" in process 12
"""
MODULES = "==ERROR== Failed to load Nsight Compute CUDA modules.\n==ERROR== LibraryNotLoaded\n"
LOADER = "ncu: error while loading shared libraries: libnvperf_host.so: cannot open shared object\n"
UNSUPPORTED = "==ERROR== Profiling is not supported on device 0.\n"
LOCK = "==ERROR== Failed to open/create lock file /tmp/nsight-compute-lock.\n"
OPTION = "==ERROR== unrecognised option '--log-file'\n"
REPLAY = """\
==ERROR== Failed to prepare kernel for profiling
==ERROR== Unknown Error on device 0.
==ERROR== Failed to profile "spin" in process 12
==ERROR== The application returned an error code (9).
"""
METRIC = "==ERROR== Failed to find metric regex:smsp__sass.sum\n"
NO_KERNELS = "==WARNING== No kernels were profiled.\n"
APPLICATION = """\
==PROF== Connected to process 7 (/usr/bin/python3.12)
==PROF== Disconnected from process 7
==ERROR== The application returned an error code (9).
==WARNING== No kernels were profiled.
"""


def ask(plugin: Ncu, probe: Any) -> list[Profile]:
    hooks = Hooks([adopt("profiler", plugin)])
    found = hooks.kopt_profile(problems.row_sum(), PARENT, records.gpu(), probe)
    assert hooks.failures == []
    return found


def note(plugin: Ncu, probe: Any) -> str:
    """Ask once; return the one note of a profile without kernels."""
    (profile,) = ask(plugin, probe)
    assert (profile.kernels, profile.metrics, profile.candidate) == ((), (), PARENT.id)
    (text,) = profile.notes
    return text


@pytest.mark.parametrize(
    ("log", "name", "fix", "lasting"),
    [
        pytest.param(PERMISSION, "permission", "NVreg_RestrictProfilingToAdminUsers=0", True, id="permission"),
        pytest.param(DRIVER, "driver", "update the NVIDIA driver", True, id="driver"),
        pytest.param(BUSY, "busy", "dcgmi profile --pause", False, id="busy"),
        pytest.param(MODULES, "library", "reinstall", True, id="modules, LibraryNotLoaded supposed"),
        pytest.param(UNSUPPORTED, "unsupported", "--list-chips", True, id="unsupported, supposed"),
        pytest.param(LOCK, "lock", "TMPDIR", True, id="lock, supposed"),
        pytest.param(OPTION, "option", "newer", True, id="option, supposed"),
        pytest.param(REPLAY, "replay", "another profiler", False, id="replay"),
        pytest.param(METRIC, "metric", "--query-metrics", False, id="metric, supposed"),
        pytest.param(NO_KERNELS, "no-kernels", "computes on the GPU", False, id="no kernels, recorded"),
        pytest.param(APPLICATION, "candidate", "kopt verify", False, id="application"),
    ],
)  # fmt: skip
def test_a_failure_is_told_with_its_fix_and_whether_it_lasts(
    fake_ncu: Callable[[str], str], probe: Any, log: str, name: str, fix: str, lasting: bool
) -> None:
    plugin = Ncu(Ncu.Options(ncu=fake_ncu(f'printf %s {shlex.quote(log)} > "$log"; exit 0')))
    program = probe()
    text = note(plugin, program)
    assert fix in text
    assert "==" not in text
    assert explain(log, UnderTool(seconds=1.0), 120).name == name
    again = ask(plugin, program)
    assert program.runs == (1 if lasting else 2)
    assert again == [] if lasting else again[0].notes == (text,)


def test_ncus_own_words_are_quoted() -> None:
    text = explain(DRIVER, UnderTool(seconds=1.0), 120).text
    assert "(ncu: Cuda driver is not compatible with Nsight Compute.)" in text


def test_a_missing_ncu_is_told_once(probe: Any, tmp_path: Path) -> None:
    plugin, program = Ncu(Ncu.Options(ncu=str(tmp_path / "ncu"))), probe()
    text = note(plugin, program)
    assert str(tmp_path / "ncu") in text
    assert "install Nsight Compute" in text
    assert ask(plugin, program) == []
    assert program.runs == 0


def test_an_ncu_that_does_not_start_is_told_by_what_the_loader_says(
    fake_ncu: Callable[[str], str], probe: Any
) -> None:
    """Nothing is in the log then, so the output counts."""
    path = Path(fake_ncu(""))
    path.write_text(f"#!/bin/sh\necho {shlex.quote(LOADER.strip())} >&2; exit 127\n")
    text = note(Ncu(Ncu.Options(ncu=str(path))), probe())
    assert "libnvperf_host.so" in text


def test_a_deadline_is_told_with_what_makes_it_shorter(
    fake_ncu: Callable[[str], str], probe: Any
) -> None:
    ncu = fake_ncu('echo "==PROF== Connected to process 5" > "$log"; sleep 60')
    plugin, program = Ncu(Ncu.Options(ncu=ncu, timeout_seconds=0.5)), probe("true")
    text = note(plugin, program)
    assert "not done after 0.5 s" in text
    assert "timeout_seconds" in text
    ask(plugin, program)
    assert program.runs == 2


def test_a_candidate_that_fails_is_not_the_machines_fault(
    fake_ncu: Callable[[str], str], probe: Any
) -> None:
    ncu = fake_ncu(f'printf %s {shlex.quote(APPLICATION)} > "$log"; exit $code')
    plugin = Ncu(Ncu.Options(ncu=ncu))
    program = probe(sys.executable, "-c", "raise SystemExit(9)")
    assert "exit 9" in note(plugin, program)
    ask(plugin, program)
    assert program.runs == 2


def test_what_a_candidate_prints_is_no_evidence(fake_ncu: Callable[[str], str], probe: Any) -> None:
    """Neither its output nor the name of its kernel makes kopt give ncu up."""
    log = '==PROF== Profiling "ERR_NVGPUCTRPERM" - 0: 0%\n' + NO_KERNELS
    plugin = Ncu(Ncu.Options(ncu=fake_ncu(f'printf %s {shlex.quote(log)} > "$log"')))
    program = probe("echo", PERMISSION)
    assert "launched no kernel" in note(plugin, program)
    ask(plugin, program)
    assert program.runs == 2


def test_a_silent_failure_has_a_next_step(fake_ncu: Callable[[str], str], probe: Any) -> None:
    assert "kopt plugins --check" in note(Ncu(Ncu.Options(ncu=fake_ncu("exit 0"))), probe("true"))


def test_every_failure_has_what_and_fix() -> None:
    assert len({failure.name for failure in FAILURES}) == len(FAILURES)
    assert all(failure.what and failure.fix for failure in FAILURES)

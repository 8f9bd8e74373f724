"""Profiling through a real process in ncu's place: the command, the result, what is kept."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kopt.hooks import Hooks
from kopt.model.diagnosis import Profile
from kopt.model.verification import Status
from kopt.plugins.loader import adopt
from kopt.testing import problems, records
from kopt.testing.strategy import a_parent
from kopt_ncu import Ncu
from kopt_ncu.metrics import metric
from kopt_ncu.tool import find_ncu, version_of, wanted_metrics

PARENT = a_parent()
ALL = "kernel_launches", "kernels_us"


def profiles(plugin: Ncu, probe: Any) -> list[Profile]:
    """Ask through the hooks, as a session does."""
    hooks = Hooks([adopt("profiler", plugin)])
    found = hooks.kopt_profile(problems.row_sum(), PARENT, records.gpu(), probe)
    assert hooks.failures == []
    return found


def one(plugin: Ncu, probe: Any) -> Profile:
    (profile,) = profiles(plugin, probe)
    return profile


def test_a_candidate_is_run_under_ncu_and_its_launches_come_back(
    profiling_ncu: str, probe: Any, tmp_path: Path
) -> None:
    marker = tmp_path / "called"
    program = probe(sys.executable, "-c", f"open({str(marker)!r}, 'w').close()")
    profile = one(Ncu(Ncu.Options(ncu=profiling_ncu)), program)
    assert marker.exists()
    assert (profile.profiler, profile.candidate) == ("ncu", PARENT.id)
    assert [kernel.name for kernel in profile.kernels] == ["row_sum", "transpose", "spill"]
    assert tuple(each.name for each in profile.metrics) == ALL
    assert [note for note in profile.notes if "pipe_fp16_percent" not in note] == []
    assert program.runs == 1


def test_the_command_profiles_the_calls_between_start_and_stop(
    profiling_ncu: str, probe: Any, tmp_path: Path
) -> None:
    options = Ncu.Options(ncu=profiling_ncu, launches=7, metrics=("l1tex__extra.sum",))
    one(Ncu(options), probe("true"))
    arguments = (tmp_path / "arguments").read_text().splitlines()
    given = dict(itertools.pairwise(arguments))
    assert given["--clock-control"] == "none"
    assert given["--target-processes"] == "all"
    assert given["--profile-from-start"] == "off"
    assert given["--launch-count"] == "8"
    assert given["--metrics"].split(",") == [*wanted_metrics("judge"), "l1tex__extra.sum"]
    assert "--set" not in arguments
    assert arguments[-1] == "true"


def test_the_full_set_is_ncus_and_all_that_kopt_needs(
    profiling_ncu: str, probe: Any, tmp_path: Path
) -> None:
    one(Ncu(Ncu.Options(ncu=profiling_ncu, metric_set="full")), probe())
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert arguments[arguments.index("--set") + 1] == "full"
    assert arguments[arguments.index("--metrics") + 1].split(",") == list(wanted_metrics("judge"))


def test_launches_beyond_the_cap_are_left_out_and_said_so(profiling_ncu: str, probe: Any) -> None:
    profile = one(Ncu(Ncu.Options(ncu=profiling_ncu, launches=2)), probe())
    assert [kernel.name for kernel in profile.kernels] == ["row_sum", "transpose"]
    assert any("first 2 launches" in note for note in profile.notes)
    # Of a part of the call nothing is known of the whole.
    assert profile.metrics == ()
    assert metric(profile.kernels[0], "share_percent") is None
    whole = one(Ncu(Ncu.Options(ncu=profiling_ncu, launches=3)), probe())
    assert len(whole.metrics) == 2


def test_the_report_is_kept_where_a_folder_is_named(
    profiling_ncu: str, probe: Any, tmp_path: Path, recorded: Path
) -> None:
    folder = tmp_path / "reports" / "new"
    one(Ncu(Ncu.Options(ncu=profiling_ncu, keep=folder)), probe())
    kept = folder / f"{PARENT.id}.ncu-rep"
    assert kept.read_bytes() == (recorded / "judge.ncu-rep").read_bytes()
    blocked = tmp_path / "file"
    blocked.touch()
    profile = one(Ncu(Ncu.Options(ncu=profiling_ncu, keep=blocked)), probe())
    assert len(profile.kernels) == 3
    assert any("could not be kept" in note for note in profile.notes)


def test_what_was_asked_for_and_not_read_is_named(profiling_ncu: str, probe: Any) -> None:
    options = Ncu.Options(ncu=profiling_ncu, metrics=("nonsense__x.sum", "smsp__inst_issued.sum"))
    notes = " ".join(one(Ncu(options), probe()).notes)
    assert "no value for nonsense__x.sum; check names with: ncu --query-metrics" in notes
    assert "smsp__inst_issued" not in notes
    assert "pipe_fp16_percent" in notes


def test_a_call_that_breaks_off_keeps_what_was_profiled(profiling_ncu: str, probe: Any) -> None:
    profile = one(Ncu(Ncu.Options(ncu=profiling_ncu)), probe("false"))
    assert len(profile.kernels) == 3
    assert profile.metrics == ()
    assert any("exit 1" in note for note in profile.notes)


def test_a_report_that_cannot_be_read_is_a_note(fake_ncu: Callable[[str], str], probe: Any) -> None:
    ncu = fake_ncu('printf "NVR\\0junk" > "$report"')
    profile = one(Ncu(Ncu.Options(ncu=ncu)), probe())
    assert profile.kernels == ()
    assert "--import ncu's report printed no table" in profile.notes[0]
    assert "Failed to open" in profile.notes[0]


def test_only_correct_candidates_on_a_gpu_are_profiled(profiling_ncu: str, probe: Any) -> None:
    plugin, program = Ncu(Ncu.Options(ncu=profiling_ncu)), probe()
    wrong = records.failed(PARENT.candidate, Status.WRONG)
    assert plugin.kopt_profile(PARENT, records.cpu(), program) is None
    assert plugin.kopt_profile(wrong, records.gpu(), program) is None
    assert program.runs == 0


def test_ncu_is_found_on_path_in_cudas_folders_and_by_name(
    profiling_ncu: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = Path(profiling_ncu).parent
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    assert find_ncu() == profiling_ncu
    assert find_ncu("ncu") == profiling_ncu
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))  # whose bin the folder is
    assert find_ncu() == profiling_ncu
    assert find_ncu(profiling_ncu) == profiling_ncu
    assert find_ncu(str(tmp_path / "none")) is None
    assert version_of(profiling_ncu) == "2025.3.1.0"

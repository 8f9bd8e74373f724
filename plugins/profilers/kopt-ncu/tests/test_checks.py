"""What ``kopt doctor`` says of ncu and of the permission to read counters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kopt_ncu.checks import counters, machine_checks


def test_a_found_ncu_comes_with_its_version(fake_ncu: Callable[[str], str]) -> None:
    path = fake_ncu("")
    row = next(iter(machine_checks(path)))
    assert (row.name, row.state, row.detail) == ("ncu", "ok", f"2025.3.1.0 ({path})")


def test_a_missing_and_a_broken_ncu_are_no_reason_to_stop_a_run(tmp_path: Path) -> None:
    path = tmp_path / "ncu"
    missing = next(iter(machine_checks(str(path))))
    path.write_text("#!/bin/sh\nexit 1\n")
    path.chmod(0o755)
    broken = next(iter(machine_checks(str(path))))
    assert (missing.state, broken.state) == ("warn", "warn")
    assert "does not start" in broken.detail
    assert missing.fix in broken.fix


@pytest.mark.parametrize(
    ("driver", "capabilities", "state", "detail"),
    [
        ("RmProfilingAdminOnly: 0\n", "0000000000000000", "ok", "all users"),
        ("Mobile: 1\nRmProfilingAdminOnly: 1\nX: 0\n", "00000000a80425fb", "warn", "ERR_NVGPUCTRPERM"),
        ("RmProfilingAdminOnly: 1\n", "000001ffffffffff", "ok", "administrators"),
        ("Mobile: 1\n", "0000000000000000", "ok", "does not say"),
    ],
)  # fmt: skip
def test_who_may_read_counters(
    tmp_path: Path, driver: str, capabilities: str, state: str, detail: str
) -> None:
    """a80425fb is what Docker leaves a root of a container; it lacks CAP_SYS_ADMIN."""
    params, status = tmp_path / "params", tmp_path / "status"
    params.write_text(driver)
    status.write_text(f"Name:\tpython\nCapEff:\t{capabilities}\n")
    row = counters(params, status)
    assert row.state == state
    assert detail in row.detail
    assert (row.state == "ok") or "--cap-add SYS_ADMIN" in row.fix


def test_without_the_drivers_file_ncu_will_tell(tmp_path: Path) -> None:
    assert counters(tmp_path / "none", tmp_path / "none").state == "ok"

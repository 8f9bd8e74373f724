"""Reading recorded reports and CSV, and what is wrong with others."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kopt.errors import PluginError
from kopt.hooks import Hooks
from kopt.model.diagnosis import KernelProfile, Profile
from kopt.plugins.loader import adopt
from kopt_ncu import Ncu, read
from kopt_ncu.metrics import metric
from kopt_ncu.report import read_report

# Known from the kernels and their launches alone (recorded/kernels.cu.txt), in both recordings.
KNOWN = {
    "row_sum": {
        "grid_blocks": 32, "block_threads": 128, "cluster_blocks": 1, "multiprocessors": 132,
        "load_requests": 128 * 4096, "load_sectors_per_request": 32, "load_sector_use_percent": 12.5,
        "global_load_bytes": 32 * 128 * 4096 * 32, "fp32_operations": 4096 * 4096,
        "shared_bytes": 0, "local_instructions": 0, "atomic_requests": 0,
        "blocks_limit_warps": 16, "theoretical_occupancy_percent": 100,
    },
    "transpose": {
        "grid_blocks": 128 * 128, "block_threads": 1024, "load_sectors_per_request": 4,
        "static_shared_bytes": 32 * 32 * 4, "shared_bytes": 32 * 32 * 4,
        "global_load_bytes": 4096 * 4096 * 4, "global_store_bytes": 4096 * 4096 * 4,
        "shared_requests": 2 * 128 * 128 * 32, "load_sector_use_percent": 100, "blocks_limit_warps": 2,
    },
    "spill": {
        "grid_blocks": 512, "block_threads": 256, "atomic_requests": 512 * 8 * 96,
        "fp32_operations": 512 * 256 * 96, "global_store_bytes": 0,
    },
}  # fmt: skip
# Counted, and so a little different from run to run.
COUNTED = {
    "row_sum": {"dram_read_bytes": 67.1e6, "duration_us": 272, "stall_long_scoreboard_percent": 92.9},
    "transpose": {"dram_read_bytes": 67.1e6, "shared_conflict_percent": 94, "dram_gb_s": 916},
    "spill": {"duration_us": 22.24e3, "local_instructions": 1372160, "local_sectors": 29.7e6,
              "share_percent": 98.2, "atomics_per_kilo_instruction": 30.25, "integer_percent": 70.5},
}  # fmt: skip


@pytest.fixture(params=["judge.csv", "judge.ncu-rep"])
def profile(request: pytest.FixtureRequest, recorded: Path) -> Profile:
    if request.param.endswith("-rep"):
        pytest.importorskip("ncu_report")
    return read(recorded / request.param)


def by_name(profile: Profile) -> dict[str, KernelProfile]:
    return {kernel.name: kernel for kernel in profile.kernels}


def test_a_recording_says_what_is_known_of_its_kernels(profile: Profile) -> None:
    assert [kernel.name for kernel in profile.kernels] == list(KNOWN)
    for name, kernel in by_name(profile).items():
        found = {wanted: metric(kernel, wanted) for wanted in KNOWN[name]}
        assert found == pytest.approx(KNOWN[name])
        for wanted, value in COUNTED[name].items():
            assert metric(kernel, wanted) == pytest.approx(value, rel=0.02)


def test_a_recording_says_what_a_call_is(profile: Profile) -> None:
    call = {each.name: each.value for each in profile.metrics}
    assert call["kernel_launches"] == 3
    assert call["kernels_us"] == pytest.approx(22.64e3, rel=0.01)
    shares = [metric(kernel, "share_percent") for kernel in profile.kernels]
    assert sum(share or 0 for share in shares) == pytest.approx(100)


def test_raw_has_the_tools_names_in_base_units_and_no_constants(profile: Profile) -> None:
    raw = by_name(profile)["row_sum"].raw
    assert raw["gpu__time_duration.sum"] == pytest.approx(272_300, rel=0.01)
    assert raw["dram__bytes_read.sum"] == pytest.approx(67_120_000, rel=0.001)
    assert raw["device__attribute_display_name"] == "NVIDIA H100 80GB HBM3"
    assert raw["launch__func_cache_config"] == "CachePreferNone"
    assert "device__attribute_warp_size" not in raw
    assert "launch__kernel_name" not in raw  # empty in both


def test_what_cannot_be_divided_or_was_not_read_is_absent(profile: Profile) -> None:
    kernels = by_name(profile)
    assert metric(kernels["row_sum"], "shared_conflict_percent") is None  # no shared accesses
    assert metric(kernels["spill"], "store_sectors_per_request") is None  # no global stores
    assert metric(kernels["spill"], "pipe_fp16_percent") is None  # n/a on that GPU
    assert metric(kernels["spill"], "stall_branch_resolve_percent") is None  # was not asked for


def test_csv_and_report_agree(recorded: Path) -> None:
    pytest.importorskip("ncu_report")
    for printed, exact in zip(
        read(recorded / "judge.csv").kernels, read(recorded / "judge.ncu-rep").kernels, strict=True
    ):
        assert [each.name for each in printed.metrics] == [each.name for each in exact.metrics]
        assert set(printed.raw) == set(exact.raw)
        for one, other in zip(printed.metrics, exact.metrics, strict=True):
            # Two runs, and two decimals in the one.
            assert one.value == pytest.approx(other.value, rel=0.06, abs=0.02)


def test_without_the_package_ncu_reads_a_report(
    recorded: Path, fake_ncu: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    path = recorded / "judge.ncu-rep"
    kernels = read_report(path, fake_ncu(""))
    assert [kernel.name for kernel in kernels] == list(KNOWN)
    assert (tmp_path / "imported").read_text().split() == [
        "--import", str(path), "--csv", "--page", "raw", "--print-units", "base",
    ]  # fmt: skip


def test_a_report_without_package_and_tool_names_the_package(
    recorded: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    with pytest.raises(PluginError, match=r"pip install 'kopt-ncu\[report\]'"):
        read_report(recorded / "judge.ncu-rep", str(tmp_path / "no-ncu"))


def test_the_hook_reads_what_is_ncus(recorded: Path) -> None:
    hooks = Hooks([adopt("profiler", Ncu())])
    profile = hooks.kopt_read_profile(recorded / "judge.csv")
    assert profile == read(recorded / "judge.csv")
    assert profile is not None
    assert profile.candidate == "judge"
    assert hooks.kopt_read_profile(recorded / "README.md") is None


def test_a_report_that_the_package_cannot_read_is_read_by_ncu(
    tmp_path: Path, fake_ncu: Callable[[str], str]
) -> None:
    pytest.importorskip("ncu_report")
    path = tmp_path / "newer.ncu-rep"
    path.write_bytes(b"NVR\0" + b"junk" * 1000)
    assert [kernel.name for kernel in read_report(path, fake_ncu(""))] == list(KNOWN)


def test_a_file_of_something_else_is_nobodys(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("ID, name\n1, x\n")
    with pytest.raises(PluginError, match="neither a report"):
        read(path)
    assert Ncu().kopt_read_profile(path) is None
    with pytest.raises(PluginError, match="cannot read"):
        read(tmp_path / "absent.ncu-rep")


def test_a_damaged_report_is_an_error(tmp_path: Path) -> None:
    pytest.importorskip("ncu_report")
    path = tmp_path / "damaged.ncu-rep"
    path.write_bytes(b"NVR\0" + b"junk" * 100)
    with pytest.raises(PluginError, match=r"damaged\.ncu-rep"):
        read(path)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ('"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n"0","k","x","","1"\n', "--page raw"),
        ('"ID","Kernel Name","x__y.sum"\n"","",""\n', "no kernels"),
    ],
)  # fmt: skip
def test_a_csv_without_launches_is_an_error(tmp_path: Path, rows: str, message: str) -> None:
    path = tmp_path / "page.csv"
    path.write_text(rows)
    with pytest.raises(PluginError, match=message):
        read(path)

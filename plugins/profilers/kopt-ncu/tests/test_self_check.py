"""The self-check: its program, its arithmetic, and on a GPU the whole of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kopt.errors import DeviceError
from kopt.machine import gpu_names
from kopt_ncu.checks import counters
from kopt_ncu.copy_kernel import NAME, PTX
from kopt_ncu.metrics import Raw, kernel_of
from kopt_ncu.self_check import SIZE, compare, self_check, table
from kopt_ncu.tool import find_ncu

_LSU = "_pipe_lsu_mem_global_op"


def counted() -> Raw:
    """What ncu has to say of the copy, on a GPU with 50 MiB of L2."""
    requests, sectors = SIZE / 512, SIZE / 32
    right: Raw = {
        "launch__grid_size": SIZE / 16 / 256, "launch__block_size": 256.0,
        "dram__bytes_read.sum": SIZE * 1.001, "dram__bytes_write.sum": SIZE * 0.85,
        "device__attribute_l2_cache_size": float(50 << 20),
        "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct": 100.0,
    }  # fmt: skip
    for op in ("ld", "st"):
        right[f"l1tex__t_bytes{_LSU}_{op}.sum"] = float(SIZE)
        right[f"l1tex__t_requests{_LSU}_{op}.sum"] = requests
        right[f"l1tex__t_sectors{_LSU}_{op}.sum"] = sectors
    return right


def wrong(raw: Raw) -> list[str]:
    return [row.metric for row in compare([kernel_of(NAME, raw)]) if not row.right]


def test_right_counters_are_right_and_wrong_ones_are_named() -> None:
    assert wrong(counted()) == []
    assert wrong(counted() | {"dram__bytes_read.sum": SIZE * 0.5}) == ["dram_read_bytes"]
    assert wrong(counted() | {"dram__bytes_write.sum": SIZE * 0.7}) == ["dram_write_bytes"]
    doubled = counted() | {f"l1tex__t_sectors{_LSU}_ld.sum": SIZE / 16}
    assert wrong(doubled) == ["load_sectors_per_request"]


def test_a_counter_that_is_absent_is_wrong() -> None:
    raw = counted()
    del raw[f"l1tex__t_bytes{_LSU}_ld.sum"]
    assert wrong(raw) == ["global_load_bytes"]
    rows = compare([kernel_of(NAME, raw)])
    assert table(rows).count("WRONG") == 1
    assert "n/a" in table(rows)


def test_the_kernel_assembles(tmp_path: Path) -> None:
    ptxas = shutil.which("ptxas")
    if ptxas is None:
        pytest.skip("no ptxas here")
    source = tmp_path / "copy.ptx"
    source.write_text(PTX)
    done = subprocess.run(
        [ptxas, "-arch=sm_90", "-v", str(source), "-o", str(tmp_path / "copy.cubin")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert NAME in done.stderr
    assert "0 bytes spill stores" in done.stderr


@pytest.mark.skipif(bool(gpu_names()), reason="there is a GPU")
def test_without_a_gpu_it_says_so_and_exits_with_5() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kopt_ncu.self_check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 5
    assert "no NVIDIA GPU" in done.stderr
    with pytest.raises(DeviceError):
        self_check()


@pytest.mark.gpu
def test_ncu_counts_right_here() -> None:
    if find_ncu() is None or counters().state != "ok":
        pytest.skip("no ncu here, or it may not read counters: kopt plugins --check")
    rows = self_check()
    assert all(row.right for row in rows), table(rows)

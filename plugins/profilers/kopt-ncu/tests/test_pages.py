"""The CSV in all its forms: quoting, separators, units, cells without a value."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopt.errors import PluginError
from kopt.model.metrics import KERNEL_METRICS
from kopt_ncu.metrics import TABLE, kernel_of, nsight_names
from kopt_ncu.pages import number, read_pages

_NOTHING = st.sampled_from(["", "n/a", "(!) n/a", "N/A", "nan", "-nan", "inf", "no data"])
_NUMBERS = st.floats(-1e15, 1e15).map(lambda value: round(value, 2)) | st.integers(
    -(10**15), 10**15
)
_CELLS = _NOTHING.map(lambda text: (text, None)) | _NUMBERS.flatmap(
    lambda value: st.sampled_from([(f"{value:,}", float(value)), (str(value), float(value))])
)
_COLUMNS = ["gpu__time_duration.sum", "launch__grid_size", 'odd, "quoted"', "l1tex__x.sum"]
_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"))


@given(
    kernels=st.lists(st.tuples(_TEXT, st.tuples(*[_CELLS] * len(_COLUMNS))), min_size=1),
    messages=st.lists(st.sampled_from(["==PROF== Connected to process 1", "start 0", "", "ID,x"])),
)
def test_every_cell_comes_back_as_what_it_says(
    kernels: list[tuple[str, tuple[tuple[str, float | None], ...]]], messages: list[str]
) -> None:
    printed = io.StringIO()
    for message in messages:
        printed.write(message + "\n")
    rows = csv.writer(printed, quoting=csv.QUOTE_ALL, lineterminator="\n")
    rows.writerow(["ID", "Process Name", "Kernel Name", *_COLUMNS])
    rows.writerow(["", "", "", "ns", "", "", "sector"])
    for at, (name, cells) in enumerate(kernels):
        rows.writerow([str(at), "python", name, *(text for text, _ in cells)])
    read = read_pages(printed.getvalue())
    assert [kernel.name for kernel in read] == [name for name, _ in kernels]
    for kernel, (_, cells) in zip(read, kernels, strict=True):
        expected = {
            column: value
            for column, (_, value) in zip(_COLUMNS, cells, strict=True)
            if value is not None
        }
        assert kernel.raw == pytest.approx(expected)
        assert all(math.isfinite(each.value) for each in kernel.metrics)


@given(st.text())
def test_any_text_after_the_header_is_read_or_refused(text: str) -> None:
    try:
        kernels = read_pages('"ID","Kernel Name","launch__grid_size"\n' + text)
    except PluginError:
        return
    assert all(set(kernel.raw) <= {"launch__grid_size"} for kernel in kernels)


@pytest.mark.parametrize(
    ("unit", "value", "base"),
    [
        ("Mbyte", "67.12", 67.12e6), ("ms", "1.5", 1.5e6), ("us", "2", 2000), ("byte", "3", 3),
        ("Kbyte/block", "5.12", 5120), ("Gbyte/s", "2", 2e9), ("Ghz", "1.98", 1.98e9),
        ("register/thread", "31", 31), ("inst/cycle", "0.25", 0.25), ("%", "12.5", 12.5),
    ],
)  # fmt: skip
def test_values_come_in_base_units(unit: str, value: str, base: float) -> None:
    text = f'"ID","Kernel Name","some__metric"\n"","","{unit}"\n"0","k","{value}"\n'
    assert read_pages(text)[0].raw == {"some__metric": pytest.approx(base)}


def test_texts_and_lines_that_are_cut_off() -> None:
    text = '"ID","Kernel Name","launch__x"\n"0","k","PolicySpread"\n"1","k2"\n==PROF== done\n'
    (kernel,) = read_pages(text)
    assert kernel.raw == {"launch__x": "PolicySpread"}
    assert number("1,23") == "1,23"  # no thousands: not taken for 123


def test_without_a_header_the_error_says_how_to_make_one() -> None:
    with pytest.raises(PluginError, match="--csv --page raw"):
        read_pages("==WARNING== No kernels were profiled.\n")


def test_the_table_has_kopts_names_once_each() -> None:
    names = [source.name for source in TABLE]
    assert len(set(names)) == len(names)
    assert set(names) <= set(KERNEL_METRICS)


def test_a_launch_of_which_nothing_was_read_has_no_metrics() -> None:
    assert kernel_of("k", {}).metrics == ()
    only = kernel_of("k", {"dram__bytes_read.sum": 10.0, "launch__grid_size": "n"})
    assert [(each.name, each.value) for each in only.metrics] == [("dram_read_bytes", 10.0)]


def test_the_judge_set_was_recorded(recorded: Path) -> None:
    """A name that Nsight Compute does not have would be n/a for ever."""
    missing = set(nsight_names(TABLE)) - set(
        read_pages((recorded / "judge.csv").read_text())[0].raw
    )
    assert missing == {
        # Of earlier GPUs: FP16 arithmetic is done by the FMA pipe on this one.
        "sm__inst_executed_pipe_fp16.avg.pct_of_peak_sustained_active",
        # Its name was misspelt when the recording was made; --query-metrics has this one.
        "smsp__average_warps_issue_stalled_branch_resolving_per_issue_active.ratio",
    }

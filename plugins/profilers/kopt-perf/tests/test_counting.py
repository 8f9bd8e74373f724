"""What perf printed, read: recorded in a virtual machine, and for a user who may not see the kernel."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopt.model.metrics import CALL_METRICS
from kopt_perf.counting import EVENTS, command, read

RECORDED = Path(__file__).parent / "recorded"
HARDWARE = {"cycles", "instructions", "cache-misses", "branch-misses"}


def recorded(name):
    return read((RECORDED / f"{name}.txt").read_text(encoding="utf-8"))


def test_a_virtual_machine_counts_software_events():
    found = recorded("virtual_machine")
    assert found.values.keys() == {"cpu_task_us", "page_faults", "context_switches"}
    assert 100 < found.values["cpu_task_us"] < 100_000
    assert found.values["page_faults"] > 10
    assert set(found.missing) == {f"{event} (not supported)" for event in HARDWARE}
    assert not found.user_only


def test_a_user_who_may_not_see_the_kernel():
    found = recorded("user_only")
    assert found.user_only
    assert found.values["cpu_task_us"] > 0


def test_a_program_that_did_not_start_has_no_counts():
    assert recorded("not_started").values == {}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("1500;;cycles;1000;100.00;;", {"cpu_cycles": 1500}),
        ("1500;;cycles:u;1000;87.00;;", {"cpu_cycles": 1500}),
        ("2.5;msec;task-clock;1000;100.00;;", {"cpu_task_us": 2500}),
        ("<not counted>;;cycles;0;0.00;;", {}),
        ("7;;another-event;0;0.00;;", {}),
        ("7", {}),
    ],
)
def test_lines(line, expected):
    assert read(line).values == expected


def test_cores_of_several_kinds_are_added():
    both = "100;;cpu_core/cycles/;1;100.00;;\n<not counted>;;cpu_atom/cycles/;0;0.00;;\n"
    found = read(both + "20;;cpu_atom/instructions/u;1;100.00;;\n30;;cpu_core/instructions/u;1;9;;")
    assert found.values == {"cpu_cycles": 100, "cpu_instructions": 50}
    assert found.missing == () and found.user_only


@given(st.text(alphabet=st.sampled_from("0.5;<>:/ucyclestask-\n ")))
def test_any_text_is_read(text):
    assert read(text).values.keys() <= set(EVENTS.values())


def test_every_event_is_asked_for_and_is_a_metric():
    asked = command("counts")
    assert set(asked[asked.index("-e") + 1].split(",")) == set(EVENTS)
    assert set(EVENTS.values()) <= CALL_METRICS.keys()

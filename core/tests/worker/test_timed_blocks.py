"""Which launches a block makes before its results are looked at."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopt.worker.trial import TimedTrial, ending_elsewhere


@given(st.integers(1, 300), st.integers(1, 8), st.data())
def test_a_block_reaches_every_set_and_ends_on_another_than_the_one_looked_at(launches, sets, data):
    place = data.draw(st.integers(0, sets - 1))
    made = ending_elsewhere(launches, sets, place)
    visited = [number % sets for number in range(made)]
    assert set(visited) == set(range(sets))
    assert launches <= made <= max(launches, sets) + 1
    assert sets == 1 or visited[-1] != place


class Recorded:
    """A trial that notes its orders, on a device with a clock or without."""

    def __init__(self, kind: str) -> None:
        self.reference = SimpleNamespace(device=SimpleNamespace(kind=kind))
        self.problem = SimpleNamespace(mutates=())
        self.timed: list[bool] = []

    def bind(self, inputs: object) -> int:
        return 1

    def order(
        self, op: str, *, launches: int, device_clock: bool, **more: object
    ) -> dict[str, Any]:
        if op == "time" and launches:
            self.timed.append(device_clock)
        return {"device_ms": 1.0 if device_clock else None}

    def device_time(self, reply: dict[str, Any], wall_ms: float) -> float | None:
        return reply["device_ms"]

    def fetch(self, *inputs: object) -> None:
        """Its memory is shared."""

    store = fetch

    def collect(self, inputs: object) -> str:
        return f"after {self.timed[-1]}"


class Content:
    """One input set."""

    def redraw(self, seed: int) -> None:
        """Nothing: only which block follows is of interest."""

    def perturb(self, seed: int) -> bool:
        return True

    def poison(self, byte: int) -> None:
        """As above."""


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_results_that_are_looked_at_come_of_blocks_as_they_are_timed(kind):
    """On a GPU they came of blocks by the judge's clock, while the device's gave the time."""
    trial = Recorded(kind)
    subject = TimedTrial(trial, [Content(), Content()])  # type: ignore[arg-type, list-item]
    subject.block(4, walled=False)
    reported = trial.timed[-1]
    assert reported == (kind == "cuda") == subject.two_clocks
    assert subject.fresh_block(4, 7)[1] == f"after {reported}"
    assert subject.nearly_same_block(4, 7)[1] == f"after {reported}"
    assert subject.fresh_block(4, 7, by_judge=True)[1] == "after False"

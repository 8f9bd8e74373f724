"""How many sets of inputs timing rotates over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kopt.model.device import Device
from kopt.worker.timing_inputs import TimingInputs

_MB = 1 << 20


def sets(kind: Any, each_mb: float, *, memory_mb: int = 80_000, cache_mb: int = 50) -> int:
    """Return how many sets are drawn of inputs and results that take ``each_mb`` together."""
    device = Device(
        kind=kind, name="", architecture="", units=1, memory_bytes=memory_mb * _MB,
        cache_bytes=cache_mb * _MB,
    )  # fmt: skip
    workload = SimpleNamespace(name="it", role="measure")
    bytes_of = SimpleNamespace(compulsory_bytes=int(each_mb * _MB))
    reference: Any = SimpleNamespace(
        device=device,
        problem=SimpleNamespace(workloads=[workload]),
        signature=SimpleNamespace(workloads={"it": bytes_of}),
        inputs=lambda name, seed: (name, seed),
    )
    return len(TimingInputs(reference).of("it"))


@pytest.mark.parametrize(
    ("kind", "each_mb", "wanted"),
    [
        ("cuda", 500, 2),  # one after the other, however large
        ("cuda", 40, 3),
        ("cuda", 7, 15),  # for kernels of microseconds too
        ("cuda", 0.01, 16),
        ("cpu", 40, 3),
        ("cpu", 2, 8),  # where drawing takes long
    ],
)
def test_sets_outgrow_the_cache_twice(kind, each_mb, wanted):
    assert sets(kind, each_mb) == wanted


def test_a_server_cache_that_others_share_counts_in_part():
    assert sets("cpu", 40, cache_mb=500) == 4
    assert sets("cuda", 80, cache_mb=500) == 13


def test_sets_take_no_more_than_memory_allows():
    assert sets("cuda", 40, memory_mb=1000, cache_mb=500) == 3
    assert sets("cuda", 400, memory_mb=1000) == 1

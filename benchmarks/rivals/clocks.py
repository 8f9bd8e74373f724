"""The rivals' clocks on a CPU: perf_counter where they record CUDA events, cache clearing as they do it."""

from __future__ import annotations

import functools
import statistics
import time
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

_CLEARED_BYTES = 32 << 20
"""Written to clear the caches; the rivals write 256 MB on a GPU."""


@functools.cache
def _buffer() -> torch.Tensor:
    return torch.empty(_CLEARED_BYTES // 8, dtype=torch.int64)


def clear() -> None:
    """Write a buffer, so that a call finds nothing of its inputs in the caches."""
    _buffer().fill_(42)


def once_ms(function: Callable[..., Any], arguments: Any) -> float:
    """Time one call in milliseconds."""
    start = time.perf_counter()
    function(*arguments)
    return (time.perf_counter() - start) * 1e3


def fixed_ms(
    function: Callable[..., Any],
    arguments: Any,
    warm_up: int,
    trials: int,
    *,
    cold: bool,
    drop: int = 0,
) -> float:
    """Return the mean of a fixed number of timed calls on the same arguments, in milliseconds."""
    for _ in range(warm_up):
        function(*arguments)
    times = []
    for _ in range(trials + drop):
        if cold:
            clear()
        times.append(once_ms(function, arguments))
    return statistics.fmean(times[drop:])


def budget_ms(
    function: Callable[..., Any], arguments: Any, warm_up_ms: float = 25, trials_ms: float = 100
) -> float:
    """Return the mean over as many cold calls as fit a budget, as Triton's do_bench (milliseconds)."""
    function(*arguments)
    start = time.perf_counter()
    for _ in range(5):
        clear()
        function(*arguments)
    estimate = max((time.perf_counter() - start) * 1e3 / 5, 1e-6)
    return fixed_ms(
        function, arguments, max(1, int(warm_up_ms / estimate)), max(1, int(trials_ms / estimate)),
        cold=True,
    )  # fmt: skip

"""torch.compile beside the measurements of others: the device is held while it is used."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

import torch
from torch._inductor import compile_fx as inductor
from torch._inductor.runtime.benchmarking import benchmarker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kopt.model.executable import DeviceTurns

_LONG_MS = 20.0
"""A kernel that takes longer is timed once: that is exact enough to choose by."""


@contextlib.contextmanager
def compiling_beside(turns: DeviceTurns) -> Iterator[None]:
    """Let go of the device in Inductor's compilers, and take it for each of its own timings.

    The thread that enters holds the device. What is compiled is the same: its kernels are chosen
    from the same ones, by times which others' measurements no longer disturb. Of kernels that take
    long one call is timed; Inductor would make at least seven. A version of torch that times kernels
    elsewhere keeps the device until it has compiled.
    """
    if not hasattr(benchmarker, "benchmark_gpu"):
        yield
        return
    compile_fx = inductor.compile_fx

    @functools.wraps(compile_fx)
    def letting_go(*arguments: Any, **keywords: Any) -> Any:
        with turns.resting():
            return compile_fx(*arguments, **keywords)

    inductor.compile_fx = letting_go
    try:
        with _timing_in_turn(turns):
            yield
    finally:
        inductor.compile_fx = compile_fx


@contextlib.contextmanager
def _timing_in_turn(turns: DeviceTurns) -> Iterator[None]:
    benchmark = benchmarker.benchmark_gpu

    @functools.wraps(benchmark)
    def in_turn(call: Callable[[], Any], *arguments: Any, **keywords: Any) -> Any:
        with turns.working():
            once = _once_ms(call)
            if once < _LONG_MS:
                return benchmark(call, *arguments, **keywords)
            return [once] if keywords.get("return_mode") == "all" else once

    benchmarker.benchmark_gpu = in_turn
    try:
        yield
    finally:
        benchmarker.benchmark_gpu = benchmark


def _once_ms(call: Callable[[], Any]) -> float:
    """Time a call that is not the first."""
    call()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    call()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end))

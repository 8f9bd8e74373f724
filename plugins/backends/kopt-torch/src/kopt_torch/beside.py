"""torch.compile beside the measurements of others: the device is held while it is used."""

from __future__ import annotations

import contextlib
import functools
import threading
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch._inductor import compile_fx as inductor
from torch._inductor.runtime.benchmarking import benchmarker
from torch._inductor.runtime.triton_heuristics import CachingAutotuner
from torch._inductor.select_algorithm import AlgorithmSelectorCache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kopt.model.executable import DeviceTurns

_LONG_MS = 20.0
"""A kernel that takes longer is timed once: that is exact enough to choose by."""
_BATCHES = (
    (AlgorithmSelectorCache, "benchmark_choices"),
    (CachingAutotuner, "benchmark_all_configs"),
)
"""What times one kernel after another in Inductor, when all are compiled: to wait for the device
once for all of them takes less time. They are internal; where a version has others, it waits for
each."""
_MISSING = object()


@contextlib.contextmanager
def compiling_beside(turns: DeviceTurns) -> Iterator[None]:
    """Let go of the device in Inductor's compilers, and take it alone for its own timings.

    The thread that enters holds the device. What is compiled is the same: its kernels are chosen
    from the same ones, by times which nothing else on the device disturbs. Of kernels that take
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

    alone = _Alone(turns)
    with contextlib.ExitStack() as changed:
        _put(changed, inductor, "compile_fx", letting_go)
        for owner, name in _BATCHES:
            if isinstance(owner.__dict__.get(name), (classmethod, FunctionType)):
                _put(changed, owner, name, alone.batch(owner.__dict__[name]))
        _put(changed, benchmarker, "benchmark_gpu", alone.timing(benchmarker.benchmark_gpu))
        yield


class _Alone:
    """Has the device alone for one timing, or for all timings of a choice."""

    def __init__(self, turns: DeviceTurns) -> None:
        self._turns = turns
        self._mine = threading.local()

    @contextlib.contextmanager
    def _device(self) -> Iterator[None]:
        if getattr(self._mine, "alone", False):
            yield
            return
        with self._turns.resting(), self._turns.exclusive():
            self._mine.alone = True
            try:
                yield
            finally:
                self._mine.alone = False

    def batch(self, times_all: Any) -> Any:
        """Return a function, or class method, that has the device as long as it runs."""
        if isinstance(times_all, classmethod):
            return classmethod(self.batch(times_all.__func__))

        @functools.wraps(times_all)
        def alone(*arguments: Any, **keywords: Any) -> Any:
            with self._device():
                return times_all(*arguments, **keywords)

        return alone

    def timing(self, benchmark: Any) -> Callable[..., Any]:
        """Return what times one kernel on the device."""

        @functools.wraps(benchmark)
        def alone(call: Callable[[], Any], *arguments: Any, **keywords: Any) -> Any:
            with self._device():
                once = _once_ms(call)
                if once < _LONG_MS:
                    return benchmark(call, *arguments, **keywords)
                return [once] if keywords.get("return_mode") == "all" else once

        return alone


def _put(changed: contextlib.ExitStack, owner: Any, name: str, value: Any) -> None:
    """Replace an attribute until ``changed`` is left."""
    its_own = vars(owner).get(name, _MISSING)
    setattr(owner, name, value)
    if its_own is _MISSING:
        changed.callback(delattr, owner, name)
    else:
        changed.callback(setattr, owner, name, its_own)


def _once_ms(call: Callable[[], Any]) -> float:
    """Time a call that is not the first."""
    call()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    call()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end))

"""torch.compile beside the measurements of others: the device is held while it is used."""

from __future__ import annotations

import contextlib
import functools
import threading
from typing import TYPE_CHECKING, Any

import torch
from torch._inductor import compile_fx as inductor
from torch._inductor.runtime.benchmarking import benchmarker
from torch._inductor.select_algorithm import AlgorithmSelectorCache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kopt.model.executable import DeviceTurns

_LONG_MS = 20.0
"""A kernel that takes longer is timed once: that is exact enough to choose by."""
_CHOOSING = "benchmark_choices"
"""What times all kernels that max-autotune chooses from. It is internal: a version that has another
chooses by the first timings."""
_NEAR = 3.0
_MOST_AGAIN = 8
_MISSING = object()


@contextlib.contextmanager
def compiling_beside(turns: DeviceTurns) -> Iterator[None]:
    """Let go of the device in Inductor's compilers, and take it for each of its own timings.

    The thread that enters holds the device. What is compiled is the same: its kernels are chosen
    from the same ones, by times which others' measurements do not disturb; of those that max-autotune
    chooses from, the fastest are timed again with the device alone. Of kernels that take
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

    timings = _Timings(turns)
    with contextlib.ExitStack() as changed:
        _put(changed, inductor, "compile_fx", letting_go)
        choosing = vars(AlgorithmSelectorCache).get(_CHOOSING)
        if isinstance(choosing, classmethod):
            again = classmethod(timings.choosing(choosing.__func__))
            _put(changed, AlgorithmSelectorCache, _CHOOSING, again)
        _put(changed, benchmarker, "benchmark_gpu", timings.timing(benchmarker.benchmark_gpu))
        yield


class _Timings:
    """Inductor's timings: each beside other work, and those that decide alone on the device."""

    def __init__(self, turns: DeviceTurns) -> None:
        self._turns = turns
        self._mine = threading.local()

    def timing(self, benchmark: Any) -> Callable[..., Any]:
        """Return what times one kernel on the device."""

        @functools.wraps(benchmark)
        def in_turn(call: Callable[[], Any], *arguments: Any, **keywords: Any) -> Any:
            alone = getattr(self._mine, "alone", False)
            with contextlib.nullcontext() if alone else self._turns.working():
                if not alone:
                    self._turns.make_way()
                once = _once_ms(call)
                if once < _LONG_MS:
                    return benchmark(call, *arguments, **keywords)
                return [once] if keywords.get("return_mode") == "all" else once

        return in_turn

    def choosing(self, times_all: Any) -> Callable[..., Any]:
        """Return what times the kernels that one is chosen from, the fastest once more.

        The first time, when they are loaded too, is beside other work, where a kernel may seem to
        take twice as long as it does; measurements come in between now and then.
        """

        @functools.wraps(times_all)
        def twice(cls: Any, choices: Any, *arguments: Any, **keywords: Any) -> Any:
            with self._turns.working():
                found = times_all(cls, choices, *arguments, **keywords)
            near = _nearest(found)
            if len(near) > 1:
                with self._turns.resting(), self._turns.exclusive():
                    self._mine.alone = True
                    try:
                        found.update(times_all(cls, near, *arguments, **keywords))
                    finally:
                        self._mine.alone = False
            return found

        return twice


def _nearest(found: Any) -> list[Any]:
    """Return the choices that may be the fastest, by times that others' work may have doubled."""
    times = {choice: ms for choice, ms in dict(found).items() if isinstance(ms, float)}
    fastest = sorted(times, key=lambda choice: times[choice])[:_MOST_AGAIN]
    return [choice for choice in fastest if times[choice] <= _NEAR * times[fastest[0]]]


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

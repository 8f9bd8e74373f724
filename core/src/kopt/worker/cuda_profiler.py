"""Starting and stopping the profiler that a CUDA process may run under, through the driver's API."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def cuda_profiling() -> Iterator[None]:
    """Have a waiting profiler (``ncu --profile-from-start off``) collect what runs within.

    Uses cuProfilerStart and cuProfilerStop (CUDA Driver API, Profiler Control). Without a CUDA
    driver, or without a profiler, it does nothing.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        yield
        return
    driver.cuProfilerStart()
    try:
        yield
    finally:
        driver.cuProfilerStop()

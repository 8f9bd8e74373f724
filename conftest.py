"""Tests that share something slow run in one process, slow ones first; no deadlines, no GPU needed.

Files whose tests share something mark themselves with ``xdist_group``. pytest-xdist 3.8 puts the
mark into a node id that pytest 9.2 no longer has, so that its own ``loadgroup`` treats every test
alone; and a file's tests belong together anyway. hypothesis would fail an example that took over
200 ms, as any does on a busy machine.
"""

from __future__ import annotations

import functools
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from kopt.machine import gpu_names

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

_ROOT = Path(__file__).parent

# Before torch is imported: its threads would wait for the next loop by spinning, and take the CPUs
# from other test processes for 4 ms whenever 4096 numbers are added.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell has what it starts in the background ignore it, and what tests start would too.
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("kopt", deadline=None)
settings.load_profile("kopt")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what is marked ``gpu`` where there is none; have what is slow begin early.

    Files that stay together begin first, the largest of them before all. What is slow by itself
    would come last where it lies in ``tests``, and leave one process waiting for the other.
    """
    if hasattr(config, "workerinput"):  # one process would set up each module's fixtures twice
        items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not gpu_names():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@functools.cache
def _together(file: str) -> bool:
    return "xdist_group" in (_ROOT / file).read_text()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Return a scheduler for ``--dist loadgroup``: by file where it asks for that, else by test."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return file if _together(file) else nodeid

    return ByFile(config, log)

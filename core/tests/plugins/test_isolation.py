"""What counts against a plugin, and what others may have caused."""

from __future__ import annotations

from typing import Any

import pytest

import kopt
from kopt.hooks import Hooks

# Stands in for arguments that no policy below looks at.
ANY: Any = None


class OutOfMemoryError(RuntimeError):
    """Called as torch calls its own."""


class Policy:
    """Raises what it is told to."""

    def __init__(self) -> None:
        self.error: Exception = ValueError()

    @kopt.hookimpl
    def kopt_stop(self) -> str:
        raise self.error


@pytest.mark.parametrize("lack", [MemoryError("no"), OutOfMemoryError("CUDA out of memory")])
def test_lack_of_memory_is_told_and_neither_counts_nor_clears(lack: Exception) -> None:
    policy = Policy()
    hooks = Hooks.load([], instances=[("search", policy)])
    for error in (ValueError(), ValueError(), lack, lack, lack, lack):
        policy.error = error
        hooks.kopt_stop(ANY, ANY, ANY)
    assert not hooks.retired
    assert len(hooks.failures) == 6
    policy.error = ValueError()
    hooks.kopt_stop(ANY, ANY, ANY)
    assert hooks.retired == {"search.policy"}

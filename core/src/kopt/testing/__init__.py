"""Contract test classes, tiny problems and real candidate processes, for authors of plugins.

A contract is a class of tests that a plugin has to pass. Subclass it in a test file of your own::

    from kopt.testing import StrategyContract

    class TestMyStrategy(StrategyContract):
        def plugin(self):
            return MyStrategy(MyStrategy.Options())

The contracts need pytest; BackendContract and VerifierContract start candidate processes, and
VerifierContract needs kopt-torch, kopt-cpp and a C++ compiler. Nothing of that is imported before
it is used: ``kopt.testing.problems`` and ``kopt.testing.records`` need kopt alone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kopt.testing.backend import BackendContract
    from kopt.testing.diagnosing import JudgeContract, ProfilerContract
    from kopt.testing.format import FormatContract
    from kopt.testing.llm import LlmContract
    from kopt.testing.plugin import PluginContract
    from kopt.testing.search import SearchContract
    from kopt.testing.strategy import StrategyCase, StrategyContract
    from kopt.testing.verifier import VerifierContract

_HOME = {
    "BackendContract": "backend",
    "FormatContract": "format",
    "JudgeContract": "diagnosing",
    "LlmContract": "llm",
    "PluginContract": "plugin",
    "ProfilerContract": "diagnosing",
    "SearchContract": "search",
    "StrategyCase": "strategy",
    "StrategyContract": "strategy",
    "VerifierContract": "verifier",
}

__all__ = [
    "BackendContract",
    "FormatContract",
    "JudgeContract",
    "LlmContract",
    "PluginContract",
    "ProfilerContract",
    "SearchContract",
    "StrategyCase",
    "StrategyContract",
    "VerifierContract",
]


def __getattr__(name: str) -> Any:
    """Import a contract on first use, with pytest's explanations of failed assertions."""
    if name not in _HOME:
        raise AttributeError(f"module 'kopt.testing' has no attribute {name!r}")
    _explain_assertions()
    value = getattr(importlib.import_module(f"kopt.testing.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def _explain_assertions() -> None:
    import sys

    import pytest

    modules = {f"kopt.testing.{module}" for module in _HOME.values()}
    pytest.register_assert_rewrite(*sorted(modules - set(sys.modules)))

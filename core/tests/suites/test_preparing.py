"""What is refused before a suite's first problem."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kopt.errors import ConfigError, DeviceError, KoptError, UnknownPluginError
from kopt.suites.preparing import settled
from kopt.suites.records import SuiteSettings
from kopt.suites.runner import run_suite

PLUGIN = """
import kopt
class P:
    class Options(kopt.Options):
        width: int = 1
    def __init__(self, options):
        self.options = options
    @kopt.hookimpl
    def kopt_check(self):
        return []
"""
CPU = {"device": "cpu", "backend": "cpp"}


@pytest.fixture(autouse=True)
def _plugins(distributions: Any) -> None:
    """One distribution with a backend, a search policy and whatever a run names besides."""
    names = ("backend.cpp", "backend.torch", "search.beam", "verifier.verify", "strategy.starters",
             "strategy.autotune")  # fmt: skip
    distributions.hide_others()
    distributions.add(
        "kopt-all", plugins=dict.fromkeys(names, "suite_mod:P"), modules={"suite_mod": PLUGIN}
    )


def test_what_works_says_where_it_comes_from() -> None:
    kind, plugins = settled(SuiteSettings.model_validate(CPU))
    assert kind == "cpu"
    assert plugins["search.beam"] == "kopt-all 0.1.0"
    assert plugins["strategy.autotune"] == "kopt-all 0.1.0"


def test_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOPT_STRATEGIES", "starters")
    _, plugins = settled(SuiteSettings.model_validate(CPU))
    assert "strategy.autotune" not in plugins


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"strategies": ("startres",)}, UnknownPluginError),
        ({"options": {"search.greedy": {"width": 1}}}, ConfigError),
        ({"options": {"search.beam": {"widht": 1}}}, KoptError),
        ({"backend": "triton"}, DeviceError),
        ({"seed": -1}, ConfigError),
    ],
)
def test_a_wrong_setting_ends_it_before_anything_is_written(
    made: Any, tmp_path: Path, more: dict[str, Any], error: type[Exception]
) -> None:
    settings = SuiteSettings.model_validate({**CPU, **more})
    with pytest.raises(error):
        run_suite(
            made.suite(1), tmp_path / "r.json", settings, made.Listener(), solving=made.Solver(),
            runs_root=tmp_path / "suites",
        )  # fmt: skip
    assert not (tmp_path / "suites").exists()
    assert not (tmp_path / "r.json").exists()

"""kopt makes a compute kernel faster and proves that it is still right."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kopt._version import __version__

if TYPE_CHECKING:
    from kopt.errors import ExitCode, KoptError
    from kopt.model.budget import Budget
    from kopt.model.candidate import Candidate, Knob
    from kopt.model.check import Check
    from kopt.model.diagnosis import Diagnosis, Metric, Profile
    from kopt.model.evaluation import Build, Evaluation
    from kopt.model.history import History
    from kopt.model.measurement import Interval, Measurement
    from kopt.model.problem import InputSpec, Problem, Tolerance, Workload
    from kopt.model.record import Options
    from kopt.model.run import Run
    from kopt.model.verification import StageResult, Status, Verification
    from kopt.optimize import load_problem, optimize
    from kopt.plugins.markers import hookimpl

_HOME = {
    "Budget": "model.budget",
    "Build": "model.evaluation",
    "Candidate": "model.candidate",
    "Check": "model.check",
    "Diagnosis": "model.diagnosis",
    "Evaluation": "model.evaluation",
    "ExitCode": "errors",
    "History": "model.history",
    "InputSpec": "model.problem",
    "Interval": "model.measurement",
    "Knob": "model.candidate",
    "KoptError": "errors",
    "Measurement": "model.measurement",
    "Metric": "model.diagnosis",
    "Options": "model.record",
    "Problem": "model.problem",
    "Profile": "model.diagnosis",
    "Run": "model.run",
    "StageResult": "model.verification",
    "Status": "model.verification",
    "Tolerance": "model.problem",
    "Verification": "model.verification",
    "Workload": "model.problem",
    "hookimpl": "plugins.markers",
    "load_problem": "optimize",
    "optimize": "optimize",
}

__all__ = [
    "Budget",
    "Build",
    "Candidate",
    "Check",
    "Diagnosis",
    "Evaluation",
    "ExitCode",
    "History",
    "InputSpec",
    "Interval",
    "Knob",
    "KoptError",
    "Measurement",
    "Metric",
    "Options",
    "Problem",
    "Profile",
    "Run",
    "StageResult",
    "Status",
    "Tolerance",
    "Verification",
    "Workload",
    "__version__",
    "hookimpl",
    "load_problem",
    "optimize",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use: ``import kopt`` alone stays light."""
    if name not in _HOME:
        raise AttributeError(f"module 'kopt' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"kopt.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """Keeps ``kopt.optimize`` the function, though a module has the same name."""

    def __setattr__(self, name: str, value: object) -> None:
        """Importing ``kopt.optimize`` would put the module in the function's place."""
        if name == "optimize" and isinstance(value, ModuleType):
            value = value.optimize
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package

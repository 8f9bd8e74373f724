"""The operators that starters know: every module of this folder is one, found by its presence."""

from __future__ import annotations

import importlib
import pkgutil

from kopt_starters.operator import Operator


def _discover() -> tuple[Operator, ...]:
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return tuple(importlib.import_module(f"{__name__}.{name}").OPERATOR for name in names)


OPERATORS = _discover()
"""Sorted by name."""

"""What tests of suites make up, as one fixture."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

_NAME = "kopt_tests_suites_made_up"


@pytest.fixture(scope="session")
def made() -> ModuleType:
    """The module ``made_up`` beside this file."""
    if _NAME not in sys.modules:
        spec = importlib.util.spec_from_file_location(_NAME, Path(__file__).with_name("made_up.py"))
        assert spec is not None and spec.loader is not None
        sys.modules[_NAME] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[_NAME])
    return sys.modules[_NAME]

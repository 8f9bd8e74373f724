"""Building for a target that need not be the device that is here."""

from __future__ import annotations

from pathlib import Path

import pytest

from kopt.testing import records
from kopt.worker.ahead import TargetBuild
from kopt.worker.pool import ProcessRecipe


@pytest.mark.parametrize(("target", "told"), [("sm_90", False), ("native", True)])
def test_a_named_target_is_built_for_whatever_device_is_here(
    tmp_path: Path, target: str, told: bool
) -> None:
    """A backend that is told of a GPU builds for that GPU, and has no listings of another."""
    device = records.gpu().to_json()
    recipe = ProcessRecipe(tmp_path, 0, [], {"device": device, "architecture": "native"})
    opening = TargetBuild(recipe, target, "sass", 1.0)._recipe.opening
    assert opening["architecture"] == target
    assert opening["device"] == (device if told else None)

"""The fault set as it was profiled on a GPU: the first diagnosis is the fault that was built in.

``kopt profile PROBLEM KERNEL --json`` of each fault is kept as ``recorded/NAME.json``.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from kopt.model.device import Device
from kopt.model.diagnosis import Diagnosis, KernelProfile, Profile, metrics_of
from kopt.model.evaluation import Evaluation
from kopt.model.problem import Signature
from kopt.testing import problems
from kopt.testing.strategy import a_parent
from kopt_roofline import Roofline
from kopt_roofline.rules import rulebook

HERE = Path(__file__).parent
RECORDED = sorted((HERE / "recorded").glob("*.json"))
EXPECTED: dict[str, list[str]] = {
    name: table["expected"]
    for name, table in tomllib.loads((HERE / "faults" / "faults.toml").read_text()).items()
}


def judged(recorded: dict[str, Any]) -> Diagnosis | None:
    """Judge anew what a file has; its problem's precision is the default."""
    return Roofline().kopt_judge(
        problems.row_sum(),
        Signature.model_validate(recorded["signature"]),
        Evaluation.model_validate(recorded["evaluation"]),
        [Profile.model_validate(each) for each in recorded["profiles"]],
        Device.model_validate(recorded["device"]),
    )


def test_every_fault_is_recorded() -> None:
    assert {path.stem for path in RECORDED} == EXPECTED.keys()


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_the_first_diagnosis_is_the_fault(path: Path) -> None:
    recorded = json.loads(path.read_text())
    assert recorded["schema"] == 1
    diagnosis = judged(recorded)
    assert diagnosis is not None
    found = [(finding.bottleneck, finding.gain) for finding in diagnosis.findings]
    assert diagnosis.bottleneck in EXPECTED[path.stem], found


def test_a_recording_is_judged_as_its_records_are(gpu: Device) -> None:
    """The form of the files, whether or not there are any."""
    evaluation = a_parent()
    kernel = KernelProfile(name="k", metrics=metrics_of({"grid_blocks": 8, "dram_busy_percent": 3}))
    profile = Profile(profiler="ncu", candidate=evaluation.id, kernels=(kernel,))
    recorded = {
        "schema": 1, "problem": "row_sum", "device": gpu.to_json(),
        "signature": problems.row_sum_signature().to_json(), "evaluation": evaluation.to_json(),
        "profiles": [profile.to_json()], "diagnoses": [],
    }  # fmt: skip
    diagnosis = judged(json.loads(json.dumps(recorded)))
    assert diagnosis is not None
    assert diagnosis.bottleneck == "grid-starvation"


def test_every_expected_bottleneck_is_one_that_a_rule_finds() -> None:
    names = {rule.name for rule in rulebook().rules}
    assert {name for expected in EXPECTED.values() for name in expected} <= names

"""Profiles and diagnoses of a round's parents."""

from __future__ import annotations

from kopt.hooks import Hooks
from kopt.model.device import Device
from kopt.model.diagnosis import Diagnosis
from kopt.model.evaluation import Evaluation
from kopt.model.history import History
from kopt.model.problem import Problem, Signature


def diagnose(
    hooks: Hooks,
    problem: Problem,
    signature: Signature,
    parent: Evaluation,
    device: Device,
    history: History,
) -> list[Diagnosis]:
    """Return what the judges make of a parent; empty where no judge is configured."""
    profiles = hooks.kopt_profile(problem, parent, device)
    return hooks.kopt_judge(problem, signature, parent, profiles, device, history)

"""The row of ``kopt doctor`` for torchprof; torch is imported in a subprocess, and only beside a GPU."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version

from kopt.machine import gpu_names
from kopt.model.check import Check

_NAME = "torch profiler"
_SECONDS = 60
_PROBE = """
from torch.profiler import ProfilerActivity, supported_activities
print("kernels:", ProfilerActivity.CUDA in supported_activities())
"""


def profiler_check() -> Check:
    """Say whether PyTorch's profiler sees GPU kernels here. Never raises."""
    try:
        found = version("torch")
    except PackageNotFoundError:
        return Check(
            name=_NAME, state="warn", detail="torch is not installed", fix="pip install torch"
        )
    if not gpu_names():
        return Check(name=_NAME, state="ok", detail=f"torch {found}; no GPU, so nothing to trace")
    return probed(found)


def probed(found: str) -> Check:
    """Ask the installed torch, whose version is ``found``, whether it can trace kernels."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE], capture_output=True, text=True, timeout=_SECONDS,
            check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check(
            name=_NAME, state="warn", detail=f"torch {found} did not answer: {error}",
            fix="try again when the machine is idle",
        )  # fmt: skip
    if done.stdout.strip() == "kernels: True":
        return Check(name=_NAME, state="ok", detail=f"torch {found} traces kernels with CUPTI")
    said = done.stderr.strip().splitlines()[-1:] or ["it has no CUPTI"]
    return Check(
        name=_NAME, state="warn", detail=f"torch {found} traces no kernels: {said[0]}",
        fix="install a CUDA build of torch, as from https://pytorch.org",
    )  # fmt: skip

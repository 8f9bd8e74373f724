"""Rows of ``kopt doctor`` for Nsight Compute."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from kopt.machine import gpu_names
from kopt.model.check import Check
from kopt_ncu.failures import PERMISSION_FIX
from kopt_ncu.tool import INSTALL, find_ncu, version_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_DRIVER = Path("/proc/driver/nvidia/params")
_PROCESS = Path("/proc/self/status")
_ADMIN_BIT = 21  # CAP_SYS_ADMIN, linux/capability.h


def machine_checks(wanted: str = "") -> Iterator[Check]:
    """Yield whether ncu starts, whether there is a GPU and whether its counters may be read."""
    yield _tool(wanted)
    if not gpu_names():
        yield Check(
            name="ncu gpu", state="warn", detail="no NVIDIA GPU: kernels cannot be profiled here",
            fix="profile on a machine with one; reports of others can be read: kopt profile show FILE",
        )  # fmt: skip
        return
    yield counters()


def counters(driver: Path = _DRIVER, process: Path = _PROCESS) -> Check:
    """Return whether this process may read the GPU's performance counters.

    The driver lets all users, or only those with CAP_SYS_ADMIN, as its ``RmProfilingAdminOnly``
    says (NVIDIA, ERR_NVGPUCTRPERM).
    """
    name = "gpu counters"
    try:
        restricted = re.search(r"^RmProfilingAdminOnly:\s*(\d)", driver.read_text(), re.MULTILINE)
    except OSError:
        restricted = None
    if restricted is None:
        return Check(
            name=name, state="ok", detail=f"{driver} does not say who may read them: ncu will tell"
        )
    if restricted[1] == "0":
        return Check(name=name, state="ok", detail="open to all users")
    if _is_admin(process):
        return Check(name=name, state="ok", detail="open to administrators, as this process is one")
    return Check(
        name=name, state="warn", detail="only administrators may read them (ERR_NVGPUCTRPERM)",
        fix=PERMISSION_FIX,
    )  # fmt: skip


def _is_admin(process: Path) -> bool:
    try:
        found = re.search(r"^CapEff:\s*([0-9a-fA-F]+)", process.read_text(), re.MULTILINE)
    except OSError:
        found = None
    return bool(int(found[1], 16) >> _ADMIN_BIT & 1) if found else os.geteuid() == 0


def _tool(wanted: str) -> Check:
    path = find_ncu(wanted)
    if path is None:
        return Check(name="ncu", state="warn", detail=f"no {wanted or 'ncu'}", fix=INSTALL)
    version = version_of(path)
    if version is None:
        return Check(
            name="ncu", state="warn", detail=f"{path} does not start",
            fix=f"run {path} --version to see why; {INSTALL}",
        )  # fmt: skip
    return Check(name="ncu", state="ok", detail=f"{version} ({path})")

"""Reading Nsight Compute's reports, .ncu-rep or CSV, on any machine."""

from __future__ import annotations

import importlib
import math
import subprocess
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kopt.errors import PluginError
from kopt.model.diagnosis import KernelProfile, Profile, metrics_of
from kopt_ncu.metrics import Raw, kernel_of, total_us, with_shares
from kopt_ncu.pages import in_base_unit, is_kept, looks_like_pages, read_pages
from kopt_ncu.tool import find_ncu

_MAGIC = b"NVR\0"
_IMPORT_SECONDS = 120
_PACKAGE = "ncu_report"
INSTALL = "pip install 'kopt-ncu[report]'"


def read(path: Path) -> Profile:
    """Return what a report says, a .ncu-rep or a CSV of the raw page, as its content tells.

    The launches of the file are taken for one call. Raises PluginError where it is neither, where
    it has no kernels, or where a .ncu-rep cannot be read here.
    """
    profile = read_if_ours(path)
    if profile is None:
        raise PluginError(
            f"{path} is neither a report (.ncu-rep) nor a CSV of Nsight Compute; make one with: "
            "ncu -o REPORT PROGRAM, or: ncu --import REPORT --csv --page raw --print-units base"
        )
    return profile


def read_if_ours(path: Path) -> Profile | None:
    """Return what a report says; None where the content is not Nsight Compute's.

    Raises PluginError where it is and cannot be read.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise PluginError(f"cannot read {path}: {error.strerror}; name an existing file") from error
    if content.startswith(_MAGIC):
        return profile_of(read_report(path), path.stem)
    text = content.decode("utf-8", "replace")
    if not looks_like_pages(text):
        return None
    try:
        kernels = read_pages(text)
    except PluginError as error:
        raise PluginError(f"cannot read {path}: {error}") from error
    return profile_of(_some(kernels, path), path.stem)


def profile_of(
    kernels: Sequence[KernelProfile],
    candidate: str,
    notes: Sequence[str] = (),
    *,
    whole: bool = True,
) -> Profile:
    """Return the profile of a call from its launches.

    :param whole: whether these are all launches of the call; else nothing is said of the call.
    """
    call = {"kernel_launches": float(len(kernels)), "kernels_us": total_us(kernels)}
    return Profile(
        profiler="ncu",
        candidate=candidate,
        metrics=metrics_of(call) if whole and kernels else (),
        kernels=with_shares(kernels) if whole else tuple(kernels),
        notes=tuple(notes),
    )


def read_report(path: Path, ncu: str | None = None) -> tuple[KernelProfile, ...]:
    """Return the launches of a .ncu-rep, by the package ncu-report or else by ncu itself.

    The package gives exact values; ncu prints two decimals. Raises PluginError where neither is
    here, or where there are no kernels in it.

    :param ncu: path of ncu; found where not given.
    """
    tool = ncu or find_ncu()
    if find_spec(_PACKAGE) is not None:
        try:
            return _some(_by_package(path), path)
        except PluginError:
            if tool is None:
                raise
            # As where ncu is newer than the package.
            return _some(_by_tool(path, tool), path)
    if tool is None:
        raise PluginError(f"{path} needs the package ncu-report or ncu to be read: {INSTALL}")
    return _some(_by_tool(path, tool), path)


def _some(kernels: tuple[KernelProfile, ...], path: Path) -> tuple[KernelProfile, ...]:
    if kernels:
        return kernels
    raise PluginError(
        f"no kernels in {path}: the file is damaged, of a newer Nsight Compute than can be read "
        f"here, or nothing was profiled; open it with ncu --import {path}, or profile again"
    )


def _by_package(path: Path) -> tuple[KernelProfile, ...]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of SWIG, in newer Pythons
        package: Any = importlib.import_module(_PACKAGE)
    try:
        context = package.load_report(str(path))
        # A file that is no report does not raise: it has no ranges.
        ranges = [context.range_by_idx(at) for at in range(context.num_ranges())]
        actions = [part.action_by_idx(at) for part in ranges for at in range(part.num_actions())]
        return tuple(
            kernel_of(action.name(action.NameBase_DEMANGLED), _raw(action)) for action in actions
        )
    except (OSError, RuntimeError, ValueError) as error:
        raise PluginError(f"ncu-report cannot read {path}: {error}; {INSTALL} -U") from error


def _raw(action: Any) -> Raw:
    raw: Raw = {}
    for name in action.metric_names():
        metric = action.metric_by_name(name)
        value = metric.value() if is_kept(name) and metric.has_value() else None
        if isinstance(value, int | float) and math.isfinite(value):
            raw[name] = in_base_unit(float(value), metric.unit())
        elif isinstance(value, str) and value:
            raw[name] = value
    return raw


def _by_tool(path: Path, ncu: str) -> tuple[KernelProfile, ...]:
    command = [ncu, "--import", str(path), "--csv", "--page", "raw", "--print-units", "base"]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=_IMPORT_SECONDS, check=False, text=True,
            errors="replace",
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PluginError(f"{ncu} could not read {path}: {error}; {INSTALL}") from error
    if not looks_like_pages(done.stdout):
        said = (done.stdout + done.stderr).strip()[-500:]
        raise PluginError(
            f"{ncu} --import {path} printed no table (exit {done.returncode}): {said}; {INSTALL}"
        )
    return read_pages(done.stdout)

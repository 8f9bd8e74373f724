"""Rows of ``kopt doctor`` for Triton; torch and triton are only imported in a subprocess."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

from kopt.env import cache_folder, visible_gpu
from kopt.machine import gpu_names
from kopt.model.check import Check
from kopt.model.record import content_id
from kopt.runs.files import write_atomically

_PROBE_SECONDS = 60
_PROBE = """
import json, torch, triton
gpu = torch.cuda.is_available()
print(json.dumps({"gpu": torch.cuda.get_device_name(0) if gpu else None, "cuda": torch.version.cuda}))
"""
_OLDEST = (3, 2)


def installed(distribution: str) -> str | None:
    """Return the version of an installed distribution, or None."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])


def _triton_check() -> Check:
    found = installed("triton")
    if found is None:
        fix = (
            "pip install 'triton>=3.2'"
            if sys.platform == "linux"
            else "Triton is for Linux: use the cpp backend on this machine"
        )
        return Check(name="triton", state="fail", detail="triton is not installed", fix=fix)
    if _numbers(found) < _OLDEST:
        fix = "pip install --upgrade 'triton>=3.2'"
        return Check(name="triton", state="fail", detail=f"triton {found} is too old", fix=fix)
    return Check(name="triton", state="ok", detail=f"triton {found}")


def _probed() -> dict[str, str | None]:
    """Return what a process finds that imports torch and triton, now or the last time.

    That takes seconds, at every run of kopt's. What was found is kept for these versions and GPUs,
    unless there is a GPU that could not be used: a driver may be mended meanwhile.
    """
    known = [sys.executable, installed("torch"), installed("triton"), *gpu_names(), visible_gpu()]
    kept = cache_folder() / "checks" / f"triton-{content_id(json.dumps(known))}.json"
    with suppress(OSError, ValueError):
        return dict(json.loads(kept.read_bytes()))
    command = [sys.executable, "-c", _PROBE]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=True
    )
    found: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
    if found["gpu"] is None and gpu_names():
        return found
    with suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(kept, json.dumps(found).encode())
    return found


def _gpu_check() -> Check:
    try:
        found = _probed()
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or ["no message"]
        fix = "reinstall matching versions: pip install --upgrade torch triton"
        return Check(name="triton gpu", state="fail", detail=f"import fails: {lines[-1]}", fix=fix)
    except subprocess.TimeoutExpired:
        detail = f"importing torch and triton took more than {_PROBE_SECONDS} s"
        return Check(name="triton gpu", state="warn", detail=detail, fix="try again when idle")
    if found["gpu"] is None:
        return Check(
            name="triton gpu",
            state="warn",
            detail="no CUDA device: correctness in the interpreter and --target only, no timing",
            fix="run on a machine with an NVIDIA GPU and a CUDA build of torch",
        )
    return Check(name="triton gpu", state="ok", detail=f"{found['gpu']}, CUDA {found['cuda']}")


def _compiler_check() -> Check:
    for name in ("gcc", "clang", "cc"):
        if (path := shutil.which(name)) is not None:
            return Check(name="triton launcher compiler", state="ok", detail=path)
    return Check(
        name="triton launcher compiler",
        state="warn",
        detail="no C compiler: Triton compiles a small launcher for each kernel on a GPU",
        fix="install one, as with: apt-get install gcc",
    )


def machine_checks() -> Iterator[Check]:
    """Yield the rows, cheap ones first. Never raises."""
    row = _triton_check()
    yield row
    if row.state == "fail":
        return
    yield _compiler_check()
    if installed("torch") is None:
        fix = "pip install torch"
        yield Check(name="triton gpu", state="fail", detail="torch is not installed", fix=fix)
        return
    yield _gpu_check()

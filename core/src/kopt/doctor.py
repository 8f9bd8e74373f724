"""What ``kopt doctor`` looks at: this machine, and every installed plugin's own checks."""

from __future__ import annotations

import contextlib
import http.client
import os
import platform
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from kopt._version import __version__
from kopt.env import cache_folder, llm_endpoint
from kopt.errors import KoptError, PluginOptionsError
from kopt.hooks import Hooks
from kopt.machine import gpu_names
from kopt.model.check import Check
from kopt.plugins.catalog import PluginInfo, installed
from kopt.worker.confinement import SIGNALS_SINCE, landlock_version

_LLM_SECONDS = 5.0


def examine() -> list[Check]:
    """Return every check, the machine's first; a check that raises becomes a red row."""
    rows: list[Check] = []
    for probe in _PROBES:
        try:
            rows.append(probe())
        except Exception as error:  # noqa: BLE001 - one probe's trouble is one row
            name = probe.__name__.strip("_")
            rows.append(Check(name=name, state="fail", detail=f"the check itself failed: {error}",
                              fix="report this with the output of `kopt doctor --json`"))  # fmt: skip
    return rows + _plugins()


def _kopt() -> Check:
    return Check(name="kopt", state="ok", detail=__version__)


def _python() -> Check:
    """The interpreter that runs kopt; every worker process uses the same one."""
    version = platform.python_version()
    return Check(name="python", state="ok", detail=f"{version}, {sys.executable}")


def _compiler() -> Check:
    for name in ("g++", "clang++", "c++"):
        if path := shutil.which(name):
            return Check(name="c++ compiler", state="ok", detail=f"{path} {_version_of(path)}")
    return Check(name="c++ compiler", state="fail", detail="none of g++, clang++, c++ is on PATH",
                 fix="apt install g++ (Debian, Ubuntu) or xcode-select --install (macOS)")  # fmt: skip


def _version_of(path: str) -> str:
    done = subprocess.run(
        [path, "--version"], capture_output=True, text=True, timeout=20, check=False
    )
    found = re.search(r"\d+\.\d+(\.\d+)?", done.stdout)
    return found[0] if found else ""


def _package(name: str, fix: str, *, needed: bool) -> Check:
    try:
        return Check(name=name, state="ok", detail=metadata.version(name))
    except metadata.PackageNotFoundError:
        return Check(name=name, state="fail" if needed else "warn", detail="not installed", fix=fix)


def _torch() -> Check:
    return _package("torch", "pip install kopt-torch (it brings torch)", needed=True)


def _triton() -> Check:
    return _package("triton", "pip install kopt-triton, for Triton kernels", needed=False)


def _gpu() -> Check:
    names = gpu_names()
    if not names:
        return Check(name="GPU", state="warn", detail="nvidia-smi lists none: C++ on the CPU only",
                     fix="install the NVIDIA driver, or pass the GPU into the container")  # fmt: skip
    program = "import torch; print(torch.version.cuda, torch.cuda.is_available())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          timeout=120, check=False)  # fmt: skip
    if "True" not in done.stdout:
        return Check(name="GPU", state="fail", detail=f"{names[0]}, but PyTorch cannot use it",
                     fix="install a CUDA build of torch that fits the driver")  # fmt: skip
    return Check(
        name="GPU", state="ok", detail=f"{', '.join(names)}; CUDA {done.stdout.split()[0]}"
    )


def _ncu() -> Check:
    path = shutil.which("ncu")
    if not gpu_names():
        return Check(name="ncu", state="warn", detail="no GPU to profile", fix="see the GPU row")
    if path is None:
        return Check(name="ncu", state="warn", detail="not on PATH",
                     fix="install Nsight Compute, for hardware counters")  # fmt: skip
    restricted = "RmProfilingAdminOnly: 1" in _read(Path("/proc/driver/nvidia/params"))
    if restricted and _user_id() != 0:
        return Check(name="ncu", state="warn", detail=f"{path}: counters are for root only",
                     fix="set NVreg_RestrictProfilingToAdminUsers=0 for the nvidia module, or run "
                     "as root")  # fmt: skip
    return Check(name="ncu", state="ok", detail=f"{path} {_version_of(path)}")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def _user_id() -> int:
    return os.geteuid() if hasattr(os, "geteuid") else -1


def _llm() -> Check:
    url, has_key = llm_endpoint()
    if url is None and not has_key:
        return Check(name="LLM endpoint", state="warn", detail="none configured: not needed",
                     fix="set OPENAI_BASE_URL, and OPENAI_API_KEY where the server wants one")  # fmt: skip
    given = url or "https://api.openai.com/v1"
    secret = given.partition("://")[2].partition("/")[0].rpartition("@")[0]
    place = given.replace(f"{secret}@", "", 1) if secret else given
    try:
        with urllib.request.urlopen(f"{given.rstrip('/')}/models", timeout=_LLM_SECONDS) as answer:
            return Check(name="LLM endpoint", state="ok", detail=f"{place} answers {answer.status}")
    except urllib.error.HTTPError as error:
        if error.code in {401, 403} and has_key:
            return Check(name="LLM endpoint", state="ok", detail=f"{place} answers; it wants a key")
        return Check(name="LLM endpoint", state="fail", detail=f"{place} answers {error.code}",
                     fix="check OPENAI_BASE_URL and OPENAI_API_KEY")  # fmt: skip
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        said = _without(str(error), secret)
        return Check(name="LLM endpoint", state="fail", detail=f"{place}: {said}",
                     fix="start the server, or correct OPENAI_BASE_URL")  # fmt: skip


def _without(text: str, secret: str) -> str:
    """Return a text without the name and the password of a URL, nor a part of them."""
    for part in (secret, *secret.split(":")):
        text = text.replace(part, "...") if part else text
    return text


def _cache() -> Check:
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.write_text("", encoding="utf-8")
        probe.unlink()
    except OSError as error:
        return Check(name="cache", state="fail", detail=str(error),
                     fix="set KOPT_CACHE_DIR to a folder that can be written")  # fmt: skip
    return Check(name="cache", state="ok", detail=str(folder))


def _confinement() -> Check:
    name, version = "confinement", landlock_version()
    if not version:
        return Check(name=name, state="warn", detail="candidates can write wherever you can",
                     fix="Linux 5.13 or later with Landlock, or a user of its own for kopt")  # fmt: skip
    also = ", and signal nobody" if version >= SIGNALS_SINCE else ""
    return Check(name=name, state="ok",
                 detail=f"Landlock {version}: candidates write to their own folders and the build cache alone{also}")  # fmt: skip


_PROBES: tuple[Callable[[], Check], ...] = (
    _kopt, _python, _compiler, _torch, _triton, _gpu, _ncu, _llm, _cache, _confinement,
)  # fmt: skip


def _plugins() -> list[Check]:
    """Ask each installed plugin for its own checks; one that cannot be loaded is a red row."""
    rows: list[Check] = []
    for info in installed():
        label = f"{info.role} {info.name}"
        # What a plugin prints while it is imported must not end up among the data.
        with contextlib.redirect_stdout(sys.stderr):
            found = _asked(info)
        rows += [check.model_copy(update={"name": f"{label}: {check.name}"}) for check in found]
    return rows


def _asked(info: PluginInfo) -> list[Check]:
    source = f"{info.distribution} {info.version}"
    try:
        hooks = Hooks.load([(info.role, info.reference, {})])
        found = hooks.kopt_check()
    except PluginOptionsError as error:
        return [Check(name="options", state="warn", detail=str(error),
                      fix=f"set them in kopt.toml, in a table [{info.role}.{info.name}]")]  # fmt: skip
    except KoptError as error:
        return [Check(name="loading", state="fail", detail=str(error),
                      fix=f"pip install -U {info.distribution}, or uninstall it")]  # fmt: skip
    failures = [
        Check(name=failure.hook, state="fail", detail=f"{source} raised {failure.error}",
              fix=f"tell the authors of {info.distribution}, or uninstall it")
        for failure in hooks.failures
    ]  # fmt: skip
    return [*found, *failures]

"""The environment: the only file that reads it, and every variable that kopt knows."""

from __future__ import annotations

import os
import re
import site
import tempfile
from collections.abc import Mapping
from pathlib import Path

import platformdirs

from kopt.errors import ConfigError

PREFIX = "KOPT_"

SETTING_VARIABLES: dict[str, str] = {
    "KOPT_BACKEND": "backend that builds candidates",
    "KOPT_STRATEGIES": "strategies, separated by commas",
    "KOPT_SEARCH": "search policy",
    "KOPT_VERIFIERS": "verifiers, separated by commas",
    "KOPT_PROFILERS": "profilers, separated by commas",
    "KOPT_JUDGES": "judges, separated by commas",
    "KOPT_LLM": "language model plugin",
    "KOPT_EXECUTOR": "executor that evaluates candidates elsewhere",
    "KOPT_DEVICE": "device: cpu or cuda",
    "KOPT_MAX_TIME": "time budget of a run, as 20m or 1h30m",
    "KOPT_MAX_TRIALS": "number of candidates that a run may evaluate",
    "KOPT_MAX_TOKENS": "language model tokens that a run may use",
    "KOPT_MAX_USD": "money that a run may spend, in US dollars",
    "KOPT_SEED": "seed of everything that is drawn at random",
    "KOPT_BUILD_WORKERS": "builds at a time",
    "KOPT_BUILD_TIMEOUT": "deadline of one build, as 2m",
    "KOPT_RUN_TIMEOUT": "deadline of one launch, as 60s",
    "KOPT_RUNS_DIR": "folder of the run folders",
}
"""Variables that stand for a setting of the same name (docs/reference/config)."""

OTHER_VARIABLES: dict[str, str] = {
    "KOPT_CACHE_DIR": "folder of builds that later runs reuse",
    "KOPT_CUDA_IPC": "off: copy device memory to candidates instead of sharing it",
}
"""Variables that are no settings."""

_PASSED = frozenset({
    "PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "LANG", "TZ", "VIRTUAL_ENV",
    "CONDA_PREFIX", "PYTHONPATH", "PYTHONPYCACHEPREFIX", "PYTHONUSERBASE", "CC", "CXX", "OPENBLAS_CORETYPE",
    "MKL_NUM_THREADS", "MKL_ENABLE_INSTRUCTIONS", "OPENBLAS_NUM_THREADS", "GOMP_CPU_AFFINITY",
    "KMP_AFFINITY", "TORCHINDUCTOR_COMPILE_THREADS",
})  # fmt: skip
_PASSED_PREFIXES = ("LC_", "CUDA_", "NVIDIA_", "TRITON_", "OMP_")
# A candidate must neither read nor fill the user's own caches, nor have its kernels replaced.
_KEPT_BACK = re.compile(r"^TRITON_.*(CACHE|HOME|DUMP|OVERRIDE)|^CUDA_CACHE_PATH$")
_SPACE = re.compile(r"\s")
_OTHER_CACHE = "set KOPT_CACHE_DIR to a folder that can be written"
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)


def settings_from_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return setting name to text for every non-empty ``KOPT_*`` variable that may be a setting.

    ``KOPT_MAX_TIME`` gives ``max_time``. Unknown names are among them: kopt.config refuses those,
    so that a misspelt variable is not silently without effect. ``environment`` is the process's
    own unless given.
    """
    source = os.environ if environment is None else environment
    return {
        name.removeprefix(PREFIX).lower(): value
        for name, value in source.items()
        if name.startswith(PREFIX) and name not in OTHER_VARIABLES and value.strip()
    }


def cache_folder() -> Path:
    """Return the folder of everything that may be deleted (``KOPT_CACHE_DIR``); not created."""
    given = os.environ.get("KOPT_CACHE_DIR", "").strip()
    if given:
        return Path(given).expanduser().absolute()
    return Path(platformdirs.user_cache_dir("kopt", appauthor=False))


def made_cache_folder() -> Path:
    """Return the cache folder, made where it was not there. Raises ConfigError."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK | os.X_OK)
    except OSError as error:
        raise ConfigError(f"the cache folder cannot be made: {error}; {_OTHER_CACHE}") from error
    if not writable:
        raise ConfigError(f"the cache folder {folder} cannot be written; {_OTHER_CACHE}")
    return folder


def plain_temporary() -> Path | None:
    """Return a folder for temporary files without white space in its path; None: the usual one.

    torch.compile calls its compiler with paths that it does not quote.
    """
    if not _SPACE.search(tempfile.gettempdir()):
        return None
    places = (Path(place) for place in ("/tmp", "/var/tmp"))
    return next((place for place in places if os.access(place, os.W_OK | os.X_OK)), None)


def cuda_homes() -> tuple[str, ...]:
    """Return the folders that are named as CUDA's, the most telling first."""
    named = (os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH"))
    return tuple(home for home in named if home)


def visible_gpus() -> tuple[str, ...]:
    """Return the GPUs of CUDA_VISIBLE_DEVICES, as the driver's tools name them; empty: all are."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return tuple(name.strip() for name in named if name.strip())


def visible_gpu() -> str:
    """Return the first of ``visible_gpus``; empty: all are visible."""
    return next(iter(visible_gpus()), "")


def show_gpu(variables: Mapping[str, str]) -> None:
    """Have this process, and those that it starts, see the GPUs that these variables name."""
    os.environ.update(variables)


def live_in(variables: Mapping[str, str]) -> None:
    """Give this process these variables and no others."""
    os.environ.clear()
    os.environ.update(variables)


def candidate_environment(
    home: Path, cache: Path | None = None, *, confined: bool = False
) -> dict[str, str]:
    """Return the whole environment of a candidate process.

    Only variables on a list pass, and none whose name tells of a secret. Home and temporary files
    lie below ``home`` (its folders are made here). Compiler caches lie below ``cache`` where it is
    given, so that later processes find them, else below ``home`` too; torch.compile's does as well
    where ``cache`` has white space in its path (see ``plain_temporary``). A ``confined`` process may
    write to these two folders alone.
    """
    passed = {name: value for name, value in os.environ.items() if _may_pass(name)}
    if site.ENABLE_USER_SITE:
        # HOME moves, and with it the place where packages installed with --user are looked for.
        passed.setdefault("PYTHONUSERBASE", site.getuserbase())
    kept = home / ".cache" if cache is None else cache
    plain = home / ".cache" if _SPACE.search(str(kept.absolute())) else kept
    folders = {
        "HOME": home, "TMPDIR": home / "tmp", "XDG_CACHE_HOME": home / ".cache",
        "TRITON_CACHE_DIR": kept / "triton", "TORCHINDUCTOR_CACHE_DIR": plain / "inductor",
        "CUPY_CACHE_DIR": kept / "cupy", "CUDA_CACHE_PATH": kept / "cuda",
    }  # fmt: skip
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    return {
        **passed,
        **{name: str(folder.absolute()) for name, folder in folders.items()},
        **({_CONFINED: "\n".join(str(p.absolute()) for p in {home, kept})} if confined else {}),
        # Spinning threads of one process ruin the timing of another on the same cores.
        "OMP_WAIT_POLICY": "passive",
        "GOMP_SPINCOUNT": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
    }


def may_share_device_memory() -> bool:
    """Whether device memory may be shared between processes: unless ``KOPT_CUDA_IPC`` is ``off``.

    Raises ConfigError for another value than ``on`` and ``off``.
    """
    given = os.environ.get("KOPT_CUDA_IPC", "").strip().lower() or "on"
    if given not in ("on", "off"):
        raise ConfigError(
            f"KOPT_CUDA_IPC: {given!r} is neither on nor off; set one of them, or unset it"
        )
    return given == "on"


def confined_to() -> tuple[Path, ...]:
    """Return the folders that this process may write to; (): it is not confined."""
    return tuple(Path(line) for line in os.environ.get(_CONFINED, "").split("\n") if line)


def llm_endpoint() -> tuple[str | None, bool]:
    """Return the OpenAI-compatible base URL that is set, if any, and whether a key is set."""
    url = os.environ.get("OPENAI_BASE_URL") or os.environ.get("OPENAI_API_BASE")
    return url or None, bool(os.environ.get("OPENAI_API_KEY"))


def named_variable(name: str) -> str | None:
    """Return a variable that a plugin's options name, as one that holds a key; None: not set."""
    return os.environ.get(name) or None


def sharing_environment(cpus: int, processes: int) -> dict[str, str]:
    """Return this process's environment for one of several that share its CPUs.

    torch.compile starts a compiler for every CPU, in each process; here twice as many as fit, since
    the others seldom compile at the same time: six problems with two compilers each waited 40 s for
    one max-autotune and left two thirds of the CPUs idle.
    """
    threads = max(1, min(cpus, 2 * cpus // processes))
    return {"TORCHINDUCTOR_COMPILE_THREADS": str(threads), **os.environ}


_CONFINED = "KOPT_CONFINED_TO"
"""Set for candidate processes alone: a folder a line."""
POOLED_ALLOCATOR = {
    "MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(256 << 20),
}  # fmt: skip
"""Has glibc keep freed pages, so that fresh memory costs no page faults (mallopt(3))."""


def judge_environment() -> dict[str, str]:
    """Return the whole environment of a judge process: the user's, without secrets."""
    passed = {name: value for name, value in os.environ.items() if not _SECRET.search(name)}
    quiet = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
    return {**passed, **POOLED_ALLOCATOR, **quiet}


def _may_pass(name: str) -> bool:
    if _SECRET.search(name) or _KEPT_BACK.search(name):
        return False
    return name in _PASSED or name.startswith(_PASSED_PREFIXES)

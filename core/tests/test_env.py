from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kopt import env
from kopt.errors import ConfigError
from kopt.settings import SETTINGS

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in list(os.environ):
        if name.startswith("KOPT_"):
            monkeypatch.delenv(name)
    return monkeypatch


def test_every_setting_has_its_variable_and_no_other() -> None:
    assert set(env.SETTING_VARIABLES) == {f"KOPT_{name.upper()}" for name in SETTINGS}


def test_settings_are_read_from_the_process_and_empty_ones_left_out(
    clean: pytest.MonkeyPatch,
) -> None:
    clean.setenv("KOPT_MAX_TIME", "5m")
    clean.setenv("KOPT_SEED", "  ")
    clean.setenv("KOPT_CACHE_DIR", "/somewhere")
    clean.setenv("KOPTIMISM", "1")
    assert env.settings_from_environment() == {"max_time": "5m"}


def test_a_misspelt_variable_is_passed_on_to_be_refused() -> None:
    assert env.settings_from_environment({"KOPT_MAX_TME": "5m"}) == {"max_tme": "5m"}


def test_folders(clean: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean.setenv("XDG_CACHE_HOME", str(tmp_path))
    if sys.platform == "linux":
        assert env.cache_folder() == tmp_path / "kopt"
    clean.setenv("KOPT_CACHE_DIR", "relative")
    assert env.cache_folder() == Path.cwd() / "relative"


SECRETS = [
    "OPENAI_API_KEY", "CUDA_TOKEN", "LC_SECRET", "TRITON_password", "OMP_Credentials",
    "NVIDIA_ACCESS_KEY",
]  # fmt: skip
STRANGERS = ["HTTP_PROXY", "SSH_AUTH_SOCK", "LD_PRELOAD", "AWS_REGION", "KOPT_LLM", "PYTHONSTARTUP"]
PASSED = [
    "LD_LIBRARY_PATH",
    "LC_ALL",
    "CUDA_VISIBLE_DEVICES",
    "PYTHONPATH",
    "CXX",
    "OMP_NUM_THREADS",
    "TORCHINDUCTOR_COMPILE_THREADS",
]
MOVED = [
    "HOME", "TMPDIR", "XDG_CACHE_HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR",
    "CUPY_CACHE_DIR", "CUDA_CACHE_PATH",
]  # fmt: skip


@pytest.fixture
def candidate(clean: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    for name in [*SECRETS, *STRANGERS, *PASSED, *MOVED, "OMP_WAIT_POLICY"]:
        clean.setenv(name, "given")
    for name in ["TRITON_CACHE_MANAGER", "TRITON_HOME", "TRITON_OVERRIDE_DIR", "TRITON_DUMP_DIR"]:
        clean.setenv(name, "not passed")
    return env.candidate_environment(tmp_path / "home")


def test_a_candidate_gets_no_secret_and_nothing_that_is_not_listed(
    candidate: dict[str, str],
) -> None:
    assert not set(candidate) & {*SECRETS, *STRANGERS}
    assert not [name for name in candidate if re.search("key|token|secret|pass|cred", name, re.I)]
    assert "not passed" not in candidate.values()
    assert candidate["PATH"] == os.environ["PATH"]
    assert {candidate[name] for name in PASSED} == {"given"}


def test_a_candidates_files_stay_in_its_home(candidate: dict[str, str], tmp_path: Path) -> None:
    for name in MOVED:
        assert Path(candidate[name]).is_relative_to(tmp_path / "home")
        assert Path(candidate[name]).is_dir()
    assert candidate["OMP_WAIT_POLICY"] == "passive"
    assert candidate["GOMP_SPINCOUNT"] == "0"
    assert candidate["PYTHONHASHSEED"] == "0"
    assert candidate["PYTHONDONTWRITEBYTECODE"] == "1"


def test_compiler_caches_can_be_shared(tmp_path: Path) -> None:
    given = env.candidate_environment(tmp_path / "home", tmp_path / "cache")
    assert Path(given["TRITON_CACHE_DIR"]) == tmp_path / "cache" / "triton"
    assert Path(given["HOME"]) == tmp_path / "home"


def test_a_compiler_that_takes_no_spaces_gets_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch.compile does not quote the paths that it hands to g++."""
    made = env.candidate_environment(tmp_path / "home", tmp_path / "my cache")
    assert made["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "home" / ".cache" / "inductor")
    assert made["TRITON_CACHE_DIR"] == str(tmp_path / "my cache" / "triton")
    assert env.plain_temporary() is None
    spaced = tmp_path / "my files"
    spaced.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(spaced))
    found = env.plain_temporary()
    assert found is not None
    assert " " not in str(found)


def test_a_cache_folder_that_cannot_be_made_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KOPT_CACHE_DIR", str(tmp_path / "new" / "cache"))
    assert env.made_cache_folder().is_dir()
    (tmp_path / "file").write_text("in the way")
    for place in ("file/cache", "file"):
        monkeypatch.setenv("KOPT_CACHE_DIR", str(tmp_path / place))
        with pytest.raises(ConfigError, match=r"cannot be made: .*; set KOPT_CACHE_DIR to"):
            env.made_cache_folder()


def test_processes_beside_each_other_share_the_cpus_for_compilers(
    clean: pytest.MonkeyPatch,
) -> None:
    name = "TORCHINDUCTOR_COMPILE_THREADS"
    clean.delenv(name, raising=False)
    assert env.sharing_environment(32, 5)[name] == "12"
    assert env.sharing_environment(2, 5)[name] == "1"
    assert env.sharing_environment(8, 1)[name] == "8"
    assert env.sharing_environment(2, 5)["PATH"] == os.environ["PATH"]
    clean.setenv(name, "9")
    assert env.sharing_environment(32, 5)[name] == "9"


def test_a_process_with_that_environment_can_work(tmp_path: Path) -> None:
    script = "import kopt, os, tempfile; print(tempfile.gettempdir()); print(len(os.environ))"
    done = subprocess.run(
        [sys.executable, "-c", script], env=env.candidate_environment(tmp_path), text=True,
        capture_output=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[0] == str(tmp_path / "tmp")


@pytest.mark.parametrize(
    ("given", "may"), [("", True), ("on", True), ("off", False), ("OFF", False)]
)
def test_device_memory_is_shared_unless_somebody_says_no(
    monkeypatch: pytest.MonkeyPatch, given: str, may: bool
) -> None:
    monkeypatch.setenv("KOPT_CUDA_IPC", given)
    assert env.may_share_device_memory() is may
    monkeypatch.setenv("KOPT_CUDA_IPC", "0")
    with pytest.raises(ConfigError, match="KOPT_CUDA_IPC: '0' is neither on nor off; set one"):
        env.may_share_device_memory()


def test_the_page_lists_every_variable() -> None:
    page = (REPOSITORY / "docs" / "reference" / "environment.md").read_text()
    listed = set(re.findall(r"^\| `(KOPT_\w+)`", page, re.MULTILINE))
    assert listed == {*env.SETTING_VARIABLES, *env.OTHER_VARIABLES}


def test_no_other_file_reads_the_environment() -> None:
    readers = [
        path.name
        for path in (REPOSITORY / "core" / "src").rglob("*.py")
        if re.search(r"os\.(environ|getenv)", path.read_text())
    ]
    assert readers == ["env.py"]

"""The wheels: what is in them, and that they work where this repository is not importable."""

from __future__ import annotations

import email.message
import email.parser
import hashlib
import json
import os
import subprocess
import sys
import venv
import zipfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import kopt

if TYPE_CHECKING:
    from conftest import Distribution

# The fixtures build and install for a minute: one process shall have them all.
pytestmark = [pytest.mark.xdist_group("wheels"), pytest.mark.slow]

NEEDED_FOR_CPP = (
    "kopt-torch",
    "kopt-cpp",
    "kopt-verify",
    "kopt-starters",
    "kopt-autotune",
    "kopt-search",
)
REFERENCE = """\
import torch


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight
"""
PROBLEM = """\
[reference]
function = "rms_norm"

[inputs.x]
shape = ["rows", "cols"]

[inputs.weight]
shape = ["cols"]

[[workloads]]
rows = 256
cols = 512
"""


def described(wheel: Path) -> email.message.Message:
    """Return a wheel's metadata."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        return email.parser.Parser().parsestr(archive.read(name).decode())


@pytest.fixture(scope="module")
def wheels(
    distributions: list[Distribution], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """Every distribution's wheel, as ``make wheels`` builds it."""
    folder = tmp_path_factory.mktemp("dist")
    found = {}
    for each in distributions:
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(each.folder)]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        [found[each.name]] = folder.glob(f"{each.package}-*.whl")
    return found


@pytest.fixture(scope="module")
def third_party(wheels: dict[str, Path], pytestconfig: pytest.Config) -> Path:
    """A folder with what the wheels require of others, in the versions that are installed here.

    It is kept beside pytest's cache, so that only a changed requirement is downloaded again.
    """
    texts = sorted(
        {
            str(requirement)
            for wheel in wheels.values()
            for requirement in map(Requirement, described(wheel).get_all("Requires-Dist") or ())
            if not requirement.name.startswith("kopt") and "extra" not in str(requirement.marker)
            and requirement.name != "triton"
        }
    )  # fmt: skip
    versions: dict[str, str] = {}  # setuptools, once imported, adds what it carries, after ours
    for each in metadata.distributions():
        versions.setdefault(each.name, each.version)
    pins = sorted(f"{n}=={v}" for n, v in versions.items() if not n.startswith("kopt"))
    mark = hashlib.sha256("\n".join([*texts, *pins, sys.version]).encode()).hexdigest()[:16]
    folder = pytestconfig.rootpath / ".pytest_cache" / "wheels" / mark
    if not (folder / "complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pins.txt").write_text("\n".join(pins), encoding="utf-8")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(folder), "--constraint", str(folder / "pins.txt"), *texts]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        (folder / "complete").touch()
    return folder


class Environment:
    """A new virtual environment, and a folder elsewhere to work in."""

    def __init__(self, place: Path, sources: list[Path]) -> None:
        self._venv = place / "venv"
        self.folder = place / "elsewhere"
        self.folder.mkdir()
        self._sources = [
            argument for source in sources for argument in ("--find-links", str(source))
        ]
        venv.create(self._venv, with_pip=True)
        kept = {"PATH", "HOME", "LANG", "TMPDIR"}
        self._variables = {name: value for name, value in os.environ.items() if name in kept}
        self._variables["KOPT_CACHE_DIR"] = str(place / "cache")

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment; neither the repository nor its settings are seen."""
        return subprocess.run(
            [str(self._venv / "bin" / program), *arguments], capture_output=True, text=True,
            cwd=self.folder, env=self._variables, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip

    def install(self, *names: str) -> None:
        done = self.run("pip", "--isolated", "install", "--no-index", *self._sources, *names)
        assert done.returncode == 0, done.stdout + done.stderr

    def packages(self) -> dict[str, str]:
        done = self.run("pip", "--isolated", "list", "--format=json")
        return {row["name"]: row["version"] for row in json.loads(done.stdout)}


@pytest.fixture(scope="module")
def environment(
    wheels: dict[str, Path], third_party: Path, tmp_path_factory: pytest.TempPathFactory
) -> Environment:
    """An environment with the core alone; a later test adds the plugins."""
    own = next(iter(wheels.values())).parent
    made = Environment(tmp_path_factory.mktemp("environment"), [own, third_party])
    made.install("kopt")
    return made


def test_a_wheel_holds_the_package_and_nothing_else(
    wheels: dict[str, Path], distributions: list[Distribution]
) -> None:
    for each in distributions:
        shipped = {
            path.relative_to(each.folder / "src").as_posix()
            for path in each.source.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        with zipfile.ZipFile(wheels[each.name]) as archive:
            names = {name for name in archive.namelist() if ".dist-info/" not in name}
        assert names == shipped, each.name
        assert f"{each.package}/py.typed" in names


def test_the_starters_ship_their_kernels(wheels: dict[str, Path]) -> None:
    with zipfile.ZipFile(wheels["kopt-starters"]) as archive:
        kernels = [n for n in archive.namelist() if n.startswith("kopt_starters/kernels/")]
    assert any(name.endswith(".cpp") for name in kernels)
    assert any(name.endswith(".py.txt") for name in kernels)


def test_metadata(wheels: dict[str, Path]) -> None:
    for name, wheel in wheels.items():
        data = described(wheel)
        assert canonicalize_name(str(data["Name"])) == name
        assert data["Version"] == kopt.__version__
        assert data["License-Expression"] == "Apache-2.0"
        assert data["Requires-Python"] == ">=3.11"
        assert data["Summary"]
        assert str(data.get_payload()).strip(), f"{name} has no description"


def test_only_torch_and_triton_backends_ask_for_them(wheels: dict[str, Path]) -> None:
    asking = {
        name
        for name, wheel in wheels.items()
        for requirement in map(Requirement, described(wheel).get_all("Requires-Dist") or ())
        if requirement.name in {"torch", "triton"}
    }
    assert asking == {"kopt-torch", "kopt-triton"}


def test_the_core_alone(environment: Environment) -> None:
    packages = environment.packages()
    assert packages["kopt"] == kopt.__version__
    assert not {"torch", "triton", "numpy", "optuna"} & set(packages)
    found = environment.run("python", "-c", "import kopt; print(kopt.__file__)")
    assert str(environment.folder.parent / "venv") in found.stdout
    assert environment.run("kopt", "--version").stdout.strip() == f"kopt {kopt.__version__}"
    assert "optimize" in environment.run("kopt", "--help").stdout
    listed = json.loads(environment.run("kopt", "plugins", "--json").stdout)["plugins"]
    assert {(row["role"], row["distribution"]) for row in listed} == {("format", "kopt")}


def test_the_core_alone_says_what_to_install(environment: Environment) -> None:
    problem = environment.folder / "small"
    problem.mkdir(exist_ok=True)
    (problem / "reference.py").write_text(REFERENCE, encoding="utf-8")
    (problem / "problem.toml").write_text(PROBLEM, encoding="utf-8")
    done = environment.run("kopt", "optimize", "small", "--device", "cpu")
    assert done.returncode == 4
    assert "pip install kopt-cpp" in done.stderr


def test_an_optimisation_from_wheels(environment: Environment) -> None:
    environment.install(*NEEDED_FOR_CPP)
    problem = environment.folder / "small"
    problem.mkdir(exist_ok=True)
    (problem / "reference.py").write_text(REFERENCE, encoding="utf-8")
    (problem / "problem.toml").write_text(PROBLEM, encoding="utf-8")
    done = environment.run(
        "kopt", "optimize", "small", "--device", "cpu", "--max-trials", "3", "--json",
        "-o", "backend.torch.compile=false",
    )  # fmt: skip
    assert done.returncode in {0, 1}, done.stderr
    run = json.loads(done.stdout)
    assert run["status"] in {"improved", "not-improved"}, run["reason"]
    assert run["trials"]["correct"] >= 1, run
    assert set(run["verification"].values()) == {"pass"}
    assert Path(run["best"]["source_path"]).is_relative_to(environment.folder)
    assert run["plugins"]["backend.cpp"] == f"kopt-cpp {kopt.__version__}"

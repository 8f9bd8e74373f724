"""From names to a run: what is refused before anything starts, and what a failure leaves behind."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kopt
from kopt.config import Settings, resolve, run_config
from kopt.errors import ConfigError, DeviceError, ProblemError, UnknownPluginError
from kopt.hooks import Hooks
from kopt.loading import load_hooks, named_plugins, without_idle_options
from kopt.model.check import Check
from kopt.model.run import RunConfig
from kopt.optimize import as_problem, backends_beside, choose_backend, load_problem, start
from kopt.testing.problems import vector_add

PLUGIN = """
import kopt
class P:
    class Options(kopt.Options):
        width: int = 1
    def __init__(self, options):
        self.options = options
    @kopt.hookimpl
    def kopt_check(self):
        return []
"""


@pytest.fixture
def plugins(distributions: Any) -> Any:
    """One distribution with a backend, two search policies and whatever a run names besides."""
    names = ("backend.cpp", "backend.torch", "search.greedy", "search.beam", "verifier.verify",
             "strategy.starters", "strategy.autotune")  # fmt: skip
    distributions.hide_others()
    distributions.add(
        "kopt-all", plugins=dict.fromkeys(names, "all_mod:P"), modules={"all_mod": PLUGIN}
    )
    return distributions


def configured(file: str, options: tuple[str, ...], folder: Path) -> RunConfig:
    path = folder / "kopt.toml"
    path.write_text(file)
    settings = resolve({"search": "greedy"}, options, path)
    config = run_config(settings, "cpu", "cpp")
    return without_idle_options(config, settings.origins, named_plugins(config))


@pytest.mark.usefixtures("plugins")
def test_one_file_may_serve_several_policies(tmp_path: Path) -> None:
    config = configured("[search.beam]\nwidth = 3\n[search.greedy]\nwidth = 2\n", (), tmp_path)
    assert config.options == {"search.greedy": {"width": 2}}
    hooks = load_hooks(config, named_plugins(config))
    assert ("search", "kopt-all:greedy") in {ref[:2] for ref in hooks.references("search")}


@pytest.mark.usefixtures("plugins")
def test_an_idle_option_on_the_command_line_is_a_mistake(tmp_path: Path) -> None:
    config = configured("", ("search.beam.width=3",), tmp_path)
    with pytest.raises(ConfigError, match=r"search\.beam, which is not used here"):
        load_hooks(config, named_plugins(config))


@pytest.mark.usefixtures("plugins")
def test_options_of_what_is_not_installed_are_a_mistake_in_a_file_too(tmp_path: Path) -> None:
    config = configured("[search.greddy]\nwidth = 3\n", (), tmp_path)
    with pytest.raises(ConfigError, match=r"did you mean 'search\.greedy'"):
        load_hooks(config, named_plugins(config))


@pytest.mark.usefixtures("plugins")
def test_the_best_installed_backend_is_chosen() -> None:
    assert choose_backend(None, "cpu") == "cpp"
    assert choose_backend("acme", "cpu") == "acme"
    with pytest.raises(UnknownPluginError, match="pip install kopt-triton"):
        choose_backend(None, "cuda")


def test_triton_on_a_cpu_is_refused_and_leaves_no_run(tmp_path: Path) -> None:
    settings = resolve({"backend": "triton", "device": "cpu", "runs_dir": tmp_path / "runs"})
    with pytest.raises(DeviceError, match="cannot be timed without a GPU"):
        start(vector_add(), settings)
    assert not (tmp_path / "runs").exists()


def test_what_is_no_problem_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="needs inputs"):
        as_problem(lambda x: x)
    with pytest.raises(ProblemError, match="no such file or folder"):
        load_problem(tmp_path / "nowhere")
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(ProblemError, match="no installed format knows it"):
        load_problem(tmp_path / "notes.txt")
    assert as_problem(vector_add()) == vector_add()


@pytest.fixture
def gpu_backends(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Two backends for GPUs that are installed, each with its check's state."""
    states = {"triton": "ok", "cuda": "ok"}
    optimizing = sys.modules[start.__module__]
    monkeypatch.setattr(
        optimizing, "installed", lambda role: [SimpleNamespace(name=name) for name in states]
    )

    def load(references: list[tuple[str, str, dict[str, Any]]]) -> Hooks:
        ((_, name, options),) = references
        check = Check(name=name, state=options.get("state", states[name]), detail="d", fix="f")
        return Hooks.load([], instances=[("backend", Checked(check))])

    monkeypatch.setattr(optimizing, "Hooks", SimpleNamespace(load=load))
    return states


class Checked:
    """A plugin with one check."""

    def __init__(self, check: Check) -> None:
        self.check = check

    @kopt.hookimpl
    def kopt_check(self) -> list[Check]:
        return [self.check]


def test_what_works_on_a_gpu_is_beside_the_backend_that_nobody_named(
    gpu_backends: dict[str, Any],
) -> None:
    assert backends_beside(Settings(), "cuda", "triton") == ("cuda",)
    assert backends_beside(Settings(backend="triton"), "cuda", "triton") == ()
    assert backends_beside(Settings(), "cpu", "cpp") == ()
    gpu_backends["cuda"] = "fail"
    assert backends_beside(Settings(), "cuda", "triton") == ()
    gpu_backends["cuda"] = "warn"  # as without the headers that half precision needs
    assert backends_beside(Settings(), "cuda", "triton") == ()


def test_options_decide_whether_a_backend_works(gpu_backends: dict[str, Any]) -> None:
    settings = Settings(options={"backend.cuda": {"state": "fail"}})
    assert gpu_backends["cuda"] == "ok"
    assert backends_beside(settings, "cuda", "triton") == ()


def test_a_run_loads_and_names_every_backend_that_it_may_build_with() -> None:
    config = run_config(Settings(), "cuda", "kopt-triton:triton", ("cuda",))
    assert config.languages == ("triton", "cuda")
    assert [name for role, name in named_plugins(config) if role == "backend"] == [
        "torch", "kopt-triton:triton", "cuda",
    ]  # fmt: skip

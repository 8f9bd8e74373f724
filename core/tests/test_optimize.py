"""From names to a run: what is refused before anything starts, and what a failure leaves behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kopt.config import resolve, run_config
from kopt.errors import ConfigError, DeviceError, ProblemError, UnknownPluginError
from kopt.loading import load_hooks, named_plugins, without_idle_options
from kopt.model.run import RunConfig
from kopt.optimize import as_problem, choose_backend, load_problem, start
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

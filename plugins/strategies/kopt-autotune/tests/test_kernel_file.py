"""A kernel file of the user's, given as an option, is what a run begins with."""

from __future__ import annotations

import pytest

from kopt.errors import PluginUnavailableError
from kopt.hooks import Hooks
from kopt.model.device import Target
from kopt.testing import problems, records
from kopt.testing.strategy import a_parent
from kopt_autotune import Autotune


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.cpp"
    path.write_text(a_parent().candidate.source)
    return path


def loaded(path, instance=False):
    options = {"kernel": str(path)}
    if instance:
        return Hooks.load([], [("strategy", Autotune(Autotune.Options(**options)))])
    return Hooks.load([("strategy", "autotune", options)])


def ask(hooks, language="cpp", parent=None, beside=()):
    past = [parent] if parent else []
    return hooks.kopt_propose(
        problems.row_sum(), problems.row_sum_signature(),
        Target(language=language, beside=beside, device=records.cpu()), parent, (), records.history(past),
    )  # fmt: skip


@pytest.mark.parametrize("instance", [False, True])
def test_it_is_proposed_in_the_first_round_and_tuned_from_then_on(file, instance):
    hooks = loaded(file, instance)
    hooks.ensure_available()
    ((name, candidate),) = ask(hooks)
    assert name == "autotune"
    assert candidate.id == a_parent().candidate.id
    assert candidate.idea == "mine.cpp"
    later = ask(hooks, parent=records.measured(candidate, 2.0))
    assert [each.values for _, each in later] == [{"UNROLL": 2}, {"UNROLL": 4}]
    assert hooks.failures == []


@pytest.mark.parametrize("content", [None, "int f();", "// /// kopt\n"])
def test_a_file_that_is_missing_or_no_kernel_stops_a_run_before_it_starts(tmp_path, content):
    path = tmp_path / "other.cpp"
    if content is not None:
        path.write_text(content)
    with pytest.raises(
        PluginUnavailableError, match=r"-o strategy\.autotune\.kernel=my_kernel\.py"
    ):
        loaded(path).ensure_available()


def test_a_kernel_of_another_language_says_which_backend_builds_it(file):
    hooks = loaded(file)
    assert ask(hooks, language="triton") == []
    assert "add --backend cpp" in hooks.failures[0].error


def test_a_kernel_in_any_language_that_the_run_builds_is_welcome(file):
    ((_, candidate),) = ask(loaded(file), language="triton", beside=("cpp",))
    assert candidate.language == "cpp"

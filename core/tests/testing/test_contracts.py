"""The contracts for plugin authors: each of their tests fails for a plugin that breaks it."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest
from pydantic import ConfigDict

import kopt
import kopt.testing
from kopt.errors import ProblemError
from kopt.testing import (
    FormatContract,
    JudgeContract,
    PluginContract,
    ProfilerContract,
    SearchContract,
    StrategyContract,
    problems,
    records,
)


def names(contract):
    return sorted(name for name in dir(contract) if name.startswith("test_"))


def broken_tests(contract, plugin, *arguments):
    """Run every test of a contract for a plugin; return those that failed."""
    case = type("Case", (contract,), {"plugin": lambda self: plugin()})()
    failed = []
    for name in names(contract):
        try:
            getattr(case, name)(*arguments)
        except pytest.skip.Exception:
            continue
        except (AssertionError, pytest.fail.Exception):
            failed.append(name)
    return failed


# --- searches ---


class Search:
    def __init__(self):
        self.rounds = 0

    @kopt.hookimpl
    def kopt_select(self, history, round_number):
        self.rounds += 1
        return self.choose(history)

    def choose(self, history):
        return history.ranked()[:2]


class Repeats(Search):
    def choose(self, history):
        return history.ranked()[:1] * 2


class TakesFailures(Search):
    def choose(self, history):
        return list(history)[-1:]


class RemembersRounds(Search):
    def choose(self, history):
        return history.ranked()[: self.rounds]


class Tampers(Search):
    def choose(self, history):
        if len(history):
            history.add(records.measured(kopt.Candidate(language="cpp", source="", entry="f"), 1.0))
        return history.ranked()[1:3]


class InventsParents(Search):
    def choose(self, history):
        return [records.measured(kopt.Candidate(language="cpp", source="", entry="f"), 1.0)]


class NeverChooses(Search):
    def choose(self, history):
        return []


class StopsAtOnce(Search):
    @kopt.hookimpl
    def kopt_stop(self):
        return "tired"


@pytest.mark.parametrize(
    ("plugin", "failing"),
    [
        (Search, []),
        (Repeats, ["test_parents_are_distinct_measured_and_of_the_history"]),
        (TakesFailures, ["test_failures_alone_select_nothing",
                         "test_parents_are_distinct_measured_and_of_the_history"]),
        (RemembersRounds, ["test_the_choice_follows_from_the_arguments_alone"]),
        (Tampers, ["test_it_leaves_the_history_as_it_is"]),
        (InventsParents, ["test_failures_alone_select_nothing",
                          "test_nothing_evaluated_selects_nothing",
                          "test_parents_are_distinct_measured_and_of_the_history"]),
        (NeverChooses, ["test_parents_are_distinct_measured_and_of_the_history"]),
        (StopsAtOnce, ["test_stopping_gives_a_reason_or_nothing"]),
    ],
)  # fmt: skip
def test_a_search_that_breaks_the_contract_is_caught(plugin, failing):
    assert broken_tests(SearchContract, plugin) == failing


# --- strategies ---

KERNEL = '// /// kopt\n// [knobs]\n// N = [1, 2]\n// ///\nextern "C" void f() {}\n'


def kernel(source=KERNEL, **more):
    return kopt.Candidate(
        language="cpp", source=source, entry="f",
        **{"knobs": {"N": kopt.Knob(default=1, choices=(1, 2))}, **more},
    )  # fmt: skip


class Strategy:
    def __init__(self):
        self.asked = 0

    @kopt.hookimpl
    def kopt_propose(self, target, parent, history):
        self.asked += 1
        if target.language == "cpp":
            yield from self.propose(parent, history)

    def propose(self, parent, history):
        return [kernel()] if parent is None else []


class AnyLanguage(Strategy):
    @kopt.hookimpl
    def kopt_propose(self):
        return [kernel()]


class NeedsAParent(Strategy):
    def propose(self, parent, history):
        return [parent.candidate.with_values("needy", UNROLL=4)]


class Counts(Strategy):
    def propose(self, parent, history):
        return [kernel(f"{KERNEL}// {self.asked}")]


class Dice(Strategy):
    def propose(self, parent, history):
        return [kernel(f"{KERNEL}// {random.random()}")]


class Twice(Strategy):
    def propose(self, parent, history):
        return [kernel(idea="one"), kernel(idea="two")]


class OtherKnobs(Strategy):
    def propose(self, parent, history):
        return [kernel(knobs={"M": kopt.Knob(default=1, choices=(1,))})]


class UnknownParents(Strategy):
    def propose(self, parent, history):
        return [kernel(parents=("nobody",))]


class Records(Strategy):
    def propose(self, parent, history):
        history.add(records.failed(kernel()))
        return [kernel()] if parent is None else []


class Silent(Strategy):
    def propose(self, parent, history):
        return []


@pytest.mark.parametrize(
    ("plugin", "failing"),
    [
        (Strategy, set()),
        (AnyLanguage, {"test_proposals_are_of_the_target_language",
                       "test_the_first_round_has_no_parent"}),
        (NeedsAParent, {"test_the_first_round_has_no_parent"}),
        (Counts, {"test_proposals_follow_from_the_arguments_alone"}),
        (Dice, {"test_proposals_follow_from_the_arguments_alone"}),
        (Twice, {"test_proposals_are_distinct"}),
        (OtherKnobs, {"test_knobs_are_those_of_the_source"}),
        (UnknownParents, {"test_children_name_known_parents"}),
        (Records, {"test_it_leaves_the_history_as_it_is"}),
        (Silent, {"test_it_proposes_something_somewhere"}),
    ],
)  # fmt: skip
def test_a_strategy_that_breaks_the_contract_is_caught(plugin, failing):
    found = set(broken_tests(StrategyContract, plugin))
    assert failing <= found
    assert bool(found) is bool(failing)


# --- formats ---


class OwnFormat:
    @kopt.hookimpl
    def kopt_load_problem(self, path):
        if path.suffix != ".own":
            return None
        if not path.read_text().startswith("good"):
            raise ProblemError(f"{path}: not good")
        return problems.vector_add(len(path.read_text()))


class GreedyFormat(OwnFormat):
    @kopt.hookimpl
    def kopt_load_problem(self, path):
        return problems.vector_add()


class SilentFormat(OwnFormat):
    @kopt.hookimpl
    def kopt_load_problem(self, path):
        is_good = path.suffix == ".own" and path.read_text().startswith("good")
        return problems.vector_add() if is_good else None


class DrawingFormat(OwnFormat):
    @kopt.hookimpl
    def kopt_load_problem(self, path):
        found = super().kopt_load_problem(path)
        return found and found.model_copy(update={"name": str(random.random())})


class OwnContract(FormatContract):
    def good(self, folder):
        (folder / "a.own").write_text("good")
        return [folder / "a.own"]

    def wrong(self, folder):
        (folder / "b.own").write_text("bad")
        return [folder / "b.own"]


@pytest.mark.parametrize(
    ("plugin", "failing"),
    [
        (OwnFormat, []),
        (GreedyFormat, ["test_it_leaves_foreign_files_to_others",
                        "test_wrong_files_are_refused_with_a_reason"]),
        (SilentFormat, ["test_wrong_files_are_refused_with_a_reason"]),
        (DrawingFormat, ["test_it_reads_its_own_files"]),
    ],
)  # fmt: skip
def test_a_format_that_breaks_the_contract_is_caught(tmp_path, plugin, failing):
    found = []
    for number, name in enumerate(n for n in names(OwnContract) if "file" in n):
        folder = tmp_path / str(number)
        folder.mkdir()
        case = type("Case", (OwnContract,), {"plugin": lambda self: plugin()})()
        try:
            getattr(case, name)(folder)
        except (AssertionError, pytest.fail.Exception):
            found.append(name)
    assert found == failing


# --- profilers and judges ---


class Profiler:
    value = 2.0
    of = None

    @kopt.hookimpl
    def kopt_profile(self, evaluation):
        metric = kopt.Metric(name="launches", value=self.value)
        return kopt.Profile(
            profiler="p", candidate=self.of or evaluation.id, metrics=(metric,) * self.times
        )  # fmt: skip

    times = 1


@pytest.mark.parametrize(
    ("change", "caught"),
    [({}, False), ({"value": float("nan")}, True), ({"of": "another"}, True), ({"times": 2}, True)],
)
def test_a_profiler_that_breaks_the_contract_is_caught(change, caught):
    plugin = type("Changed", (Profiler,), change)
    failing = ["test_a_profile_is_of_that_candidate_and_in_numbers"] if caught else []
    assert broken_tests(ProfilerContract, plugin) == failing


class Judge:
    @kopt.hookimpl
    def kopt_judge(self, profiles):
        return kopt.Diagnosis(judge="j", bottleneck="memory") if profiles else None


class MoodyJudge(Judge):
    @kopt.hookimpl
    def kopt_judge(self):
        return kopt.Diagnosis(judge="j", bottleneck=str(random.random()))


class NeedsProfiles(Judge):
    @kopt.hookimpl
    def kopt_judge(self, profiles):
        return kopt.Diagnosis(judge="j", bottleneck=profiles[0].metrics[0].name)


@pytest.mark.parametrize(
    ("plugin", "caught"), [(Judge, False), (MoodyJudge, True), (NeedsProfiles, True)]
)
def test_a_judge_that_breaks_the_contract_is_caught(plugin, caught):
    failing = ["test_a_diagnosis_has_its_reasons"] if caught else []
    assert broken_tests(JudgeContract, plugin) == failing


# --- what holds for all ---


class Lenient(Strategy):
    class Options(kopt.Options):
        model_config = ConfigDict(extra="ignore")


class Crashing(Strategy):
    @kopt.hookimpl
    def kopt_check(self):
        raise OSError("no compiler")


class NoFix(Strategy):
    @kopt.hookimpl
    def kopt_check(self):
        return [kopt.Check(name="compiler", state="fail", detail="missing")]


@pytest.mark.parametrize(
    ("plugin", "failing"),
    [
        (Lenient, ["test_an_unknown_option_is_refused"]),
        (Crashing, ["test_its_check_answers_and_names_a_next_step"]),
        (NoFix, ["test_its_check_answers_and_names_a_next_step"]),
    ],
)
def test_a_plugin_that_breaks_the_common_contract_is_caught(plugin, failing):
    contract = type("Contract", (PluginContract,), {"role": "strategy"})
    assert broken_tests(contract, plugin) == failing


def test_the_public_names_are_these_and_come_on_first_use():
    assert kopt.testing.__all__ == sorted(kopt.testing.__all__)
    for name in kopt.testing.__all__:
        assert getattr(kopt.testing, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = kopt.testing.Nothing


@pytest.mark.parametrize("module", ["", ".problems", ".records", ".arrays"])
def test_problems_and_records_need_no_pytest_and_no_framework(module):
    code = (
        f"import sys, kopt.testing{module}\n"
        "print(sorted({'pytest', 'torch', 'numpy', 'triton'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"

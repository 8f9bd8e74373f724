"""Candidates of a round: every parent has its turn, and nothing comes twice."""

from __future__ import annotations

from collections.abc import Sequence

import kopt
from kopt.hooks import Hooks
from kopt.model.candidate import Candidate, Edit
from kopt.model.device import Target
from kopt.model.verification import Status
from kopt.stages.judging import Diagnoser
from kopt.stages.proposing import propose
from kopt.testing import problems, records
from kopt.testing.diagnosing import NoTool

TARGET = Target(language="cpp", device=records.cpu())
BODY = 'extern "C" void f() {{ {} }}\n'


def candidate(code: str, **more) -> Candidate:
    return Candidate(language="cpp", source=BODY.format(code), entry="f", **more)


class Scripted:
    """Proposes what it was given for a parent, by the parent's id (None: the first round)."""

    def __init__(self, answers: dict[str | None, Sequence[Candidate]]) -> None:
        self._answers = answers
        self.asked: list[tuple[str | None, int]] = []

    @kopt.hookimpl
    def kopt_propose(self, target, parent, diagnoses):
        self.target = target
        self.asked.append((None if parent is None else parent.id, len(diagnoses)))
        return self._answers.get(None if parent is None else parent.id, [])


def run(*strategies, parents=(None,), past=(), target=TARGET):
    hooks = Hooks.load([], [("strategy", strategy) for strategy in strategies])
    return propose(
        hooks, problems.row_sum(), problems.row_sum_signature(), target,
        [item if isinstance(item, tuple) else (item, []) for item in parents],
        records.history(past),
    )  # fmt: skip


def codes(found):
    return [c.source.removeprefix('extern "C" void f() { ').removesuffix(" }\n") for c in found]


def test_strategies_are_asked_in_the_users_order():
    first = Scripted({None: [candidate("a"), candidate("b")]})
    second = Scripted({None: [candidate("c")]})
    assert codes(run(first, second)) == ["a", "b", "c"]
    assert codes(run(second, first)) == ["c", "a", "b"]


def test_a_candidate_bears_the_name_of_its_strategy_unless_it_has_one():
    own = candidate("a", strategy="mine")
    found = run(Scripted({None: [own, candidate("b")]}))
    assert [c.strategy for c in found] == ["mine", "scripted"]
    assert found[0] == own


def test_parents_take_turns():
    parents = [records.measured(candidate(f"parent {i}"), 2.0) for i in range(3)]
    answers = {
        parents[0].id: [candidate(f"a{i}") for i in range(4)],
        parents[1].id: [candidate("b0")],
        parents[2].id: [candidate(f"c{i}") for i in range(2)],
    }
    found = run(Scripted(answers), parents=parents, past=parents)
    assert codes(found) == ["a0", "b0", "c0", "a1", "c1", "a2", "a3"]


def test_a_parent_that_proposes_a_lot_starves_nobody():
    parents = [records.measured(candidate(f"parent {i}"), 2.0) for i in range(2)]
    answers = {
        parents[0].id: [candidate(f"many {i}") for i in range(100)],
        parents[1].id: [candidate("few 0"), candidate("few 1")],
    }
    found = codes(run(Scripted(answers), parents=parents, past=parents))
    assert found.index("few 1") == 3


def test_what_was_evaluated_is_not_proposed_again():
    known, new = candidate("known"), candidate("new")
    for past in (records.measured(known, 2.0), records.failed(known, Status.COMPILE_ERROR)):
        assert codes(run(Scripted({None: [known, new]}), past=[past])) == ["new"]


def test_what_differs_in_white_space_and_comments_is_the_same():
    known = candidate("int a = 1;")
    again = candidate("/* the same */ int  a=1;\n// really\n")
    assert again.id != known.id
    past = [records.measured(known, 2.0)]
    assert run(Scripted({None: [again]}), past=past) == []
    assert run(Scripted({None: [known, again]})) == [
        known.model_copy(update={"strategy": "scripted"})
    ]


def test_what_differs_in_a_knob_or_a_flag_is_another():
    knobs = {"N": kopt.Knob(default=1, choices=(1, 2))}
    known = candidate("a", knobs=knobs)
    others = [
        known.with_values("tuner", N=2),
        candidate("a", settings={"flags": ["-O1"]}),
        candidate("a  + 1"),
    ]
    found = run(Scripted({None: [known, *others]}), past=[records.measured(known, 1.0)])
    assert [c.id for c in found] == [c.id for c in others]


def test_the_first_of_equal_proposals_stays():
    first = Scripted({None: [candidate("a", strategy="first", idea="one")]})
    second = Scripted({None: [candidate("a", strategy="second", idea="two")]})
    assert [c.strategy for c in run(first, second)] == ["first"]


def test_a_strategy_that_fails_loses_no_other():
    class Broken:
        @kopt.hookimpl
        def kopt_propose(self):
            yield candidate("half")
            raise ValueError("broken")

    assert codes(run(Broken(), Scripted({None: [candidate("a")]}))) == ["a"]


class Finds:
    """A backend that finds one tunable in every source that has a 7."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    @kopt.hookimpl
    def kopt_tunables(self, candidate):
        self.asked.append(candidate.source)
        at = candidate.source.find("7")
        if at < 0:
            return {}
        edit = Edit(start=at, end=at + 1, texts=("7", "8"))
        return {"SEVEN": kopt.Knob(default=7, choices=(7, 8), edits=(edit,))}


def test_a_candidate_that_declares_no_knobs_gets_those_that_are_found():
    declared = candidate("g(7)", knobs={"N": kopt.Knob(default=1, choices=(1, 2))})
    finder = Finds()
    hooks = Hooks.load(
        [],
        [
            ("strategy", Scripted({None: [candidate("f(7)"), candidate("f(6)"), declared]})),
            ("backend", finder),
        ],
    )
    found = propose(
        hooks, problems.row_sum(), problems.row_sum_signature(), TARGET, [(None, [])],
        records.history(()),
    )  # fmt: skip
    assert [list(c.knobs) for c in found] == [["SEVEN"], [], ["N"]]
    assert [c.strategy for c in found] == ["scripted"] * 3
    assert len(finder.asked) == 2
    assert found[0].with_values("tuner", SEVEN=8).text == BODY.format("f(8)")


def test_nothing_is_proposed_by_nobody():
    assert run() == []
    assert run(Scripted({})) == []
    assert run(Scripted({None: [candidate("a")]}), parents=[]) == []


def test_each_parent_comes_with_its_own_diagnoses():
    parents = [records.measured(candidate(f"parent {i}"), 2.0) for i in range(2)]
    advice = kopt.Diagnosis(judge="j", bottleneck="memory")
    strategy = Scripted({})
    run(strategy, parents=[(parents[0], [advice]), (parents[1], [])], past=parents)
    assert strategy.asked == [(parents[0].id, 1), (parents[1].id, 0)]


# --- diagnosing, on which proposing builds ---


class Counter:
    @kopt.hookimpl
    def kopt_profile(self, evaluation):
        metric = kopt.Metric(name="launches", value=3.0)
        return kopt.Profile(profiler="counter", candidate=evaluation.id, metrics=(metric,))


class Opinion:
    @kopt.hookimpl
    def kopt_judge(self, profiles):
        seen = [metric.value for profile in profiles for metric in profile.metrics]
        return kopt.Diagnosis(judge="opinion", bottleneck="launches", evidence=(str(seen),))


def test_judges_see_the_profiles():
    parent = records.measured(candidate("a"), 2.0)

    def diagnosed(*plugins):
        hooks = Hooks.load([], list(plugins))
        diagnoser = Diagnoser(
            hooks, problems.row_sum(), problems.row_sum_signature(), records.cpu(),
            lambda parent: NoTool(),
        )  # fmt: skip
        return diagnoser.diagnose(parent, records.history([parent]))

    (with_profile,) = diagnosed(("profiler", Counter()), ("judge", Opinion()))
    assert with_profile.evidence[0].endswith("3.0]")
    (without,) = diagnosed(("judge", Opinion()))
    assert "3.0" not in without.evidence[0]
    assert diagnosed(("profiler", Counter())) == []


def test_a_parents_children_are_wanted_in_its_language_where_the_run_builds_it():
    target = TARGET.model_copy(update={"beside": ("acme",)})
    for language, wanted in [
        ("cpp", ("cpp", ("acme",))),
        ("acme", ("acme", ("cpp",))),
        ("torch", ("cpp", ("acme",))),
    ]:
        parent = records.measured(Candidate(language=language, source="s", entry="f"), 2.0)
        strategy = Scripted({})
        run(strategy, parents=[parent], past=[parent], target=target)
        assert (strategy.target.language, strategy.target.beside) == wanted

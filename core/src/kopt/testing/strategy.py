"""What a strategy has to do (needs pytest)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from kopt.hooks import Hooks
from kopt.model.candidate import Candidate
from kopt.model.device import Device, Target
from kopt.model.diagnosis import Diagnosis
from kopt.model.evaluation import Evaluation
from kopt.model.kernel_file import header_of, parse_kernel
from kopt.model.problem import Problem, Signature
from kopt.model.verification import Status
from kopt.testing import problems, records
from kopt.testing.plugin import PluginContract

_KERNEL = """\
// /// kopt
// entry = "row_sum"
// arguments = ["x", "out", "x.shape[0]", "x.shape[1]"]
// [knobs]
// UNROLL = {default = 1, choices = [1, 2, 4]}
// ///
#include <cstdint>
extern "C" void row_sum(const float* x, float* out, int64_t rows, int64_t cols) {
    for (int64_t i = 0; i < rows; ++i) {
        double total = 0.0;
        for (int64_t j = 0; j < cols; ++j) total += x[i * cols + j];
        out[i] = static_cast<float>(total);
    }
}
"""


@dataclass(frozen=True)
class StrategyCase:
    """One situation in which a strategy is asked."""

    problem: Problem
    signature: Signature
    device: Device
    parent: Evaluation | None = None
    past: tuple[Evaluation, ...] = ()
    """What was evaluated before; the parent is among it."""
    diagnoses: tuple[Diagnosis, ...] = field(default=())


def a_parent() -> Evaluation:
    """Return a measured C++ kernel of the row sum with one knob, as a round's parent."""
    return records.measured(parse_kernel(_KERNEL, "cpp", strategy="user"), 2.0)


class StrategyContract(PluginContract):
    """A strategy proposes by its arguments alone, for the target that it is asked for.

    :cvar languages: what it may be asked for.
    :cvar proposes: whether at least one of ``cases`` must lead to a proposal.
    """

    role: ClassVar[str] = "strategy"
    languages: ClassVar[tuple[str, ...]] = ("cpp", "triton", "torch")
    proposes: ClassVar[bool] = True

    def cases(self) -> Sequence[StrategyCase]:
        """Return the situations to ask in: by default two tiny problems, first and later rounds."""
        parent = a_parent()
        past = (
            parent,
            records.failed(parent.candidate.with_values("test", UNROLL=2), Status.WRONG),
        )
        row_sum, total = problems.row_sum(), problems.row_sum_signature()
        add, addition = problems.vector_add(), problems.vector_add_signature()
        advice = Diagnosis(judge="test", bottleneck="memory", headroom=1.5)
        return [
            case
            for device in (records.cpu(), records.gpu())
            for case in (
                StrategyCase(row_sum, total, device),
                StrategyCase(add, addition, device),
                StrategyCase(row_sum, total, device, parent, past),
                StrategyCase(row_sum, total, device, parent, past[:1], (advice,)),
            )
        ]

    def ask(
        self, hooks: Hooks, case: StrategyCase, language: str, beside: tuple[str, ...] = ()
    ) -> list[Candidate]:
        """Return the proposals of one case; a plugin that raised fails the test."""
        target = Target(language=language, beside=beside, device=case.device)
        proposed = hooks.kopt_propose(
            case.problem, case.signature, target,
            case.parent, case.diagnoses, records.history(case.past),
        )  # fmt: skip
        assert hooks.failures == []
        return [candidate for _, candidate in proposed]

    def situations(self) -> list[tuple[StrategyCase, str]]:
        """Return every case in every language; a parent is of the target's language."""
        return [
            (case, language)
            for case in self.cases()
            for language in self.languages
            if case.parent is None or case.parent.candidate.language == language
        ]

    def test_it_proposes_something_somewhere(self) -> None:
        """A strategy that never proposes does nothing."""
        if self.proposes:
            assert any(self.ask(self.hooks(), *situation) for situation in self.situations())

    def test_the_first_round_has_no_parent(self) -> None:
        """It is asked with ``parent`` None and an empty history, for any language at all."""
        for case in self.cases():
            if case.parent is None:
                for language in (*self.languages, "a language of the future"):
                    for candidate in self.ask(self.hooks(), case, language):
                        assert candidate.language == language

    def test_proposals_are_of_the_target_language(self) -> None:
        """Another language's kernel could not be built in this run."""
        for case, language in self.situations():
            found = {c.language for c in self.ask(self.hooks(), case, language)}
            assert found <= {language}

    def test_languages_beside_the_target_are_welcome_too(self) -> None:
        """Where a run builds further languages a proposal may be in one of them, in no other."""
        for case, language in self.situations():
            beside = tuple(each for each in self.languages if each != language)
            found = {c.language for c in self.ask(self.hooks(), case, language, beside)}
            assert found <= {language, *beside}

    def test_proposals_follow_from_the_arguments_alone(self) -> None:
        """A used instance proposes as a new one does: a resumed run asks again."""
        used = self.hooks()
        situations = self.situations()
        for situation in [*situations, *reversed(situations)]:
            new = [candidate.id for candidate in self.ask(self.hooks(), *situation)]
            assert [candidate.id for candidate in self.ask(used, *situation)] == new

    def test_proposals_are_distinct(self) -> None:
        """The same kernel twice is evaluated once at most."""
        for situation in self.situations():
            ids = [candidate.id for candidate in self.ask(self.hooks(), *situation)]
            assert len(set(ids)) == len(ids)

    def test_knobs_are_those_of_the_source(self) -> None:
        """The kernel that is exported, a file, has to say what the candidate says."""
        for situation in self.situations():
            for candidate in self.ask(self.hooks(), *situation):
                assert set(candidate.chosen) == set(candidate.knobs)
                if header_of(candidate.source):
                    read = parse_kernel(candidate.source, candidate.language, entry=candidate.entry)
                    assert (read.knobs, read.entry) == (candidate.knobs, candidate.entry)
                    assert read.settings == candidate.settings

    def test_children_name_known_parents(self) -> None:
        """Lineage leads to what was evaluated, and never to the child itself."""
        for case, language in self.situations():
            known = {evaluation.id for evaluation in case.past}
            for candidate in self.ask(self.hooks(), case, language):
                assert set(candidate.parents) <= known
                assert candidate.id not in candidate.parents

    def test_it_leaves_the_history_as_it_is(self) -> None:
        """Recording is the session's business."""
        for case, language in self.situations():
            history = records.history(case.past)
            before = [evaluation.id for evaluation in history]
            self.hooks().kopt_propose(
                case.problem, case.signature, Target(language=language, device=case.device),
                case.parent, case.diagnoses, history,
            )  # fmt: skip
            assert [evaluation.id for evaluation in history] == before

"""All that one call of the strategy works with, and the prompts' facts that follow from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kopt.model.kernel_file import is_python, settled_source
from kopt_rewrite.knowledge import Query, Text, features_of, load, retrieve
from kopt_rewrite.outcomes import measured_lines
from kopt_rewrite.rendering import Prompt, render
from kopt_rewrite.replies import Wanted
from kopt_rewrite.situation import copy_line, facts_of, parameters

if TYPE_CHECKING:
    from kopt.model.candidate import Candidate
    from kopt.model.completion import CompletionRequest, LanguageModel
    from kopt.model.device import Device, Target
    from kopt.model.evaluation import Evaluation
    from kopt.model.history import History
    from kopt.model.problem import Problem, Signature
    from kopt_rewrite.options import RewriteOptions


@dataclass(frozen=True)
class Round:
    """One call: its arguments and what was made of them."""

    problem: Problem
    signature: Signature
    target: Target
    history: History
    options: RewriteOptions
    facts: Mapping[str, object]
    texts: tuple[Text, ...]

    @classmethod
    def of(
        cls, problem: Problem, signature: Signature, target: Target, history: History,
        options: RewriteOptions,
    ) -> Round:  # fmt: skip
        """Return the round of a call's arguments. Raises PluginError for a broken knowledge file."""
        texts = tuple(load(options.knowledge)) if options.knowledge_texts else ()
        facts = facts_of(problem, signature, target)
        return cls(problem, signature, target, history, options, facts, texts)

    def prompt(self, name: str, **more: object) -> Prompt:
        """Return a prompt within the options' budget. Raises PluginError where it cannot be."""
        return render(name, {**self.facts, **more}, self.options.prompt_tokens)

    def knowledge(self, bottlenecks: Sequence[str] = ()) -> list[Text]:
        """Return the texts that fit the problem and what limits a kernel."""
        query = Query(
            self.target.language, self.target.device, bottlenecks, features_of(self.signature)
        )
        return retrieve(self.texts, query, self.options.knowledge_texts)

    def kernel(self, evaluation: Evaluation) -> dict[str, object]:
        """Return what prompts tell of a kernel."""
        return kernel_facts(evaluation, self.signature, self.target.device)

    def wanted(self, parent: Candidate | None = None, source: str = "") -> Wanted:
        """Return what replies are read for."""
        return Wanted(self.target.language, parent, source, tuple(parameters(self.signature)))


@dataclass(frozen=True)
class Asker:
    """A round, and the model that it asks."""

    round: Round
    llm: LanguageModel
    told: set[str]
    """Requests of which the model was told what their answers are."""
    open: list[CompletionRequest] = field(default_factory=list)
    """First kernels that were asked for and have not been answered yet."""


def kernel_facts(evaluation: Evaluation, signature: Signature, device: Device) -> dict[str, object]:
    """Return what prompts tell of a kernel: its file as it was measured, and its figures."""
    lines = measured_lines(evaluation)
    copied = copy_line(signature, device)
    return {
        "source": settled_source(evaluation.candidate),
        "fence": fence_of(evaluation.candidate),
        "measured": [*lines, copied] if lines and copied else lines,
    }


def fence_of(candidate: Candidate) -> str:
    """Return the word after the fence of a source."""
    return "python" if is_python(candidate.source, candidate.language) else candidate.language

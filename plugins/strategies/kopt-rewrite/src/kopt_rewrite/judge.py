"""A judge that is a language model: it adds to what rules found, and can contradict no measurement.

Its opinion is a diagnosis of its own beside the other judges'. It may cite metrics by name only;
their values come from the profiles. What it says with a figure that was not measured is left out,
and it predicts no gain and no headroom: those are for judges that can compute them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field

import kopt
from kopt.model.completion import Completion, CompletionRequest, ExpectedCalls
from kopt.model.device import Target
from kopt.model.diagnosis import Diagnosis, Finding
from kopt.model.metrics import CALL_METRICS, KERNEL_METRICS
from kopt.model.verification import Status
from kopt_rewrite.expecting import expected_diagnoses
from kopt_rewrite.ideas import objects_in, one_line
from kopt_rewrite.knowledge import load
from kopt_rewrite.rendering import number, render
from kopt_rewrite.round import kernel_facts
from kopt_rewrite.situation import facts_of

if TYPE_CHECKING:
    from kopt.model.budget import Budget
    from kopt.model.completion import LanguageModel
    from kopt.model.device import Device
    from kopt.model.diagnosis import Profile
    from kopt.model.evaluation import Evaluation
    from kopt.model.history import History
    from kopt.model.problem import Problem, Signature
    from kopt_rewrite.rendering import Prompt

NAME = "llm"
_NAME = re.compile(r"[a-z0-9][a-z0-9\-]{1,39}")
_FIGURE = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?", re.IGNORECASE)
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_SMALL = 4
"""Whole numbers up to it are words, as in "two loops"."""
_MOST_METRICS = 80

Values = dict[str, dict[str, float]]
"""Metrics by name, by kernel; those of the call under an empty name."""


class ModelJudge:
    """Asks a language model what limits a kernel."""

    needs_llm = True

    class Options(kopt.Options):
        """How much is asked and said."""

        findings: int = Field(default=3, ge=1, le=8)
        """At most so many are taken."""
        prompt_tokens: int = Field(default=16_000, ge=1_000, le=1_000_000)
        """Of the prompt, estimated."""
        answer_tokens: int = Field(default=2_048, ge=256, le=100_000)

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or self.Options()
        self._told: set[str] = set()

    @kopt.hookimpl
    def kopt_judge(
        self,
        problem: Problem,
        signature: Signature,
        evaluation: Evaluation,
        profiles: Sequence[Profile],
        device: Device,
        history: History,
        diagnoses: Sequence[Diagnosis],
        llm: LanguageModel | None,
    ) -> Diagnosis | None:
        """Return what a model reads from the profiles; None without a model or without metrics."""
        values = _values(profiles)
        if llm is None or evaluation.status is not Status.CORRECT or not signature.workloads:
            return None
        if not values:
            return None
        request = self._request(problem, signature, evaluation, device, values, diagnoses)
        [answer] = llm.complete([request])
        if not isinstance(answer, Completion):
            return None
        found = read_findings(answer.text, values)[: self.options.findings]
        if request.id not in self._told:
            self._told.add(request.id)
            llm.was(request, "diagnosis" if found else "no-diagnosis", usable=bool(found))
        if not found:
            return None
        first = found[0]
        return Diagnosis(
            judge=NAME, bottleneck=first.bottleneck, evidence=first.evidence, findings=tuple(found),
            advice=first.moves,
        )  # fmt: skip

    @kopt.hookimpl
    def kopt_expect(
        self, problem: Problem, signature: Signature, target: Target, budget: Budget, others: int
    ) -> Iterable[ExpectedCalls]:
        """Return the requests of a run of the usual length, with the prompt's real size."""
        if not signature.workloads:
            return []
        kernel = {"source": "", "fence": ""}
        prompt = self._prompt(facts_of(problem, signature, target), kernel, {}, ())
        asked, most, answer = (
            self.options.findings, self.options.prompt_tokens, self.options.answer_tokens,
        )  # fmt: skip
        return [expected_diagnoses(prompt, most, asked, answer, budget, others)]

    def _prompt(
        self, facts: Mapping[str, object], kernel: Mapping[str, object], values: Values,
        diagnoses: Sequence[Diagnosis],
    ) -> Prompt:  # fmt: skip
        known = sorted({name for text in load(()) for name in text.bottlenecks})
        more = {"kernel": kernel, "metrics": _shown(values), "bottlenecks": known,
                "count": self.options.findings, "diagnoses": list(diagnoses)}  # fmt: skip
        return render("judge", {**facts, **more}, self.options.prompt_tokens)

    def _request(
        self, problem: Problem, signature: Signature, evaluation: Evaluation, device: Device,
        values: Values, diagnoses: Sequence[Diagnosis],
    ) -> CompletionRequest:  # fmt: skip
        language = evaluation.candidate.language
        facts = facts_of(problem, signature, Target(language=language, device=device))
        kernel = kernel_facts(evaluation, signature, device)
        prompt = self._prompt(facts, kernel, values, diagnoses)
        return CompletionRequest(
            messages=prompt.messages, role="analysis", purpose="diagnosis",
            max_tokens=self.options.answer_tokens,
        )  # fmt: skip


def read_findings(text: str, values: Values) -> list[Finding]:
    """Return what an answer says that the metrics bear out; [] where that is nothing. Never raises.

    A finding needs one metric at least that was measured; others that it cites are left out, and
    so is each sentence with a figure that was not.
    """
    found: dict[tuple[str, str], Finding] = {}
    for item in objects_in(text):
        finding = _finding(item, values)
        if finding is not None:
            found.setdefault((finding.bottleneck, finding.kernel), finding)
    return list(found.values())


def _finding(item: Mapping[str, Any], values: Values) -> Finding | None:
    bottleneck = one_line(item.get("bottleneck"), 40).lower().replace(" ", "-").replace("_", "-")
    kernel = one_line(item.get("kernel"), 200)
    kernel = kernel if kernel in values else ""
    evidence = tuple(_evidence(item.get("metrics"), kernel, values))
    if not _NAME.fullmatch(bottleneck) or not evidence:
        return None
    measured = [value for metrics in values.values() for value in metrics.values()]
    moves = item.get("moves")
    listed = [one_line(move, 160) for move in moves[:6]] if isinstance(moves, list) else []
    return Finding(
        bottleneck=bottleneck, kernel=kernel, evidence=evidence,
        explanation=_borne_out(one_line(item.get("explanation"), 600), measured),
        moves=tuple(each for each in (_borne_out(move, measured) for move in listed) if each),
        source="a language model, on metrics that were measured",
    )  # fmt: skip


def _evidence(names: object, kernel: str, values: Values) -> Iterable[str]:
    if not isinstance(names, list):
        return
    for name in dict.fromkeys(each for each in names[:12] if isinstance(each, str)):
        places = [kernel, "", *values] if kernel else ["", *values]
        place = next((each for each in places if name in values.get(each, {})), None)
        if place is not None:
            yield f"{name} = {_with_unit(name, values[place][name])}"


def _borne_out(text: str, measured: Sequence[float]) -> str:
    """Return the sentences of a text without a figure that was not measured."""
    kept = [s for s in _SENTENCE.split(text) if all(_known(f, measured) for f in _figures(s))]
    return " ".join(kept).strip()


def _figures(sentence: str) -> list[float]:
    return [float(each.replace(",", "")) for each in _FIGURE.findall(sentence)]


def _known(figure: float, measured: Sequence[float]) -> bool:
    if figure.is_integer() and figure <= _SMALL:
        return True
    return any(
        math.isclose(figure, value, rel_tol=0.01, abs_tol=0.006) or round(value) == figure
        for value in measured
    )


def _values(profiles: Sequence[Profile]) -> Values:
    """Return what profilers measured; of a metric that several have, the first one's."""
    found: Values = {}
    for profile in profiles:
        for name, metrics in [
            ("", profile.metrics),
            *((k.name, k.metrics) for k in profile.kernels),
        ]:
            for metric in metrics:
                found.setdefault(name, {}).setdefault(metric.name, metric.value)
    return found


def _shown(values: Values) -> list[dict[str, object]]:
    parts: list[dict[str, object]] = []
    for kernel, metrics in values.items():
        lines = [_described(name, value) for name, value in list(metrics.items())[:_MOST_METRICS]]
        title = f"Of the kernel {one_line(kernel, 120)}" if kernel else "Of the whole call"
        parts.append({"title": title, "lines": lines})
    return parts


def _described(name: str, value: float) -> str:
    info = CALL_METRICS.get(name) or KERNEL_METRICS.get(name)
    meaning = f" ({info.meaning})" if info else ""
    return f"{one_line(name, 80)} = {_with_unit(name, value)}{meaning}"


def _with_unit(name: str, value: float) -> str:
    info = CALL_METRICS.get(name) or KERNEL_METRICS.get(name)
    return f"{number(value)} {info.unit}".rstrip() if info else number(value)

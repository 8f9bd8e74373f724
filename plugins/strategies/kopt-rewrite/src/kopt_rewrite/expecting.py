"""What a run would ask of a language model, before anything is asked."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kopt.metering import estimated_tokens
from kopt.model.completion import ExpectedCalls
from kopt_rewrite.options import RewriteOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kopt.model.budget import Budget
    from kopt_rewrite.rendering import Prompt
    from kopt_rewrite.round import Round

ROUNDS = 4
"""Of improvements, where no number of trials is set."""
_MOST_ROUNDS = 100
_FAILING = 0.5
"""Part of the candidates that are assumed to need a repair."""
_KERNEL = 2_000
"""Tokens of a kernel that is not written yet."""
_EVIDENCE = 800
_DIAGNOSIS = 1_200
_METRICS = 1_000
_FINDING = 200
"""Tokens of one finding of a judge."""


def expected_calls(round_: Round, budget: Budget, others: int) -> Iterator[ExpectedCalls]:
    """Yield the requests by role: prompts as they are for this problem, kernels of usual length.

    Answers count with what is usual, not with the most that they may have.

    :param others: candidates of other strategies for the first round; first kernels are asked for
        only where there are none.
    """
    options = round_.options
    knowledge = round_.knowledge()
    prompt = round_.prompt("first", attempt=1, knowledge=knowledge)
    first = estimated_tokens(len(prompt.text))
    later = min(first + _KERNEL + _DIAGNOSIS, options.prompt_tokens)
    attempts = 0 if others else options.attempts
    rounds = _rounds(options, budget.trials, others or attempts)
    code = min(_KERNEL, options.code_tokens)
    said = f"{rounds} rounds of improvements"
    analyses = math.ceil(rounds * options.width / options.ideas)
    written = rounds * options.width
    if attempts:
        yield ExpectedCalls(
            role="code", calls=attempts, input_tokens=first, output_tokens=code,
            basis=f"{attempts} first kernels",
        )  # fmt: skip
    yield ExpectedCalls(
        role="analysis", calls=analyses, input_tokens=later,
        output_tokens=min(1_000, options.analysis_tokens),
        basis=f"{said}, {options.ideas} ideas at a time",
    )  # fmt: skip
    yield ExpectedCalls(
        role="code", calls=written, input_tokens=later, output_tokens=code,
        basis=f"{said}, {options.width} ideas each",
    )  # fmt: skip
    if options.repairs:
        yield ExpectedCalls(
            role="repair", calls=math.ceil(_FAILING * (attempts + written)),
            input_tokens=min(first + _KERNEL + _EVIDENCE, options.prompt_tokens),
            output_tokens=code, basis="every second kernel fails once",
        )  # fmt: skip
    if options.reflect and analyses > 1:
        yield ExpectedCalls(
            role="reflection", calls=analyses - 1, input_tokens=_EVIDENCE + _DIAGNOSIS,
            output_tokens=min(400, options.analysis_tokens), basis="before each further analysis",
        )  # fmt: skip


def expected_diagnoses(
    prompt: Prompt, most: int, findings: int, answer: int, budget: Budget, others: int
) -> ExpectedCalls:
    """Return the requests of a judge: one for the parent of each round, each time a new one.

    Their number goes by the usual options of ``rewrite``: a judge does not know who proposes.

    :param prompt: without a kernel, its metrics and other judges' diagnoses.
    :param most: tokens that a prompt may have; ``answer``: those of an answer.
    :param findings: how many are asked for.
    :param others: candidates of strategies without a model for the first round.
    """
    options = RewriteOptions()
    rounds = _rounds(options, budget.trials, others or options.attempts)
    tokens = estimated_tokens(len(prompt.text)) + _KERNEL + _METRICS + _DIAGNOSIS
    return ExpectedCalls(
        role="analysis", calls=rounds, input_tokens=min(tokens, most),
        output_tokens=min(_FINDING * findings, answer),
        basis=f"{rounds} rounds of improvements, one new kernel to judge in each",
    )  # fmt: skip


def _rounds(options: RewriteOptions, trials: int | None, first: int) -> int:
    """Return how many rounds of improvements a number of trials makes after the first candidates."""
    if trials is None:
        return ROUNDS
    left = max(0, trials - first)
    return min(_MOST_ROUNDS, math.ceil(left / (options.width * (1 + _FAILING))))

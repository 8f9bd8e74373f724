"""A strategy that proposes hand-written kernels, with knobs, for operators that it recognises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, field_validator

import kopt
from kopt.logs import get_logger
from kopt_starters.families import FAMILIES
from kopt_starters.graph import Graph
from kopt_starters.operators import OPERATORS
from kopt_starters.recognition import recognise
from kopt_starters.rendering import render
from kopt_starters.unmatched import unmatched

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kopt.model.candidate import Candidate
    from kopt.model.device import Target
    from kopt.model.evaluation import Evaluation
    from kopt.model.problem import Problem, Signature
    from kopt_starters.family import Family

__all__ = ["Starters"]

_log = get_logger(__name__)

_ASKED_FOR_ONLY = frozenset({"products", "attention"})
"""Families whose CUDA C++ is for those who ask for it: such products took 2.3 to 2.8 times as long as
cuBLAS (``benchmarks/results/h200-starters-cuda-table4.json``), and attention was not timed yet."""
_BEFORE_OPERATORS = frozenset({"reductions-cuda"})
"""Families whose kernels read long rows once, where those of known operators read them twice."""
OperatorName = Literal["layer_norm", "rms_norm", "softmax", "sum"]


class Starters:
    """Opens a run with one kernel per structure that suits the operator, its shape and the device."""

    class Options(kopt.Options):
        """What may be proposed."""

        operators: tuple[OperatorName, ...] = Field(
            default=("layer_norm", "rms_norm", "softmax", "sum"), min_length=1
        )
        """The operators to look for."""
        families: tuple[str, ...] | None = None
        """The families of kernels to ask, by name; all of them unless given."""
        structures: int = Field(default=4, gt=0)
        """Structures to propose at most, the most promising first."""

        @field_validator("families")
        @classmethod
        def _known(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
            known = [family.name for family in FAMILIES]
            if unknown := sorted(set(names or ()) - set(known)):
                raise ValueError(
                    f"no family {unknown[0]!r}; there are {', '.join(known) or 'none'}"
                )
            return names

    def __init__(self, options: Options) -> None:
        self.options = options

    @kopt.hookimpl
    def kopt_propose(
        self, problem: Problem, signature: Signature, target: Target, parent: Evaluation | None
    ) -> Iterable[Candidate]:
        """Propose starting kernels in the first round; a warning names what is not recognised."""
        if parent is not None or problem.mutates:
            return []
        found = self._kernels(signature, target, self._asked())
        found[1:1] = self._beside(signature, target)
        found = found[: self.options.structures]
        if not found:
            _log.warning("no_starter", language=target.language, why=self._why(signature, target))
        return found

    def _kernels(
        self, signature: Signature, target: Target, families: Iterable[Family]
    ) -> list[Candidate]:
        parted: tuple[list[Family], list[Family]] = ([], [])
        for family in families:
            parted[family.name not in _BEFORE_OPERATORS].append(family)
        before, after = (self._family_kernels(signature, target, part) for part in parted)
        return [*before, *self._operator_kernels(signature, target), *after]

    def _beside(self, signature: Signature, target: Target) -> list[Candidate]:
        """Return the best kernel in each of the run's further languages."""
        families = [family for family in self._asked() if family.name not in _ASKED_FOR_ONLY]
        others = (target.model_copy(update={"language": each}) for each in target.beside)
        found = (self._kernels(signature, other, families)[:1] for other in others)
        return [kernel for kernels in found for kernel in kernels]

    def _why(self, signature: Signature, target: Target) -> str:
        graph = Graph.of(signature.first)
        if graph is None:
            return "the operators of the reference could not be followed"
        if target.language != "triton":
            return (
                f"most kernels are in triton; the README of kopt-starters lists those in {target.language}"
                + (", which are for float32" if target.language == "cpp" else "")
            )
        names = unmatched(graph, self._asked(), target)
        if names:
            return f"not known: {', '.join(names)}"
        return f"each of the {len(graph.nodes)} operators is known, but not all of them together"

    def _asked(self) -> list[Family]:
        wanted = self.options.families
        return [family for family in FAMILIES if wanted is None or family.name in wanted]

    def _operator_kernels(self, signature: Signature, target: Target) -> list[Candidate]:
        operators = [found for found in OPERATORS if found.name in self.options.operators]
        task = recognise(signature, operators)
        if task is None:
            return []
        fitting = task.operator.fitting(target.language, task.layout(target.device))
        rendered = (render(structure, task, target.device) for structure in fitting)
        return [kernel for kernel in rendered if kernel is not None]

    def _family_kernels(
        self, signature: Signature, target: Target, families: Iterable[Family]
    ) -> Iterator[Candidate]:
        """Yield what families write for the first workload; others may be refused by a kernel."""
        graph = Graph.of(signature.first)
        if graph is None:
            return
        for family in families:
            yield from family.propose(graph, target)

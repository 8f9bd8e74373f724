"""Smaller sizes of a problem, for where a kernel is interpreted instead of run."""

from __future__ import annotations

from itertools import chain

from kopt.errors import ProblemError
from kopt.model.expressions import evaluate
from kopt.model.problem import InputSpec, Problem, Signature, Workload

MOST_ELEMENTS = 1 << 17
"""Elements of all inputs of a workload above which an interpreter takes minutes."""
_UNITS = (64, 32, 16, 8)


def interpretable(problem: Problem) -> Problem:
    """Return the problem at sizes that an interpreter manages; itself where it already is, or
    where its inputs are made by its own code.

    Workloads that are small enough stay as they are, and then the others are left out. Where none
    is, every size and every number in a shape is made smaller, by one rule for the whole problem:
    equal ones stay equal, different ones different and in order, powers of two powers of two, and
    others keep their remainder (of 32, or less where a problem has many dimensions).
    Raises ProblemError where no such sizes are small enough.
    """
    if not problem.inputs:
        return problem
    small = [w for w in problem.workloads if _elements(problem.inputs, w) <= MOST_ELEMENTS]
    if len(small) == len(problem.workloads):
        return problem
    if small:
        return _with(problem, problem.inputs, small)
    for unit in _UNITS:
        inputs, workloads = _reduced(problem, _rule(_extents(problem), unit))
        if all(_elements(inputs, workload) <= MOST_ELEMENTS for workload in workloads):
            return _with(problem, inputs, workloads)
    raise too_large(problem.name, max(_elements(problem.inputs, w) for w in problem.workloads))


def refuse_large(problem: Problem, signature: Signature) -> None:
    """Raise ProblemError where an interpreter would take too long for what the reference runs on."""
    for workload in signature.workloads.values():
        tensors = [a.tensor for a in workload.arguments if a.tensor is not None]
        elements = sum(tensor.elements for tensor in tensors)
        if elements > 8 * MOST_ELEMENTS:
            raise too_large(problem.name, elements)


def too_large(name: str, elements: int) -> ProblemError:
    """Return the error for a problem whose sizes cannot be made smaller here."""
    return ProblemError(
        f"{name} has inputs of {elements:.2g} elements, too many for Triton's interpreter, and "
        "their sizes cannot be reduced automatically; make a copy of the problem with smaller "
        "sizes (about 256x256) and verify against that, or use a machine with a GPU"
    )


def sizes_text(problem: Problem) -> str:
    """Return a problem's sizes in words, as ``rows=96, cols=96``; shapes where it names none."""
    if any(workload.sizes for workload in problem.workloads):
        return " and ".join(
            ", ".join(f"{name}={size}" for name, size in workload.sizes.items())
            for workload in problem.workloads
        )
    shapes = ((spec.name, spec.shape) for spec in problem.inputs if spec.shape is not None)
    return ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in shapes)


def _elements(inputs: tuple[InputSpec, ...], workload: Workload) -> int:
    total = 0
    for spec in inputs:
        if spec.shape is None:
            continue
        count = 1
        for extent in spec.shape:
            count *= extent if isinstance(extent, int) else evaluate(extent, workload.sizes)
        total += count
    return total


def _extents(problem: Problem) -> set[int]:
    """Return every size and every number in a shape."""
    sizes = chain.from_iterable(workload.sizes.values() for workload in problem.workloads)
    shapes = chain.from_iterable(spec.shape or () for spec in problem.inputs)
    return {*sizes, *(extent for extent in shapes if isinstance(extent, int))}


def _rule(extents: set[int], unit: int) -> dict[int, int]:
    """Return each extent's smaller one; those below twice ``unit`` stay."""
    rule: dict[int, int] = {}
    last = 0
    for extent in sorted(extents):
        smaller = extent if extent < 2 * unit else _smaller(extent, unit, above=last)
        rule[extent] = last = smaller
    return rule


def _smaller(extent: int, unit: int, *, above: int) -> int:
    if _power_of_two(extent):
        while unit <= above:
            unit *= 2
        return unit
    step = unit // 2
    smaller = unit + step + extent % step
    while smaller <= above or _power_of_two(smaller):
        smaller += step
    return smaller


def _power_of_two(number: int) -> bool:
    return number & (number - 1) == 0


def _reduced(
    problem: Problem, rule: dict[int, int]
) -> tuple[tuple[InputSpec, ...], list[Workload]]:
    inputs = tuple(
        spec if spec.shape is None else spec.model_copy(
            update={"shape": tuple(rule.get(e, e) if isinstance(e, int) else e for e in spec.shape)}
        )
        for spec in problem.inputs
    )  # fmt: skip
    workloads: dict[str, Workload] = {}
    for workload in problem.workloads:
        sizes = {name: rule[size] for name, size in workload.sizes.items()}
        name = "x".join(map(str, sizes.values())) or "reduced"
        workloads[name] = workload.model_copy(update={"name": name, "sizes": sizes})
    return inputs, list(workloads.values())


def _with(problem: Problem, inputs: tuple[InputSpec, ...], workloads: list[Workload]) -> Problem:
    """Return the problem with other sizes, none of which is going to be timed."""
    first = workloads[0].model_copy(update={"role": "measure"})  # one has to have that role
    return problem.model_copy(update={"inputs": inputs, "workloads": (first, *workloads[1:])})

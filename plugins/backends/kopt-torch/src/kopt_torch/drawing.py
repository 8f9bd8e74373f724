"""Drawing arguments: by a problem's input specs, or by its own ``get_inputs``, from a seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from kopt.errors import ProblemError
from kopt.model.expressions import evaluate
from kopt_torch.domains import Domain, infer, look_at
from kopt_torch.ordered import in_order, sorted_rows
from kopt_torch.sharp import SHARPER, randomised, sharpened, within_bounds
from kopt_torch.source import as_problem_error
from kopt_torch.tensors import DTYPES

if TYPE_CHECKING:
    from collections.abc import Callable

    from kopt.model.problem import InputSpec, Problem, Workload
    from kopt_torch.sharp import Spread
    from kopt_torch.source import ReferenceFunction


_LOOKS = (0, 1)
"""Seeds of the two draws by which inputs are known."""


class Draw:
    """Arguments of one call, in order, as fresh tensors and scalars."""

    def __init__(self, names: list[str], values: list[Any], keywords: dict[str, Any]) -> None:
        self.names = names
        self.values = values
        self.keywords = keywords

    def tensors(self) -> list[tuple[str, torch.Tensor]]:
        """Return every tensor by name, those in lists and mappings too."""
        found: list[tuple[str, torch.Tensor]] = []
        for name, value, _ in self.named():
            _walk(name, value, lambda n, v: found.append((n, v)))
        return found

    def change(self, change: Callable[[str, torch.Tensor], torch.Tensor]) -> None:
        """Put what ``change`` returns in every tensor's place, in lists and mappings too."""
        pairs = zip(self.names, self.values, strict=True)
        self.values = [_walk(name, value, change) for name, value in pairs]
        self.keywords = {name: _walk(name, v, change) for name, v in self.keywords.items()}

    def named(self) -> list[tuple[str, Any, bool]]:
        """Return (name, value, whether by keyword) of every argument."""
        positional = [(n, v, False) for n, v in zip(self.names, self.values, strict=True)]
        return positional + [(n, v, True) for n, v in self.keywords.items()]


class Drawer:
    """Draws for one reference, and knows what its inputs have in common."""

    def __init__(self, problem: Problem, function: ReferenceFunction) -> None:
        self._problem, self._function = problem, function
        self._domains: dict[str, Domain] | None = None
        self._spread: Spread = "signed"
        self.searched: frozenset[str] = frozenset()
        """Names of what the reference searches in: sorted, unless the problem's own code drew it."""

    def draw(self, problem: Problem, workload: Workload, seed: int, distribution: str) -> Draw:
        """Draw the arguments of one call on the reference's device. Raises ProblemError."""
        if problem.inputs:
            drawn = _from_specs(problem, self._function, workload, seed, distribution)
            return in_order(drawn, self.searched)
        drawn = _from_file(problem, self._function, seed)
        if distribution != "native":
            generator = torch.Generator(device=self._function.device).manual_seed(seed)
            domains = self._known_domains()
            drawn.change(
                lambda name, value: value if name not in domains else sharpened(
                    value, domains[name], distribution, self._spread, generator
                )
            )  # fmt: skip
            drawn = in_order(drawn, self.searched)
        return drawn

    def state(self, seed: int, distribution: str) -> dict[str, torch.Tensor]:
        """Return the module's state; on all but ``native`` it is random."""
        state = self._function.state
        if distribution == "native":
            return state
        usual = distribution == self._spread
        drawn = randomised(state, seed, "signed" if usual else distribution)
        return {n: sorted_rows(v) if n in self.searched else v for n, v in drawn.items()}

    def settle(self, finite: Callable[[str], bool]) -> tuple[str, ...]:
        """Choose the values that sharp inputs have; return the distributions to ask on.

        Where the reference is not finite on values of both signs, those that are drawn positive
        stay so, and failing that all stay within the bounds that were observed.
        """
        if not finite("native"):
            return ("native", "signed")
        spreads: tuple[Spread, ...] = ("signed",)
        if not self._problem.inputs:
            spreads = ("signed", "positive", "within")
        for self._spread in spreads:
            if finite(self._spread):
                return ("native", self._spread)
        return ("native",)

    def sharper(self) -> tuple[str, ...]:
        """Return the names of further distributions; the reference need not be finite on them."""
        return tuple(
            name for name in SHARPER
            if (name != "loud" or self._function.state)
            and (name != "positive" or self._spread == "signed")
        )  # fmt: skip

    def notes(self) -> tuple[str, ...]:
        """Say what was inferred of the inputs, for a person."""
        names = ", ".join(sorted(self.searched))
        order = (f"kept sorted, as the reference searches in it: {names}",) if names else ()
        if self._problem.inputs or self._domains is None:
            return order
        said = [f"{name} {words}" for name, d in self._domains.items() if (words := d.words())]
        if self._spread == "positive":
            said.append("what is drawn positive stays so: the reference is not finite otherwise")
        if self._spread == "within":
            said.append("all stay in the range seen: the reference is not finite outside it")
        return (f"inferred from two draws: {'; '.join(said)}", *order) if said else order

    def _known_domains(self) -> dict[str, Domain]:
        if self._domains is None:
            looks = [
                look_at(_from_file(self._problem, self._function, seed).tensors())
                for seed in _LOOKS
            ]
            self._domains = infer(*looks)
        return self._domains


def _from_specs(
    problem: Problem, function: ReferenceFunction, workload: Workload, seed: int, distribution: str
) -> Draw:
    generator = torch.Generator(device=function.device).manual_seed(seed)
    names: list[str] = []
    values: list[Any] = []
    keywords: dict[str, Any] = {}
    for spec in problem.inputs:
        value = _one(spec, workload, generator, distribution)
        if spec.keyword:
            keywords[spec.name] = value
        else:
            names.append(spec.name)
            values.append(value)
    return Draw(names, values, keywords)


def _one(spec: InputSpec, workload: Workload, generator: torch.Generator, distribution: str) -> Any:
    if spec.shape is None:
        return spec.value
    shape = tuple(
        int(evaluate(extent, workload.sizes)) if isinstance(extent, str) else extent
        for extent in spec.shape
    )
    dtype = DTYPES[spec.dtype]
    low, high = spec.low, spec.high_at(workload.sizes)
    options: dict[str, Any] = {"generator": generator, "device": generator.device}
    match spec.distribution:
        case "normal" if dtype.is_floating_point:
            values = _normal(shape, distribution, options)
        case "uniform" | "normal":
            start, end = low if low is not None else 0.0, high if high is not None else 1.0
            values = torch.rand(shape, **options)
            if distribution != "native":  # the declared range is a promise: sharper within it
                values = within_bounds(values, distribution, options["generator"])
            values = values.mul_(end - start).add_(start)  # in place: a second one may not fit
        case "integers":
            start, end = int(low or 0), int(high) if high is not None else 100
            values = torch.randint(start, max(end, start + 1), shape, **options)
        case "bernoulli":
            values = torch.rand(shape, **options) < (high if high is not None else 0.5)
        case "zeros":
            values = torch.zeros(shape, device=generator.device)
        case "ones":
            values = torch.ones(shape, device=generator.device)
    return values.to(dtype)


def _normal(shape: tuple[int, ...], distribution: str, options: dict[str, Any]) -> torch.Tensor:
    if distribution == "native":
        return torch.randn(shape, **options)
    fresh = torch.empty(shape, device=options["device"])
    return sharpened(fresh, Domain(), distribution, "signed", options["generator"])


def _from_file(problem: Problem, function: ReferenceFunction, seed: int) -> Draw:
    if function.get_inputs is None:
        raise ProblemError(f"problem {problem.name!r} names no inputs and has no get_inputs()")
    torch.manual_seed(seed)
    with torch.device(function.device), as_problem_error(problem, "get_inputs()"):
        values = list(function.get_inputs())
    values = [v.to(function.device) if isinstance(v, torch.Tensor) else v for v in values]
    names = function.parameter_names()
    if len(names) < len(values):
        names = [f"argument{i}" for i in range(len(values))]
    return Draw(names[: len(values)], values, {})


def _walk(name: str, value: Any, visit: Callable[[str, torch.Tensor], Any]) -> Any:
    """Return a nesting with what ``visit`` gives for each tensor of it."""
    if isinstance(value, torch.Tensor):
        return visit(name, value)
    if isinstance(value, list | tuple):
        items = [_walk(f"{name}[{i}]", item, visit) for i, item in enumerate(value)]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return {key: _walk(f"{name}.{key}", item, visit) for key, item in value.items()}
    return value

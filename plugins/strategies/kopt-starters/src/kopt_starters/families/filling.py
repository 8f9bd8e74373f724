"""Makes a family's candidate from a template in Triton or CUDA C++: header, places, entry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopt.model.candidate import Knob
from kopt.model.kernel_file import parse_kernel
from kopt_starters import rendering

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kopt.model.candidate import Candidate
    from kopt_starters.graph import Graph

FLOATS = frozenset({"float16", "bfloat16", "float32"})
"""The dtypes that the templates are written for."""


def powers(low: int, high: int) -> list[int]:
    """Return the powers of two from ``low`` to ``high``, both included; ``[low]`` at least."""
    found = [1 << n for n in range(31) if low <= 1 << n <= high]
    return found or [low]


def filled(
    template: str,
    graph: Graph,
    entry: str,
    idea: str,
    handed: Sequence[str],
    knobs: Mapping[str, Knob],
    **places: object,
) -> Candidate | None:
    """Return a template's candidate; its ``_launch`` is handed arguments, in order, and knobs.

    None where an argument's name is no identifier, or would hide a knob.

    :param handed: names of the reference's arguments, as the graph has them.
    :param places: what else the template leaves open.
    """
    names = [rendering.identifier(argument.name) for argument in graph.arguments]
    hidden = {*knobs, "_launch", "torch", "triton", "tl", entry}
    if not all(name.isidentifier() for name in names) or hidden & {*names}:
        return None
    passed = ", ".join([*map(rendering.identifier, handed), *(f"{name}={name}" for name in knobs)])
    launcher = (
        f"def {entry}({', '.join([*names, '*', *knobs])}):\n"
        f'    """Return the result in a new tensor."""\n'
        f"    return _launch({passed})"
    )
    written = {name: str(value) for name, value in places.items()}
    header = rendering.header("#", [f'entry = "{entry}"'], knobs)
    source = rendering.template(template).substitute(header=header, launcher=launcher, **written)
    return parse_kernel(source, "triton", strategy="starters", idea=idea)


def filled_cuda(
    template: str,
    graph: Graph,
    idea: str,
    knobs: Mapping[str, Knob],
    places: Mapping[str, str],
) -> Candidate | None:
    """Return a CUDA C++ template's candidate.

    None where a scalar decides too, where an argument's name is no identifier, or where it is one
    that the launch plan needs: a plan knows all arguments.

    :param places: all that the template leaves open.
    """
    names = {rendering.identifier(argument.name) for argument in graph.arguments}
    if any(argument.tensor is None for argument in graph.arguments):
        return None
    outputs = {"out", *(f"out{number}" for number in range(len(graph.results)))}
    if not all(map(str.isidentifier, names)) or names & {*knobs, *outputs, "partial"}:
        return None
    source = rendering.template(template).substitute(places).rstrip("\n") + "\n"
    return parse_kernel(source, "cuda", strategy="starters", idea=idea)

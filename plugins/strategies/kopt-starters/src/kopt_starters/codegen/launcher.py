"""Text around generated kernels: the header, the entry's signature, what it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from keyword import iskeyword
from typing import TYPE_CHECKING

from kopt_starters import rendering
from kopt_starters.codegen.axes import NotCoveredError
from kopt_starters.codegen.leading import EXTENT, Leading
from kopt_starters.codegen.writer import identifier

if TYPE_CHECKING:
    from kopt.model.candidate import Knob
    from kopt_starters.graph import Graph, Value

IMPORTS = "import torch\nimport triton\nimport triton.language as tl\n"
_TAKEN = frozenset({"torch", "triton", "tl"})


def header(entry: str, knobs: Mapping[str, Knob]) -> str:
    """Return the kopt header of a Python kernel."""
    return rendering.header("#", [f'entry = "{entry}"'], knobs)


def opening(graph: Graph, entry: str, knobs: Iterable[str]) -> str:
    """Return the entry's ``def`` line with its docstring.

    Raises NotCoveredError where an argument's name cannot be a parameter's.
    """
    names = [identifier(argument.name) for argument in graph.arguments]
    knobs = list(knobs)
    bad = [n for n in names if not n.isidentifier() or iskeyword(n) or n.startswith("_")]
    if bad or {*names} & {*knobs, *_TAKEN} or len({*names}) < len(names):
        raise NotCoveredError("an argument's name is no parameter's")
    signature = ", ".join([*names, "*", *knobs])
    return f'def {entry}({signature}):\n    """Return the result in a new tensor."""'


def checks(
    graph: Graph,
    scalars: Iterable[str],
    *,
    alike: Sequence[Value] = (),
    leading: Leading | None = None,
) -> list[str]:
    """Return lines of the entry that refuse what the kernel was not made for.

    ``scalars`` are the arguments that the kernel takes; of the others it holds the value. Tensors
    have to be as they were, or, where ``alike`` names them all, of one shape, whatever it is.
    ``leading`` names those whose first extent, of all of them, may be less: ``_n`` from there on.
    Raises NotCoveredError where an argument is neither a tensor nor a number.
    """
    lines = [] if alike else tensor_checks(graph, leading)
    for argument in graph.arguments:
        name = identifier(argument.name)
        if argument.tensor is not None:
            continue
        if argument.kind != "scalar":
            raise NotCoveredError(f"argument {name} is no tensor and no number")
        if name not in set(scalars):
            lines += _refusal(name, argument.value)
    for value in alike[1:]:
        first, other = identifier(alike[0].name), identifier(value.name)
        lines += [
            f"if {other}.shape != {first}.shape:",
            f'    raise ValueError("for {other} of the shape of {first} only")',
        ]
    return lines


def tensor_checks(graph: Graph, leading: Leading | None = None) -> list[str]:
    """Return lines of the entry that refuse tensors of other shapes; see ``checks``."""
    lines = _leading_checks(graph, leading) if leading else []
    names = leading.names if leading else frozenset()
    for argument in graph.arguments:
        if argument.tensor is not None and argument.name not in names:
            name = identifier(argument.name)
            lines += _refusal(f"{name}.shape", tuple(argument.tensor.shape))
    return lines


def _leading_checks(graph: Graph, leading: Leading) -> list[str]:
    first, *others = [a for a in graph.arguments if a.tensor and a.name in leading.names]
    assert first.tensor is not None
    name, (_, *rest) = identifier(first.name), first.tensor.shape
    shape = f"({', '.join(['n', *map(str, rest)])}{',' * (not rest)})"
    lines = [
        f"if len({name}.shape) != {len(rest) + 1} or {name}.shape[1:] != {tuple(rest)!r}"
        f" or {name}.shape[0] > {leading.extent}:",
        f'    raise ValueError("for {name}.shape = {shape} with n <= {leading.extent} only")',
        f"{EXTENT} = {name}.shape[0]",
    ]
    for other in others:
        assert other.tensor is not None
        extents = Leading.shape(leading, other.tensor.shape)
        shape = extents.replace(EXTENT, f"{name}.shape[0]")
        lines += [
            f"if {identifier(other.name)}.shape != {extents}:",
            f'    raise ValueError("for {identifier(other.name)}.shape = {shape} only")',
        ]
    return lines


def _refusal(name: str, value: object) -> list[str]:
    message = json.dumps(f"for {name} = {value} only")
    return [f"if {name} != {value!r}:", f"    raise ValueError({message})"]


def indented(lines: Iterable[str], by: int = 4) -> str:
    """Return lines as a block."""
    return "\n".join(" " * by + line if line else "" for line in lines)

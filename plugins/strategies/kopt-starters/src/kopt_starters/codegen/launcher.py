"""Text around generated kernels: the header, the entry's signature, what it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from keyword import iskeyword
from typing import TYPE_CHECKING

from kopt_starters import rendering
from kopt_starters.codegen.axes import NotCoveredError
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


def checks(graph: Graph, scalars: Iterable[str], *, alike: Sequence[Value] = ()) -> list[str]:
    """Return lines of the entry that refuse what the kernel was not made for.

    ``scalars`` are the arguments that the kernel takes; of the others it holds the value. Tensors
    have to be as they were, or, where ``alike`` names them all, of one shape, whatever it is.
    Raises NotCoveredError where an argument is neither a tensor nor a number.
    """
    lines = []
    for argument in graph.arguments:
        name = identifier(argument.name)
        if argument.tensor is not None:
            if not alike:
                lines += _refusal(f"{name}.shape", tuple(argument.tensor.shape))
        elif argument.kind != "scalar":
            raise NotCoveredError(f"argument {name} is no tensor and no number")
        elif name not in set(scalars):
            lines += _refusal(name, argument.value)
    for value in alike[1:]:
        first, other = identifier(alike[0].name), identifier(value.name)
        lines += [
            f"if {other}.shape != {first}.shape:",
            f'    raise ValueError("for {other} of the shape of {first} only")',
        ]
    return lines


def _refusal(name: str, value: object) -> list[str]:
    message = json.dumps(f"for {name} = {value} only")
    return [f"if {name} != {value!r}:", f"    raise ValueError({message})"]


def indented(lines: Iterable[str], by: int = 4) -> str:
    """Return lines as a block."""
    return "\n".join(" " * by + line if line else "" for line in lines)

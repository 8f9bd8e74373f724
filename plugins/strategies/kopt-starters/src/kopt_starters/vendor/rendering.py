"""Writes the file of a candidate whose heavy operator the framework's library computes."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

from kopt.model.kernel_file import parse_kernel
from kopt_starters.codegen.launcher import indented, opening
from kopt_starters.codegen.writer import identifier

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kopt.model.candidate import Candidate, Knob
    from kopt_starters.codegen import Epilogue
    from kopt_starters.graph import Graph

ENTRY = "vendor"


@cache
def _text(name: str) -> str:
    path = files("kopt_starters").joinpath("kernels", f"vendor_{name}.py.txt")
    return path.read_text(encoding="utf-8").strip()


def stored(
    tail: Epilogue | None, coordinates: Sequence[str], plain: str, spread: str = ""
) -> tuple[list[str], str]:
    """Return the lines that compute what follows and store it, and the functions that they call.

    :param plain: where an element goes that keeps its place.
    :param spread: something that is zero and has the shape of the whole tile.
    """
    if tail is None:
        return [f"tl.store(out + {plain}, total.to(out.dtype.element_ty), mask=inside)"], ""
    lines, found = tail.lines("total", coordinates)
    place = tail.offset(coordinates)
    if place != _in_order(tail, coordinates):
        plain = f"({place}){spread}"
    lines = [*lines, f"tl.store(out + {plain}, {found}.to(out.dtype.element_ty), mask=inside)"]
    return lines, tail.helpers(lines).strip()


def _in_order(tail: Epilogue, coordinates: Sequence[str]) -> str:
    """Return the offset of an element that keeps its place, as ``Epilogue.offset`` writes it."""
    terms, step = [], 1
    for coordinate, extent in reversed([*zip(coordinates, tail.value.shape, strict=True)]):
        if extent > 1:
            terms.append(f"({coordinate})" if step == 1 else f"({coordinate}) * {step}")
        step *= extent
    same = tail.result.shape == tail.value.shape
    return " + ".join(reversed(terms)) or "0" if same else ""


def write(
    graph: Graph,
    templates: Sequence[str],
    tail: Epilogue | None,
    ending: tuple[Sequence[str], str],
    body: Iterable[str],
    knobs: Mapping[str, Knob],
    idea: str,
    places: Iterable[str] = (),
) -> Candidate | None:
    """Return the candidate; None where names would clash.

    :param ending: what ``stored`` returned.
    :param body: the lines of the entry.
    :param places: lines that compute coordinates, where the template leaves them open.

    Raises NotCoveredError where an argument's name cannot be a parameter's.
    """
    lines, helpers = ending
    parameters = [] if tail is None else [*tail.parameters, *tail.scalars]
    names = {identifier(argument.name) for argument in graph.arguments}
    text = "\n\n\n".join(map(_text, templates))
    clashes = any(re.search(rf"\b{each}\b", text) for each in parameters)
    if clashes or {"math", ENTRY} & names:
        return None
    kernels = Template(text).substitute(
        parameters="".join(f"{each}, " for each in parameters),
        store=indented(lines),
        places=indented(places),
    )
    first = opening(graph, ENTRY, knobs)
    entry = f"{first if knobs else first.replace(', *)', ')')}\n{indented(body)}"
    imports = "import math\n\nimport torch\nimport triton\nimport triton.language as tl"
    top = f'{_header(knobs)}\n"""{idea}."""\n\n{imports}'
    source = "\n\n\n".join([top, *([helpers] if helpers else []), kernels, entry])
    return parse_kernel(f"{source}\n", "torch", strategy="starters", idea=idea)


def handed(tail: Epilogue | None) -> str:
    """Return the tuple of what an entry passes for the parameters of what follows."""
    if tail is None:
        return "()"
    tensors = [f"{name}.contiguous()" for name in tail.parameters.values()]
    return f"({''.join(f'{each}, ' for each in [*tensors, *tail.scalars.values()])})"


def _header(knobs: Mapping[str, Knob]) -> str:
    rows = ['language = "torch"', f'entry = "{ENTRY}"', "[knobs]"]
    for name, knob in knobs.items():
        choices = json.dumps(list(knob.choices))
        rows.append(f"{name} = {{default = {json.dumps(knob.default)}, choices = {choices}}}")
    return "\n".join(["# /// kopt", *(f"# {row}" for row in rows), "# ///"])

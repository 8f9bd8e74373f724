"""Writes the source of a convolution's kernels: header, templates, and the entry that calls them."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

from kopt.model.kernel_file import parse_kernel
from kopt_starters.rendering import text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kopt.model.candidate import Candidate, Knob
    from kopt_starters.convolution.fusing import Ending
    from kopt_starters.convolution.task import Convolution
    from kopt_starters.graph import Graph, Value

_ENTRY = "convolution"
_TAKEN = {"functools", "math", "torch", "triton", "tl", "TensorDescriptor"}


_KINDS = {"direct": "lanes", "gemm": "product", "last": "product", "separable": "product"}
"""Templates, and how each one's results lie."""


@cache
def _text(name: str) -> str:
    path = files("kopt_starters").joinpath("kernels", f"convolution_{name}.py.txt")
    return path.read_text(encoding="utf-8").strip()


def _part(name: str, end: Ending) -> str:
    parameters = "".join(f"{parameter}, " for parameter in end.parameters)
    return Template(_text(name)).substitute(parameters=parameters, store=end.store[_KINDS[name]])


def _clashes(name: str, end: Ending) -> bool:
    return any(re.search(rf"\b{parameter}\b", _text(name)) for parameter in end.parameters)


def identifier(value: Value | None) -> str:
    """Return how a kernel's entry calls a tensor of the reference; ``None`` for none."""
    return "None" if value is None else value.name.replace(".", "_")


def call(function: str, tensors: Sequence[str], settings: Mapping[str, object]) -> str:
    """Return a call with settings by name; a setting is an expression if it is text."""
    passed = [*tensors, *(f"{name}={value}" for name, value in settings.items())]
    return f"{function}({', '.join(passed)})"


def geometry(task: Convolution, *more: str) -> dict[str, object]:
    """Return stride, padding and dilation as a launcher takes them, and what else it asks for."""
    return {name: getattr(task, name) for name in ("stride", "padding", "dilation", *more)}


def same(knobs: Mapping[str, Knob]) -> dict[str, object]:
    """Return knobs handed on under their own names."""
    return {name: name for name in knobs}


def ends(end: Ending) -> dict[str, object]:
    """Return what a launcher is handed for its kernel's end."""
    return {"result": end.result, "more": f"({''.join(f'{each}, ' for each in end.handed)})"}


def write(
    graph: Graph,
    parts: Mapping[str, Ending],
    body: Sequence[str],
    knobs: Mapping[str, Knob],
    idea: str,
) -> Candidate | None:
    """Return the kernel file whose entry has these lines; None where names would clash.

    :param parts: templates, with how the kernel of each one ends.
    :param idea: one line that also says in the file what it is.
    """
    names = [argument.name.replace(".", "_") for argument in graph.arguments]
    if not all(name.isidentifier() and not name.startswith("_") for name in names):
        return None
    if len({*names}) < len(names) or {*knobs, *_TAKEN} & {*names}:
        return None
    if any(_clashes(name, end) for name, end in parts.items()):
        return None
    guards = [line for end in parts.values() for line in end.guards]
    helpers = [end.helpers for end in parts.values() if end.helpers]
    entry = [
        f"def {_ENTRY}({', '.join([*names, '*', *knobs])}):",
        '    """Return the result in a new tensor."""',
        *(f"    {line}" for line in [*guards, *body]),
    ]
    imports = "import math\n\nimport torch\nimport triton\nimport triton.language as tl"
    if "last" in parts:
        imports = f"import functools\n{imports}\nfrom triton.tools.tensor_descriptor import TensorDescriptor"
    written = [_part(name, end) for name, end in parts.items()]
    if any(_KINDS[name] == "product" for name in parts):
        written = [_text("pixels"), *written]
    if "last" in parts:
        shared = [text(f"{name}.py.txt").strip() for name in ("halves", "launches")]
        written = [*shared, *written, _text("last_launch")]
    top = f'{_header(knobs)}\n"""{idea}."""\n\n{imports}'
    source = "\n\n\n".join([top, *helpers, *written, "\n".join(entry)])
    return parse_kernel(f"{source}\n", "triton", strategy="starters", idea=idea)


def _header(knobs: Mapping[str, Knob]) -> str:
    rows = [f'entry = "{_ENTRY}"', "[knobs]"]
    for name, knob in knobs.items():
        choices = json.dumps(list(knob.choices))
        rows.append(f"{name} = {{default = {json.dumps(knob.default)}, choices = {choices}}}")
    return "\n".join(["# /// kopt", *(f"# {row}" for row in rows), "# ///"])

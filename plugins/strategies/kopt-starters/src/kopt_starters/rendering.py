"""Turns a structure and a recognised task into a candidate: header, template, launcher."""

from __future__ import annotations

import json
import math
from functools import cache
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

from kopt.model.kernel_file import parse_kernel
from kopt_starters.flow import plain_dtype

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kopt.model.candidate import Candidate, Knob
    from kopt.model.device import Device
    from kopt.model.problem import ArgumentInfo
    from kopt_starters.operator import Structure
    from kopt_starters.recognition import Task


def render(structure: Structure, task: Task, device: Device) -> Candidate | None:
    """Return a structure's candidate for a task; None where its template cannot express it."""
    knobs = structure.knobs(task.layout(device))
    write = {"cpp": _cpp, "triton": _triton}[structure.language]
    places = write(task, knobs)
    if places is None:
        return None
    source = template(structure.template).substitute(places)
    return parse_kernel(
        source,
        structure.language,
        strategy="starters",
        idea=f"{task.operator.name}: {structure.idea}",
    )


@cache
def text(name: str) -> str:
    """Return a file of ``kernels/``."""
    return files("kopt_starters").joinpath("kernels", name).read_text(encoding="utf-8")


def template(name: str) -> Template:
    """Return a file of ``kernels/`` as a template."""
    return Template(text(name))


def header(mark: str, lines: list[str], knobs: Mapping[str, Knob]) -> str:
    """Return a kernel's header: its lines and knobs behind ``mark``, a comment's beginning."""
    rows = [*lines, "[knobs]"]
    for name, knob in knobs.items():
        choices = json.dumps(list(knob.choices))
        rows.append(f"{name} = {{default = {json.dumps(knob.default)}, choices = {choices}}}")
    return "\n".join([f"{mark} /// kopt", *(f"{mark} {row}" for row in rows), f"{mark} ///"])


def identifier(name: str) -> str:
    """Return an argument's name as a launcher can have it: dots become underscores."""
    return name.replace(".", "_")


def _eps(task: Task) -> str:
    """Return eps as an expression: the argument that carries it, or its value."""
    value = task.match.eps or 0.0
    for argument in task.call.arguments:
        same = isinstance(argument.value, float) and math.isclose(
            argument.value, value, rel_tol=1e-6
        )
        if argument.kind == "scalar" and same and "eps" in argument.name:
            return identifier(argument.name)
    return repr(value)


def _cpp(task: Task, knobs: Mapping[str, Knob]) -> dict[str, str] | None:
    """Return what a C++ template leaves open; its kernels are for float32 alone."""
    match, operator = task.match, task.operator
    tensors = [match.x, match.weight, match.bias]
    names = [identifier(name) for name in tensors if name is not None]
    if task.dtypes != {"float32"} or "out" in names:
        return None
    x, first, last = names[0], match.first, match.last
    outer, count = f"prod({x}.shape[:{first}])", f"prod({x}.shape[{first}:{last + 1}])"
    extents = [outer, count]
    rowwise = last == len(task.tensor(match.x).shape) - 1
    if not rowwise:
        extents.append(f"prod({x}.shape[{last + 1}:])")
    eps = [_eps(task)] if "eps" in operator.parameters else []
    arguments = json.dumps([*names, "out", *extents, *eps])
    lines = [f'entry = "{operator.name}"', f"arguments = {arguments}"]
    at = "parameters({name} + at, count)" if rowwise else "{name}[at]"
    return {
        "header": header("//", lines, knobs),
        "lanes": text("lanes.cpp"),
        "exponential": text("exponential.cpp"),
        "columns": text("columns.cpp"),
        "weight_parameter": "const float* weight," if match.weight else "",
        "bias_parameter": "const float* bias," if match.bias else "",
        "times_weight": " * " + at.format(name="weight") if match.weight else "",
        "plus_bias": " + " + at.format(name="bias") if match.bias else "",
    }


def _triton(task: Task, knobs: Mapping[str, Knob]) -> dict[str, str] | None:
    """Return what a Triton template leaves open; None where names would clash with knobs."""
    match = task.match
    names = [identifier(argument.name) for argument in _in_order(task)]
    if not all(name.isidentifier() for name in names) or {*names} & {*knobs, "_launch"}:
        return None
    return {
        "header": header("#", [f'entry = "{task.operator.name}"'], knobs),
        "first": str(match.first),
        "last": str(match.last),
        "output_dtype": plain_dtype(task.call.outputs[0].dtype),
        "keep": str(match.keep),
        "launcher": _launcher(task, names, list(knobs)),
    }


def _in_order(task: Task) -> list[ArgumentInfo]:
    """The reference's arguments, then its module's state."""
    return sorted(task.call.arguments, key=lambda argument: argument.kind == "state")


def _launcher(task: Task, names: list[str], knobs: list[str]) -> str:
    """Return the function that takes the reference's arguments and hands on what is needed."""
    match, operator = task.match, task.operator
    handed = [identifier(match.x)]
    for parameter in operator.parameters:
        found = _eps(task) if parameter == "eps" else getattr(match, parameter)
        handed.append(
            "None" if found is None else identifier(found) if parameter != "eps" else found
        )
    passed = ", ".join([*handed, *(f"{name}={name}" for name in knobs)])
    return (
        f"def {operator.name}({', '.join([*names, '*', *knobs])}):\n"
        f'    """Return the result in a new tensor."""\n'
        f"    return _launch({passed})"
    )

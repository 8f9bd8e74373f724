"""Turns a structure and a recognised task into a candidate: header, template, launcher."""

from __future__ import annotations

import json
import math
from functools import cache
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

from kopt.model.kernel_file import parse_kernel
from kopt_starters import cuda
from kopt_starters.flow import plain_dtype

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kopt.model.candidate import Candidate, Knob
    from kopt.model.device import Device
    from kopt.model.problem import ArgumentInfo
    from kopt_starters.operator import Structure
    from kopt_starters.recognition import Task


def render(structure: Structure, task: Task, device: Device) -> Candidate | None:
    """Return a structure's candidate for a task; None where its template cannot express it."""
    knobs = structure.knobs(task.layout(device))
    write = {"cpp": _cpp, "cuda": _cuda, "triton": _triton}[structure.language]
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
    rows = [*lines, *knob_rows(knobs)]
    return "\n".join([f"{mark} /// kopt", *(f"{mark} {row}" for row in rows), f"{mark} ///"])


def knob_rows(knobs: Mapping[str, Knob]) -> list[str]:
    """Return the lines of a header that declare knobs."""
    rows = ["[knobs]"]
    for name, knob in knobs.items():
        choices = json.dumps(list(knob.choices))
        rows.append(f"{name} = {{default = {json.dumps(knob.default)}, choices = {choices}}}")
    return rows


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


def _cuda(task: Task, knobs: Mapping[str, Knob]) -> dict[str, str] | None:
    """Return what a CUDA C++ template leaves open; its kernels are for one dtype, over last dims."""
    match, operator = task.match, task.operator
    handed = {"x": match.x, "weight": match.weight, "bias": match.bias}
    tensors = {part: identifier(name) for part, name in handed.items() if name is not None}
    # A launch plan knows arguments that it does not hand on too.
    names = {identifier(argument.name) for argument in task.call.arguments}
    taken = {*knobs, "out", "partial", "measured"}
    if len(task.dtypes) != 1 or not all(map(str.isidentifier, names)) or taken & names:
        return None
    (dtype,), x, first = task.dtypes, tensors["x"], match.first
    width = math.prod(task.tensor(match.x).shape[first:])
    piece = cuda.piece_of(cuda.ELEMENTS[dtype].size, width)
    rows, count = f"prod({x}.shape[:{first}])", f"prod({x}.shape[{first}:])"
    requires = [f"{count} % {piece} == 0"]
    if "LANES" in knobs and operator.name != "sum":
        requires.append(f"{count} <= {width}")
    return {
        **cuda_places(dtype, piece, requires, knobs),
        **_affine(tensors),
        **_sum_plan(x, rows, f"{count} // {piece}", shared="PARTS" in knobs),
        "operator": operator.name,
        "running": part(f"{operator.name}_running.cu"),
        "result": part(f"{operator.name}_result.cu"),
        "tensors": json.dumps([*tensors.values()]).strip("[]"),
        "x": x,
        "rows": rows,
        "count": count,
        "most": str(width // piece),
        "piece_bytes": str(piece * cuda.ELEMENTS[dtype].size),
        "eps": _eps(task),
        "written": "float" if "PARTS" in knobs else cuda.ELEMENTS[dtype].type,
    }


def cuda_places(
    dtype: str, piece: int, requires: Sequence[str], knobs: Mapping[str, Knob]
) -> dict[str, str]:
    """Return what templates in CUDA C++ share, for pieces of ``piece`` elements."""
    places = cuda.places(dtype, piece)
    return {
        **places,
        "requires": json.dumps(list(requires)),
        "knobs": "\n// ".join(knob_rows(knobs)),
        "pieces": template("pieces.cu").substitute(places).rstrip("\n"),
        "shared_rows": part("shared_rows.cu"),
        "stored": part("stored.cu"),
    }


def commented(lines: Sequence[str]) -> str:
    """Return lines of a header as comments of CUDA C++."""
    return "\n".join(f"// {line}" for line in lines)


def part(name: str) -> str:
    """Return a file of ``kernels/`` that others contain; nothing where there is none."""
    found = files("kopt_starters").joinpath("kernels", name)
    return text(name).rstrip("\n") if found.is_file() else ""


def _affine(tensors: Mapping[str, str]) -> dict[str, str]:
    """Return how a CUDA C++ kernel takes, reads and applies weight and bias."""
    parts = [part for part in ("weight", "bias") if part in tensors]
    applied = {"weight": " * weights.at[j]", "bias": " + biases.at[j]"}
    values = {"weight": "weights", "bias": "biases"}
    return {
        "parameters": " ".join(f"const Memory *__restrict__ {part}," for part in parts),
        "read_affine": " ".join(
            f"const Values {values[part]} = widened(__ldg({part} + at));" for part in parts
        ),
        "affine": "".join(applied[part] for part in parts),
    }


def _sum_plan(x: str, rows: str, pieces: str, *, shared: bool) -> dict[str, str]:
    """Return the launches of a sum in CUDA C++, and its second kernel where blocks share rows."""
    grid = [f"cdiv({rows}, ROWS)", "PARTS" if shared else 1]
    to = "partial" if shared else "out"
    lines = cuda.scratch("partial", f"{rows} * PARTS") if shared else []
    lines += cuda.launch("add_rows", grid, ["LANES", "ROWS"], [x, to, rows, pieces])
    if shared:
        given = ["partial", "out", rows, "PARTS"]
        lines += cuda.launch("add_parts", [f"cdiv({rows}, 4)"], [32, 4], given)
    return {"plan": commented(lines), "second": part("sum_parts.cu") if shared else ""}


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

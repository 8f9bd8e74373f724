"""``kopt init FILE:FUNCTION``: a native problem folder written from a Python function."""

from __future__ import annotations

import ast
import math
from inspect import Parameter, Signature
from pathlib import Path

import tomlkit
from tomlkit.items import Table

from kopt.errors import ProblemError
from kopt.formats.excerpt import Excerpt, excerpt
from kopt.formats.native import DESCRIPTION, problem_from_toml
from kopt.formats.parameters import signature_of
from kopt.formats.python_source import find_function, parse, read_text
from kopt.model.record import Record

REFERENCE = "reference.py"
SIZES = {"rows": 1024, "cols": 1024}
_SAMPLE: dict[str, bool | int | float | str] = {"float": 1.0, "int": 1, "bool": True, "str": ""}
_VARIADIC = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}


class _Argument(Record):
    """One parameter as the problem will pass it: a tensor where ``value`` is None."""

    name: str
    value: bool | int | float | str | None = None
    guessed: bool = False
    keyword: bool = False


def scaffold(file: Path, function: str, folder: Path | None = None, *, force: bool = False) -> str:
    """Write a problem folder for ``function`` of ``file`` and return its ``problem.toml``.

    The folder gets the function with the imports and module-level names that it needs
    (``reference.py``), and a description with an input for every parameter. What was left out is
    said in comments there.

    :param folder: where to write; a folder named after the function, here, where it is None.
    :param force: write into a folder that exists, over the two files of those names.
    Raises ProblemError, before anything is written, where the result would not load.
    """
    folder = Path(function) if folder is None else folder
    if folder.exists() and not (force and folder.is_dir()):
        advice = (
            "choose another, or overwrite it with --force" if folder.is_dir() else "choose another"
        )
        raise ProblemError(f"{folder} exists already; {advice}")
    reference, description = _contents(file, function)
    problem_from_toml(
        description, folder / DESCRIPTION, folder / REFERENCE, reference, name=function
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / REFERENCE).write_text(reference, encoding="utf-8")
        (folder / DESCRIPTION).write_text(description, encoding="utf-8")
    except OSError as error:
        raise ProblemError(f"{folder} cannot be written: {error.strerror}") from error
    return description


def _contents(file: Path, function: str) -> tuple[str, str]:
    """Return the text of the reference and of the description."""
    text = read_text(file)
    cut = excerpt(text, function, file)
    signature = signature_of(find_function(parse(text, file), function, file))
    arguments, kept = _arguments(signature)
    if not arguments:
        raise ProblemError(
            f"{file}: {function}{_unquoted(signature)} has no parameter that kopt could pass; "
            f"write a function with a named parameter for each tensor"
        )
    heading = f"# The reference: {function} of {_one_line(file.name)}.\n\n"
    return heading + cut.source, _described(file, function, arguments, kept, cut)


def _arguments(signature: Signature) -> tuple[list[_Argument], list[str]]:
    """Return the arguments to pass, and the parameters that keep their defaults, as written."""
    passed: list[_Argument] = []
    kept: list[str] = []
    gap = False  # a parameter was left out: those after it cannot be passed by position
    for parameter in signature.parameters.values():
        by_position = parameter.kind is Parameter.POSITIONAL_ONLY
        argument = _argument(parameter, keyword=gap)
        if argument is None or (gap and by_position):
            kept.append(_as_written(parameter))
            gap = gap or parameter.kind is not Parameter.KEYWORD_ONLY
        else:
            passed.append(argument)
    return passed, kept


def _argument(parameter: Parameter, *, keyword: bool) -> _Argument | None:
    """Return how a parameter is passed; None where only its default will do."""
    if parameter.kind in _VARIADIC:
        return None
    keyword = keyword or parameter.kind is Parameter.KEYWORD_ONLY
    if parameter.default is not Parameter.empty:
        value = _scalar(parameter.default)
        return (
            None if value is None else _Argument(name=parameter.name, value=value, keyword=keyword)
        )
    annotation = parameter.annotation
    written = "" if annotation is Parameter.empty else ast.unparse(annotation).strip("'\"")
    sample = _SAMPLE.get(written)
    return _Argument(name=parameter.name, value=sample, guessed=sample is not None, keyword=keyword)


def _scalar(default: ast.expr) -> bool | int | float | str | None:
    try:
        value = ast.literal_eval(default)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, bool | int | float | str) else None


def _as_written(parameter: Parameter) -> str:
    if parameter.kind in _VARIADIC:
        return _VARIADIC[parameter.kind] + parameter.name
    return f"{parameter.name}={ast.unparse(parameter.default)}"


def _unquoted(signature: Signature) -> str:
    return f"({', '.join(signature.parameters)})"


def _described(
    file: Path, function: str, arguments: list[_Argument], kept: list[str], cut: Excerpt
) -> str:
    document = tomlkit.document()
    for line in _heading(file, function, kept, cut):
        document.add(tomlkit.comment(line))
    document.add("name", tomlkit.item(function))
    document.add(tomlkit.comment('mutates = ["x"]  # arguments that the function changes in place'))
    document.add(tomlkit.nl())
    reference = tomlkit.table()
    reference.add("file", REFERENCE)
    reference.add("function", function)
    document.add("reference", reference)
    inputs = tomlkit.table(is_super_table=True)
    for argument in arguments:
        inputs.add(argument.name, _input(argument))
    document.add("inputs", inputs)
    tensors = any(argument.value is None for argument in arguments)
    document.add("workloads", _workloads(SIZES if tensors else {}))
    return tomlkit.dumps(document)


def _heading(file: Path, function: str, kept: list[str], cut: Excerpt) -> list[str]:
    lines = [f"Made from {function} of {file.name}. Go through the lines marked EDIT."]
    if kept:
        lines.append(f"Not passed, so they keep their defaults: {_one_line(', '.join(kept))}")
    if cut.left_out:
        lines.append(f"Not copied into {REFERENCE}, though {file.name} runs it on import:")
        lines += [f"  {_one_line(statement)}" for statement in cut.left_out]
    if cut.unresolved:
        lines.append(
            f"EDIT: {REFERENCE} uses names that {file.name} does not define: "
            f"{', '.join(cut.unresolved)}"
        )
    return lines


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _input(argument: _Argument) -> Table:
    table = tomlkit.table()
    if argument.value is None:
        shape = tomlkit.array()
        shape.extend(list(SIZES))
        table.add("shape", shape.comment("EDIT: integers, or expressions over a workload's sizes"))
        dtype = tomlkit.item("float32")
        table.add("dtype", dtype.comment("EDIT: or float16, bfloat16, int64, bool ..."))
        kind = tomlkit.item("normal")
        table.add(
            "distribution", kind.comment('or "uniform", "integers" with low and high, "bernoulli"')
        )
    else:
        value = tomlkit.item(argument.value)
        table.add("value", value.comment("EDIT") if argument.guessed else value)
    if argument.keyword:
        table.add("keyword", True)
    return table


def _workloads(sizes: dict[str, int]) -> tomlkit.items.AoT:
    workloads = tomlkit.aot()
    workload = tomlkit.table()
    for name, size in sizes.items():
        item = tomlkit.item(size)
        workload.add(name, item.comment("EDIT: the sizes that matter to you"))
    workload.add("weight", 1.0)
    workloads.append(workload)
    return workloads

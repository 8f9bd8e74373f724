"""kopt's own problem format: a TOML description beside, or inside, the reference's Python file.

As a folder: ``problem.toml`` and the file that it names. As one file: the same TOML in a comment
block ``# /// kopt-problem`` ... ``# ///``. The reference must be one file: its text alone is handed
to the judge process. Nothing is executed here.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from kopt.errors import ProblemError
from kopt.formats.native_inputs import check_shapes, read_inputs
from kopt.formats.parameters import agree
from kopt.formats.python_source import (
    find_function,
    parse,
    read_text,
    refuse_sibling_imports,
    suggestion,
)
from kopt.formats.toml_table import Table
from kopt.model.problem import PRECISIONS, InputSpec, Problem, ReferenceSource, Tolerance, Workload
from kopt.plugins.markers import hookimpl

DESCRIPTION = "problem.toml"
_OPEN = re.compile(r"^# /// kopt-problem\s*$")
_CLOSE = re.compile(r"^# ///\s*$")
_ROLES = ("measure", "check")


class NativeFormat:
    """Loads a problem folder, or a Python file with a kopt-problem block."""

    @hookimpl
    def kopt_load_problem(self, path: Path) -> Problem | None:
        """Return the problem; None where there is no ``problem.toml`` and no kopt-problem block."""
        if path.is_dir() and (path / DESCRIPTION).exists():
            path = path / DESCRIPTION
        if path.name == DESCRIPTION:
            return _from_folder(path)
        if path.suffix == ".py" and path.is_file():
            text = read_text(path)
            block = problem_block(text, path)
            if block is not None:
                return problem_from_toml(block, path, path, text, name=path.stem)
        return None


def _from_folder(description: Path) -> Problem:
    toml = read_text(description)
    name = description.parent.resolve().name or "problem"
    reference = _parse_toml(toml, description).get("reference")
    file = reference.get("file", "reference.py") if isinstance(reference, dict) else "reference.py"
    if not isinstance(file, str):
        raise ProblemError(f"{description}: reference.file must be a string, not {file!r}")
    source = description.parent / file
    return problem_from_toml(toml, description, source, read_text(source), name=name)


def problem_block(text: str, path: Path) -> str | None:
    """Return the TOML of a kopt-problem block on the lines where it stands; None without one.

    The form is that of Python's inline script metadata (PEP 723). Raises ProblemError.
    """
    found: list[str] | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if found is None:
            # Blank lines before the block make a TOML error name the file's own line.
            found = [""] * number if _OPEN.match(line) else None
        elif _CLOSE.match(line):
            return "\n".join(found)
        elif line == "#" or line.startswith("# "):
            found.append(line[2:])
        else:
            raise ProblemError(
                f"{path}:{number}: the kopt-problem block ends without '# ///'; each of its lines "
                f"starts with '# '"
            )
    if found is not None:
        raise ProblemError(f"{path}: the kopt-problem block is not closed; end it with '# ///'")
    return None


def problem_from_toml(toml: str, described: Path, source: Path, text: str, *, name: str) -> Problem:
    """Return the problem that ``toml`` (of file ``described``) and the reference's text make.

    :param source: the reference's path, for messages and for its neighbours.
    :param name: the problem's name where the description gives none.
    Raises ProblemError.
    """
    table = Table(_parse_toml(toml, described), str(described))
    name = table.take("name", str, name) or name
    mutates = _mutates(table)
    function = _function(table, described, source)
    specs = read_inputs(table)
    workloads = _workloads(table)
    tolerance = _tolerance(table.table("tolerance"))
    table.finish()
    tree = parse(text, source)
    specs = agree(find_function(tree, function, source), specs, described, source)
    refuse_sibling_imports(tree, source)
    check_shapes(specs, workloads, described)
    _check_mutates(mutates, specs, described)
    reference = ReferenceSource(kind="function", source=text, entry=function, filename=source.name)
    try:
        return Problem(
            name=name, format="native", reference=reference, inputs=specs, workloads=workloads,
            tolerance=tolerance, mutates=mutates,
        )  # fmt: skip
    except ValidationError as error:
        reasons = "; ".join(str(e["msg"]).removeprefix("Value error, ") for e in error.errors())
        raise ProblemError(f"{described}: {reasons}") from error


def _parse_toml(text: str, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ProblemError(f"{path}: not valid TOML: {error}") from error


def _function(table: Table, described: Path, source: Path) -> str:
    reference = table.table("reference")
    file = reference.take("file", str)
    if described == source and file not in {None, source.name}:
        raise ProblemError(
            f"{reference.where('file')}: the reference of a one-file problem is the file itself; "
            f"remove the key, or move the block into a {DESCRIPTION}"
        )
    function = reference.require("function", str)
    reference.finish()
    return function


def _workloads(table: Table) -> tuple[Workload, ...]:
    given = table.take("workloads", list)
    if given is None:
        return (Workload(),)
    if not given:
        raise ProblemError(f"{table.where('workloads')} is empty; write at least one [[workloads]]")
    found = []
    for number, data in enumerate(given, start=1):
        if not isinstance(data, dict):
            raise ProblemError(f"{table.where('workloads')} must be tables, as [[workloads]]")
        found.append(_workload(Table(data, table.file, f"workloads[{number}]")))
    return tuple(found)


def _workload(table: Table) -> Workload:
    name = table.take("name", str)
    weight = table.take("weight", float, 1.0) or 0.0
    role = table.take("role", str, "measure")
    if not 0 < weight < float("inf"):
        raise ProblemError(f"{table.where('weight')} must be more than 0")
    if role not in _ROLES:
        raise ProblemError(f"{table.where('role')} must be 'measure' or 'check', not {role!r}")
    sizes = table.rest()
    for key, value in sizes.items():
        if type(value) is not int or value <= 0:
            raise ProblemError(
                f"{table.where(key)}: a size is a positive integer, not {value!r}; sizes are "
                f"written directly, as rows = 1024{suggestion(key, ('name', 'weight', 'role'))}"
            )
    plain = "x".join(map(str, sizes.values())) or "default"
    return Workload(name=name or plain, sizes=sizes, weight=weight, role=cast("Any", role))


def _tolerance(table: Table) -> Tolerance:
    factor = table.take("factor", float)
    precision = table.take("precision", str, "reference")
    if factor is not None and not 0 < factor < float("inf"):
        raise ProblemError(f"{table.where('factor')} must be more than 0")
    if precision not in PRECISIONS:
        raise ProblemError(
            f"{table.where('precision')} must be one of {', '.join(PRECISIONS)}, not {precision!r}"
        )
    table.finish()
    return Tolerance(factor=factor, precision=cast("Any", precision))


def _mutates(table: Table) -> tuple[str, ...]:
    names = table.take("mutates", list, []) or []
    if not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise ProblemError(f"{table.where('mutates')} must list names of inputs, each once")
    return tuple(names)


def _check_mutates(mutates: tuple[str, ...], specs: tuple[InputSpec, ...], file: Path) -> None:
    tensors = [spec.name for spec in specs if spec.shape is not None]
    for name in mutates:
        if name not in tensors:
            raise ProblemError(
                f"{file}: mutates names {name!r}, which is no tensor input{suggestion(name, tensors)}"
            )

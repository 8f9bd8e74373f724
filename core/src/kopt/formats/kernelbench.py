"""KernelBench problem files: a ``Model`` module with ``get_inputs`` and ``get_init_inputs``."""

from __future__ import annotations

import re
from pathlib import Path

from kopt.errors import ProblemError
from kopt.formats.native import problem_block
from kopt.formats.python_source import classes, functions, parse, read_text, refuse_sibling_imports
from kopt.model.problem import Problem, ReferenceSource
from kopt.plugins.markers import hookimpl

_MODEL = re.compile(r"^class\s+Model\b", re.MULTILINE)
_NEEDED = {
    "get_inputs": "def get_inputs(): return [...] with the arguments of Model.forward",
    "get_init_inputs": "def get_init_inputs(): return [] with the arguments of Model.__init__",
}


class KernelBenchFormat:
    """Loads a KernelBench file as it is; its inputs are made by its own functions, in the judge."""

    @hookimpl
    def kopt_load_problem(self, path: Path) -> Problem | None:
        """Return the problem; None for anything but a Python file with a class ``Model``."""
        if path.suffix != ".py" or not path.is_file():
            return None
        text = read_text(path)
        if not _MODEL.search(text) or problem_block(text, path) is not None:
            return None
        tree = parse(text, path)
        model = classes(tree).get("Model")
        if model is None:
            return None
        defined = functions(tree)
        for name, wanted in _NEEDED.items():
            if name not in defined:
                raise ProblemError(
                    f"{path}: class Model (line {model.lineno}) without {name}; a KernelBench "
                    f"problem needs {wanted}"
                )
        refuse_sibling_imports(tree, path)
        return Problem(
            name=path.stem,
            format="kernelbench",
            reference=ReferenceSource(
                kind="kernelbench", source=text, entry="Model", filename=path.name
            ),
        )

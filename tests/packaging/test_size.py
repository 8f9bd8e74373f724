"""Small pieces: no long function, no long file, and most of both short."""

from __future__ import annotations

import ast
import statistics
from collections.abc import Iterator
from pathlib import Path

LONGEST_FUNCTION, LONGEST_FILE = 60, 500
USUAL_FUNCTION, USUAL_FILE = 25, 300


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Yield name and line count, decorators included, of every function in a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            assert node.end_lineno is not None
            yield f"{path}:{node.lineno} {node.name}", node.end_lineno - first + 1


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_the_count_includes_decorators(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text(
        "class A:\n    @property\n    def f(self):\n        return 1\n", encoding="utf-8"
    )
    assert list(functions(path)) == [(f"{path}:3 f", 3)]


def test_no_function_is_long(sources: list[Path]) -> None:
    found = [item for path in sources for item in functions(path)]
    assert not [name for name, count in found if count > LONGEST_FUNCTION]


def test_most_functions_are_short(sources: list[Path]) -> None:
    counts = [count for path in sources for _, count in functions(path)]
    assert sum(count <= USUAL_FUNCTION for count in counts) / len(counts) >= 0.95
    assert statistics.median(counts) <= 12


def test_no_file_is_long(sources: list[Path]) -> None:
    assert not [str(path) for path in sources if lines(path) > LONGEST_FILE]


def test_most_files_are_short(sources: list[Path]) -> None:
    counts = [lines(path) for path in sources]
    assert sum(count <= USUAL_FILE for count in counts) / len(counts) >= 0.95
    assert statistics.median(counts) <= 150

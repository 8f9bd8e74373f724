"""An exception's causes, and the line of a candidate's file that it came from."""

from __future__ import annotations

from kopt_torch.modules import import_source
from kopt_torch.tracebacks import causes, line_below

SOURCE = """\
def inner():
    raise KeyError("x")


def outer():
    try:
        inner()
    except KeyError as error:
        raise ValueError("y") from error
"""


def raised(folder):
    try:
        import_source(SOURCE, folder).outer()
    except ValueError as error:
        return error


def test_causes_come_outermost_first(tmp_path):
    assert [type(each) for each in causes(raised(tmp_path))] == [ValueError, KeyError]


def test_the_innermost_line_of_the_file_counts(tmp_path):
    outer, inner = causes(raised(tmp_path / "here"))
    assert (line_below(outer, tmp_path / "here"), line_below(inner, tmp_path / "here")) == (9, 2)
    assert line_below(outer, tmp_path / "elsewhere") is None


def test_a_circle_of_causes_ends():
    first, second = ValueError(), KeyError()
    first.__cause__, second.__cause__ = second, first
    assert len(causes(first)) == 50

"""Kernels and ideas that were written through the mailbox for an H200: read as they were then."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path

import pytest

from kopt.model.kernel_file import parse_kernel
from kopt.runs.completions import read_exchange
from kopt_rewrite.ideas import read_ideas
from kopt_rewrite.replies import Outcome, Wanted, read_reply

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
interpreter = pytest.importorskip("kopt_triton.interpreter")

HERE = Path(__file__).parent
PROBLEMS = {
    "median_filter": [(2, 3, 9, 37)],
    "gated_recurrence": [(2, 19, 40), (2, 19, 40)],
}
RECORDED = [path for name in PROBLEMS for path in sorted((HERE / "recorded" / name).glob("*.json"))]
ANSWERS = [path for path in RECORDED if read_exchange(path).request.role == "code"]
IDEAS = [path for path in RECORDED if read_exchange(path).request.role == "analysis"]
MODULES = [p for p in ANSWERS if "<<<<<<< SEARCH" not in read_exchange(p).completion.text]
"""Whole files; edits are made in the runs that test_recorded_runs repeats."""
SMALL = {"BLOCK": 32, "ROWS": 4, "COLS": 32, "PAIRS": 128, "QUADS": 64}


def function_of(path: Path, name: str):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: f"{path.parent.name}-{path.stem[:6]}")
def test_an_answer_is_a_kernel_that_is_right(path, tmp_path):
    name = path.parent.name
    reference = function_of(HERE / name / "reference.py", name)
    wanted = Wanted("triton", arguments=tuple(inspect.signature(reference).parameters))
    reading = read_reply(read_exchange(path).completion.text, wanted, finish="stop")
    assert reading.outcome is Outcome.MODULE
    kernel = parse_kernel(reading.source, "triton", strategy="rewrite", idea="first kernel")
    file = tmp_path / "kernel.py"
    file.write_text(reading.source)
    generator = torch.Generator().manual_seed(3)
    given = [torch.randn(shape, generator=generator) for shape in PROBLEMS[name]]
    given[0].view(-1)[::97] = float("nan")
    settings = {
        **kernel.chosen,
        **{k: v for k, v in SMALL.items() if k in kernel.knobs and v in kernel.knobs[k].choices},
    }
    launcher = function_of(file, kernel.entry)
    with interpreter.interpreting():
        got = launcher(*given, **settings)
    torch.testing.assert_close(got, reference(*given), equal_nan=True)


@pytest.mark.parametrize("path", IDEAS, ids=lambda path: path.parent.name)
def test_ideas_are_read(path):
    ideas = read_ideas(read_exchange(path).completion.text, 4)
    assert len(ideas) == 4
    assert all("latency_us x" in idea.text for idea in ideas)


def test_all_that_was_written_is_looked_at():
    assert len(ANSWERS) == 7 * len(PROBLEMS)  # three first kernels, four ideas
    assert len(MODULES) == len(ANSWERS) - 4
    assert len(IDEAS) == 3  # of the filter's second parent too
    lessons = [path for path in RECORDED if read_exchange(path).request.role == "reflection"]
    assert len(ANSWERS) + len(IDEAS) + len(lessons) == len(RECORDED)

"""A profiler's probe: a real candidate process under a real command, with its calls counted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kopt.errors import CandidateError
from kopt.model.verification import Status
from kopt.testing.plain_problem import candidate as plain
from kopt.worker.client import LocalEvaluator

TOOL = """
import pathlib, subprocess, sys
done = subprocess.run(sys.argv[2:], pass_fds=[int(a) for a in sys.argv if a.isdigit() and int(a) > 2])
print("the tool saw the end")
pathlib.Path(sys.argv[1]).write_text(str(done.returncode))
"""


def counting(path: Path):
    """Return a right candidate that notes each of its calls."""
    return plain(
        f"""
        with open({str(path)!r}, "a") as file:
            file.write("call ")
        for i in range(len(x)):
            out[i] = x[i] * 2
        """
    )


def test_the_candidate_is_called_under_the_command(
    evaluator: LocalEvaluator, tmp_path: Path
) -> None:
    script, report = tmp_path / "tool.py", tmp_path / "report"
    script.write_text(TOOL)
    command = [sys.executable, str(script), str(report)]
    found = evaluator.probe(counting(tmp_path / "calls")).under(command, calls=3)
    assert found.fault == ""
    assert "the tool saw the end" in found.output
    assert found.seconds > 0
    assert (tmp_path / "calls").read_text() == "call " * 4  # one unseen, three under the profiler
    assert report.exists(), "the tool must be given the time to write its report"


def test_what_the_environment_holds_reaches_the_tool(
    evaluator: LocalEvaluator, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    source = plain(
        f"import os; open({str(kept)!r}, 'w').write(os.environ['TOOL_SAYS'])\n"
        "for i in range(len(x)): out[i] = x[i] * 2"
    )
    found = evaluator.probe(source).under(["/usr/bin/env"], {"TOOL_SAYS": "hello"})
    assert found.fault == ""
    assert kept.read_text() == "hello"


@pytest.mark.parametrize(
    ("command", "said"),
    [(["no-such-tool"], "no-such-tool was not started"), (["false"], "did not start")],
)
def test_a_tool_that_does_not_run_is_told(
    evaluator: LocalEvaluator, command: list[str], said: str
) -> None:
    found = evaluator.probe(plain("pass")).under(command)
    assert said in found.fault


def test_a_candidate_that_fails_under_the_tool_is_told(evaluator: LocalEvaluator) -> None:
    found = evaluator.probe(plain("raise ValueError('not today')")).under(["/usr/bin/env"])
    assert "not today" in found.fault


def test_a_backend_without_traces_and_listings(evaluator: LocalEvaluator) -> None:
    probe = evaluator.probe(plain("for i in range(len(x)): out[i] = x[i] * 2"))
    assert probe.timeline() is None
    with pytest.raises(CandidateError) as caught:
        probe.listing("sass")
    assert caught.value.status == Status.UNSUPPORTED


def test_nothing_of_it_disturbs_the_judge(evaluator: LocalEvaluator) -> None:
    """After a probe the evaluator answers as before."""
    right = plain("for i in range(len(x)): out[i] = x[i] * 2")
    evaluator.probe(plain("import os; os._exit(3)")).under(["/usr/bin/env"])
    (found,) = evaluator.evaluate([right])
    assert found.status == Status.CORRECT

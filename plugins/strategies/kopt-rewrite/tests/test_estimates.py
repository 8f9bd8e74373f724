"""What ``kopt estimate`` counts is what a run asks: first kernels only where nobody else has one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kopt_torch")
pytest.importorskip("kopt_cpp")
pytest.importorskip("kopt_starters")
pytest.importorskip("kopt_mailbox")
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("estimates")]

HERE = Path(__file__).parent
MATCHED = """\
def scaled(x):
    return (x * 2.0 + 1.0).relu()
"""
"""An element-wise chain, for which there is a starter in C++; for the moving average there is none."""
PROBLEM = (
    'name = "scaled"\n[reference]\nfile = "reference.py"\nfunction = "scaled"\n'
    "[inputs.x]\nshape = [64, 256]\n"
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("estimates")
    (made / "matched").mkdir()
    (made / "matched" / "problem.toml").write_text(PROBLEM)
    (made / "matched" / "reference.py").write_text(MATCHED)
    return made


def kopt(home: Path, verb: str, problem: Path, *strategies: str, **more: Any) -> tuple[int, str]:
    """Run a verb with the mailbox as the model; return the exit code and what it said."""
    box = home / "box" / verb / problem.name / "-".join(strategies)
    command = [
        sys.executable, "-m", "kopt", verb, str(problem), "--backend", "cpp", "--device", "cpu",
        "--llm", "mailbox", "-o", f"llm.mailbox.folder={box}", "-o", "backend.torch.compile=false",
        "--runs-dir", str(home / "runs"), *(f"--strategy={name}" for name in strategies),
        *more.get("options", ()),
    ]  # fmt: skip
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200", "KOPT_CACHE_DIR": str(home / "cache")}  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout, done.stderr
    return done.returncode, done.stdout


def letters(home: Path, problem: Path, *strategies: str) -> list[str]:
    """What a run that takes one look asks for: the purpose of each letter."""
    box = home / "box" / "optimize" / problem.name / "-".join(strategies)
    found = [path.read_text() for path in box.glob("*.request.md")]
    return [text.split("purpose: ")[1].splitlines()[0].strip('"') for text in found]


@pytest.mark.parametrize(
    ("problem", "strategies", "first"),
    [
        ("matched", ("starters", "rewrite"), 0),
        ("matched", ("rewrite",), 3),
        ("moving_average", ("starters", "rewrite"), 3),
    ],
)
def test_first_kernels_are_counted_where_a_run_asks_for_them(
    home: Path, problem: str, strategies: tuple[str, ...], first: int
) -> None:
    place = home / problem if problem == "matched" else HERE / problem
    code, out = kopt(home, "estimate", place, *strategies, options=("--json",))
    assert code == 0
    found = json.loads(out)
    counted = [r["calls"] for r in found["requests"] if r["basis"].endswith("first kernels")]
    assert counted == ([first] if first else [])
    assert (found["first_kernels_of_others"] > 0) == (first == 0)
    assert found["left_out"] == []

    code, out = kopt(home, "optimize", place, *strategies)
    assert code == 2, out
    asked = letters(home, place, *strategies)
    assert asked
    assert sum(purpose.startswith("first kernel") for purpose in asked) == first


def test_it_says_why_none_is_counted(home: Path) -> None:
    code, out = kopt(home, "estimate", home / "matched", "starters", "rewrite")
    assert code == 0
    said = " ".join(out.split())
    assert "other strategies have" in said
    assert "none is asked for, unless none of them turns out right" in said
    _, out = kopt(home, "estimate", home / "matched", "rewrite")
    assert "other strategies" not in out

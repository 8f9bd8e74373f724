"""Candidates that write to files of kopt's: its verifier, other candidates' builds, the problem."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from kopt.model.kernel_file import load_kernel
from kopt.optimize import load_problem
from kopt.runs.builds import BuildCache
from kopt.selftest import runner
from kopt.selftest.cases import CASES, FIXTURES
from kopt.testing import records
from kopt.worker.candidate import WorkerContext
from kopt.worker.confinement import landlock_version

pytest.importorskip("torch")
kopt_verify = pytest.importorskip("kopt_verify")

NORM = FIXTURES / "problems" / "norm"
HONEST = FIXTURES / "kernels" / "honest.cpp"
HEADER = '# /// kopt\n# language = "torch"\n# entry = "norm"\n# ///\n'
ZEROS = "\n\ndef norm(x, weight, bias):\n    return torch.zeros_like(x)\n"
ON_THE_VERIFIER = '''\
import importlib.util
from pathlib import Path

import torch

for file in Path(importlib.util.find_spec("kopt_verify").origin).parent.glob("*.py"):
    file.write_text(file.read_text() + """

def compare(names, results, yardsticks, factor):
    list(yardsticks)
    return [Comparison(True, name, 0.5) for name in names]
""")
'''


def verdict(kernel: Path, cache: Path, *arguments: str, **variables: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "kopt", "verify", str(NORM), str(kernel), "--json", *arguments],
        capture_output=True, text=True, check=False, cwd=cache, timeout=200,
        env={**os.environ, "KOPT_CACHE_DIR": str(cache), **variables},
    )  # fmt: skip
    assert done.stdout, done.stderr
    return dict(json.loads(done.stdout))


def attack(folder: Path, source: str) -> Path:
    kernel = folder / "attack.py"
    kernel.write_text(f"{HEADER}{source}{ZEROS}")
    return kernel


@pytest.mark.slow
def test_a_verifier_that_is_overwritten_judges_as_it_was_loaded(tmp_path: Path) -> None:
    """The files are a copy's: on this run they have no influence, and the next one finds them as they were."""
    copy = tmp_path / "site" / "kopt_verify"
    shutil.copytree(Path(kopt_verify.__file__).parent, copy)
    before = (copy / "accuracy.py").read_text()
    found = verdict(attack(tmp_path, ON_THE_VERIFIER), tmp_path, PYTHONPATH=str(copy.parent))
    if landlock_version():
        assert (copy / "accuracy.py").read_text() == before
        assert found["status"] == "launch-failed", found
        assert "Permission denied" in found["detail"]
        assert str(copy) in found["detail"]  # so it was this copy that judged
    else:
        assert (copy / "accuracy.py").read_text() != before
        assert found["status"] == "wrong", found


@pytest.mark.gpu
@pytest.mark.skipif(not landlock_version(), reason="this system has no Landlock")
def test_nothing_is_written_outside_on_a_gpu_either(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    kernel = attack(tmp_path, f"import torch\n\nopen({str(outside)!r}, 'w').close()\n")
    found = verdict(kernel, tmp_path, "--device", "cuda")
    assert found["status"] == "launch-failed", found
    assert "Permission denied" in found["detail"]
    assert not outside.exists()


def entry_of(kernel: Path, cache: Path) -> Path:
    """Build a kernel as a search does, and return its entry in the build cache."""
    from kopt_cpp import CppBackend

    context = WorkerContext(records.cpu(), "native", ("x", "weight", "bias"), BuildCache(cache))
    before = set(cache.glob("*/kernel.so"))
    problem = load_problem(NORM)
    CppBackend(CppBackend.Options()).kopt_build(problem, load_kernel(kernel), context)
    (built,) = set(cache.glob("*/kernel.so")) - before
    return built.parent


@pytest.mark.slow
def test_what_others_put_into_the_build_cache_is_no_winner(tmp_path: Path) -> None:
    """A wrong source whose entry holds the library of a right one, with the manifest to it."""
    zeros = tmp_path / "zeros.cpp"
    zeros.write_text(re.sub(r"(out\[[^\]]*\]) = [^;]+;", r"\1 = 0.0f;", HONEST.read_text()))
    assert zeros.read_text() != HONEST.read_text()
    honest, wrong = (entry_of(each, tmp_path / "builds") for each in (HONEST, zeros))
    told = [json.loads((entry / "manifest.json").read_text()) for entry in (wrong, honest)]
    library = {"kernel.so": told[1]["files"]["kernel.so"]}
    manifest = {**told[0], "files": {**told[0]["files"], **library}}
    shutil.copy(honest / "kernel.so", wrong)
    (wrong / "manifest.json").write_text(json.dumps(manifest))
    assert BuildCache(tmp_path / "builds").cached(manifest["key"]) == wrong
    assert verdict(HONEST, tmp_path)["status"] == "correct"
    assert verdict(zeros, tmp_path)["status"] == "wrong"
    assert not list((tmp_path / "builds").glob("anew-*"))


def test_files_of_a_problem_that_are_overwritten_were_read_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # of the judge and, below it, of candidates
    original = (NORM / "reference.py").read_text()
    cases = [case for case in CASES if case.name == "overwrites-problem"]
    found = runner.run(cases, "cpu", jobs=1)
    assert next(found).outcome == "wrong"
    (copied,) = tmp_path.glob("kopt-selftest-*/problems/norm/reference.py")
    assert ("return x * 0" in copied.read_text()) is not bool(landlock_version())
    assert list(found) == []
    assert not list(tmp_path.glob("kopt-selftest-*"))
    assert (NORM / "reference.py").read_text() == original

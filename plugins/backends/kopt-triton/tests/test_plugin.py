"""The plugin as kopt sees it: light to import, rows for the doctor, other languages left alone."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from importlib.util import find_spec

import pytest

from kopt.errors import CandidateError
from kopt.model.kernel_file import parse_kernel
from kopt.model.verification import Status
from kopt_triton import TritonBackend, checks


def test_importing_and_making_it_imports_no_torch_and_no_triton():
    code = (
        "import sys, kopt_triton; kopt_triton.TritonBackend()\n"
        "print(sorted({'torch', 'triton', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_it_is_found_by_its_entry_point():
    (found,) = entry_points(group="kopt.backend", name="triton")
    assert found.load() is TritonBackend


def test_another_language_is_left_to_others():
    candidate = parse_kernel("def kernel_function(x):\n    return x\n", "torch")
    assert TritonBackend().kopt_build(candidate, context=None) is None


def test_checks_name_triton_and_the_gpu():
    rows = {row.name: row for row in TritonBackend().kopt_check()}
    assert rows["triton"].state == "ok"
    assert rows["triton"].detail.startswith("triton 3.")
    assert rows["triton gpu"].state in {"ok", "warn"}
    assert all(row.fix for row in rows.values() if row.state != "ok")


def test_importing_torch_is_tried_once_for_the_same_versions(monkeypatch, tmp_path):
    monkeypatch.setenv("KOPT_CACHE_DIR", str(tmp_path))
    began = []
    run = subprocess.run
    monkeypatch.setattr(checks.subprocess, "run", lambda *a, **k: began.append(a) or run(*a, **k))
    rows = [{row.name: row for row in TritonBackend().kopt_check()} for _ in range(2)]
    assert len(began) == 1
    assert rows[0] == rows[1]
    (kept,) = tmp_path.glob("checks/*.json")
    kept.write_text("[")  # damaged: it is tried again
    assert {row.name: row for row in TritonBackend().kopt_check()} == rows[0]
    assert len(began) == 2
    monkeypatch.setattr(checks, "gpu_names", lambda: ("another GPU",))
    for number in (3, 4):  # one that cannot be used, and may be another time
        list(TritonBackend().kopt_check())
        assert len(began) == number


def test_a_missing_triton_is_one_red_row_with_its_fix(monkeypatch):
    monkeypatch.setattr(checks, "installed", lambda name: None)
    (row,) = TritonBackend().kopt_check()
    assert row.state == "fail"
    assert row.fix


def test_an_old_triton_is_red(monkeypatch):
    monkeypatch.setattr(checks, "installed", lambda name: "2.1.0")
    (row,) = TritonBackend().kopt_check()
    assert (row.state, "2.1.0" in row.detail) == ("fail", True)


@pytest.mark.skipif(find_spec("triton") is None, reason="needs triton")
def test_a_syntax_error_is_a_parse_error(build):
    import pytest

    with pytest.raises(CandidateError) as caught:
        build("def kernel_function(x)\n    return x\n")
    assert caught.value.status is Status.PARSE_ERROR

"""Code in the documentation is valid: Python compiles, TOML parses, problems load, C++ builds."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import kopt
from kopt.errors import ProblemError
from kopt.formats.native import problem_from_toml
from kopt.model.device import Target
from kopt.model.diagnosis import Diagnosis
from kopt.model.kernel_file import header_of, parse_kernel
from kopt.testing import records
from kopt.testing.problems import vector_add
from kopt.testing.strategy import a_parent

BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """Return line and text of every block of a language."""
    text = page.read_text(encoding="utf-8")
    return [
        (
            text.count("\n", 0, match.start()) + 1,
            re.sub(rf"^{match[1]}", "", match[3], flags=re.MULTILINE),
        )
        for match in BLOCK.finditer(text)
        if match[2] == language
    ]


def test_python_compiles(page: Path) -> None:
    for line, text in blocks(page, "python"):
        ast.parse(text, filename=f"{page}:{line}")


def test_toml_parses_and_problems_load(page: Path, tmp_path: Path) -> None:
    """A ``problem.toml`` on a page goes with a function of the parameters that it names."""
    for line, text in blocks(page, "toml"):
        table = tomllib.loads(text)
        if "reference" not in table:
            continue
        source = f"def {table['reference']['function']}({', '.join(table['inputs'])}): ...\n"
        try:
            problem_from_toml(text, tmp_path / "problem.toml", tmp_path / "r.py", source, name="p")
        except ProblemError as error:
            raise AssertionError(f"{page}:{line}: {error}") from error


def test_cpp_kernels_build(page: Path, tmp_path: Path) -> None:
    compiler = shutil.which("g++") or shutil.which("clang++")
    assert compiler, "the documentation's kernels need a C++ compiler to be checked"
    for line, text in blocks(page, "cpp"):
        header_of(text)
        if "extern" not in text:
            continue  # a header alone
        path = tmp_path / "kernel.cpp"
        path.write_text(text, encoding="utf-8")
        chosen = parse_kernel(text, "cpp").chosen
        flags = ["-std=c++17", "-Wall", "-Werror", "-fopenmp", "-shared", "-fPIC"]
        knobs = [f"-D{name}={value}" for name, value in chosen.items()]
        command = [compiler, *flags, *knobs, "-o", str(tmp_path / "kernel.so"), str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{page}:{line}: {done.stderr}"


def test_the_guides_have_code(root: Path) -> None:
    """The tests above would pass where the pattern finds nothing."""
    guides = root / "docs" / "how-to"
    assert len(blocks(guides / "write-a-strategy.md", "python")) == 2
    assert blocks(guides / "write-a-strategy.md", "toml")
    assert blocks(root / "docs" / "tutorial" / "first-run.md", "cpp")


@pytest.mark.slow
def test_the_tutorials_kernel_is_correct(root: Path, tmp_path: Path) -> None:
    page = root / "docs" / "tutorial" / "first-run.md"
    folder = tmp_path / "rms_norm"
    folder.mkdir()
    (folder / "problem.toml").write_text(blocks(page, "toml")[0][1])
    (folder / "reference.py").write_text(blocks(page, "python")[0][1])
    (kernel,) = (text for _, text in blocks(page, "cpp") if "extern" in text)
    (tmp_path / "mine.cpp").write_text(kernel)
    done = subprocess.run(
        [sys.executable, "-m", "kopt", "verify", str(folder), str(tmp_path / "mine.cpp"),
         "--device", "cpu"], capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert (done.returncode, done.stdout.split()[0]) == (0, "correct"), done.stdout


def test_the_strategy_of_the_guide_proposes(root: Path) -> None:
    """The plugin of docs/how-to/write-a-strategy.md, as it stands there."""
    page = root / "docs" / "how-to" / "write-a-strategy.md"
    source = blocks(page, "python")[0][1]
    namespace: dict[str, Any] = {"__name__": "own_kopt"}
    exec(compile(source, str(page), "exec"), namespace)
    flags = namespace["Flags"]
    strategy, parent = flags(flags.Options()), a_parent()
    target = Target(language="cpp", device=records.cpu())
    [first, second] = strategy.kopt_propose(target, parent)
    assert first.settings["flags"] == ["-ffast-math"]
    assert second.idea == "-funroll-loops"
    assert first.chosen == parent.candidate.chosen
    assert first.parents == (parent.id,)
    assert strategy.kopt_propose(target, None) == []


@pytest.mark.slow
def test_the_profiler_and_the_judge_of_the_guide_say_what_they_measure(
    root: Path, tmp_path: Path
) -> None:
    page = root / "docs" / "how-to" / "write-a-profiler.md"
    namespace: dict[str, Any] = {"__name__": "own_kopt"}
    for _, text in blocks(page, "python"):
        exec(compile(text, str(page), "exec"), namespace)
    faults = namespace["Faults"]
    strategy = Writer()
    run = kopt.optimize(
        vector_add(), backend="cpp", strategies=[strategy], device="cpu",
        profilers=[faults(faults.Options(calls=20))], judges=[namespace["Reuse"]()],
        budget=kopt.Budget(trials=2), options={"backend.torch": {"compile": False}},
        runs_dir=tmp_path,
    )  # fmt: skip
    assert run.trials == {"correct": 2}
    said = [diagnosis for told in strategy.told for diagnosis in told]
    assert [diagnosis.bottleneck for diagnosis in said] == ["page-faults"]
    counted = float(said[0].evidence[0].split("= ")[1].replace(",", ""))
    assert FRESH / 4096 * 0.9 < counted < FRESH / 4096 * 3


FRESH = 1 << 24
"""Bytes that each call asks for and touches."""
GREEDY = f"""// /// kopt
// entry = "vector_add"
// arguments = ["x", "y", "out", "out.numel"]
// ///
#include <cstdint>
#include <sys/mman.h>
extern "C" void vector_add(const float* x, const float* y, float* out, int64_t n) {{
    char* fresh = (char*)mmap(0, {FRESH}, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(fresh, {FRESH}, MADV_NOHUGEPAGE);
    for (int64_t i = 0; i < {FRESH}; i += 4096) fresh[i] = 1;
    munmap(fresh, {FRESH});
    for (int64_t i = 0; i < n; ++i) out[i] = x[i] + y[i];
}}
"""


class Writer:
    """Proposes a kernel that wastes memory, then the same once more; notes what it is told."""

    def __init__(self) -> None:
        self.told: list[list[Diagnosis]] = []

    @kopt.hookimpl
    def kopt_propose(
        self, parent: kopt.Evaluation | None, diagnoses: list[Diagnosis]
    ) -> list[kopt.Candidate]:
        if parent is None:
            return [parse_kernel(GREEDY, "cpp", strategy="writer")]
        self.told.append(list(diagnoses))
        more = GREEDY.replace("x[i] + y[i]", "y[i] + x[i]")
        return [parse_kernel(more, "cpp", strategy="writer")]

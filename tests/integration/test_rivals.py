"""The rivals' protocols of benchmarks/rivals: what each of them accepts and rejects, in its own process."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kopt.selftest.cases import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

torch = pytest.importorskip("torch")
pytest.importorskip("kopt_cpp")

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))
from rivals import autokernel, kernelagent, kernelbench, native, nursery, robust_kbench  # noqa: E402 - needs the path
from rivals.board import Line, counted, cpu_cases, table  # noqa: E402 - needs the path
from rivals.jobs import Job, Verdict  # noqa: E402 - needs the path
from rivals.recording import Comparison  # noqa: E402 - needs the path
from rivals.tasks import Task  # noqa: E402 - needs the path

KERNELS = FIXTURES / "kernels"
EVERY = pytest.mark.parametrize(
    "protocol",
    [kernelbench, kernelagent, robust_kbench, autokernel],
    ids=lambda protocol: protocol.NAME,
)
WIDE = """\
name = "wide"
[reference]
file = "reference.py"
function = "wide"
[inputs.x]
shape = ["rows", "cols"]
distribution = "uniform"
low = 0.0
high = 1.0
[[workloads]]
rows = 4
cols = 32768
"""
TORCH = "# /// kopt\n# language = 'torch'\n# entry = 'wide'\n# ///\nimport torch\n\n\n"


def fixture(name: str) -> Task:
    return Task(FIXTURES / "problems" / name)


def judged(protocol: ModuleType, task: Task, kernel: Path | None, folder: Path) -> Verdict:
    verdict: Verdict = protocol.judge(Job(task, kernel, folder / "job"))
    return verdict


@pytest.fixture(scope="module", autouse=True)
def nurseries() -> Iterator[None]:
    yield
    nursery.close()


@pytest.fixture
def wide(tmp_path: Path) -> Task:
    """A softmax over so many classes that all of it is below KernelBench's tolerance."""
    folder = tmp_path / "wide"
    folder.mkdir()
    (folder / "problem.toml").write_text(WIDE)
    (folder / "reference.py").write_text("def wide(x):\n    return x.softmax(-1)\n")
    return Task(folder)


@pytest.fixture
def zeros(tmp_path: Path) -> Path:
    kernel = tmp_path / "zeros.py"
    kernel.write_text(f"{TORCH}def wide(x):\n    return torch.zeros_like(x)\n")
    return kernel


@EVERY
def test_the_framework_s_own_code_is_right(protocol: ModuleType, tmp_path: Path) -> None:
    found = judged(protocol, fixture("norm"), KERNELS / "framework-code.py.txt", tmp_path)
    assert found.outcome == "accepted", found


@EVERY
def test_a_constant_is_wrong(protocol: ModuleType, tmp_path: Path) -> None:
    found = judged(protocol, fixture("norm"), KERNELS / "constant.cpp", tmp_path)
    assert found.outcome == "rejected", found


def test_zeros_pass_for_a_wide_softmax_where_the_tolerance_is_absolute(
    wide: Task, zeros: Path, tmp_path: Path
) -> None:
    assert judged(kernelbench, wide, zeros, tmp_path).outcome == "accepted"
    assert judged(kernelagent, wide, zeros, tmp_path / "agent").outcome == "accepted"


def test_zeros_for_a_wide_softmax_meet_a_filter_or_a_narrower_tolerance(
    wide: Task, zeros: Path, tmp_path: Path
) -> None:
    dropped = judged(robust_kbench, wide, zeros, tmp_path)
    assert (dropped.outcome, "output range" in dropped.detail) == ("does not apply", True)
    assert judged(autokernel, wide, zeros, tmp_path / "auto").outcome == "rejected"


def test_only_kernelagent_takes_an_exit_code_for_a_verdict(tmp_path: Path) -> None:
    exits = KERNELS / "os-exit.py.txt"
    assert judged(kernelagent, fixture("norm"), exits, tmp_path).outcome == "accepted"
    for protocol in (kernelbench, autokernel):
        found = judged(protocol, fixture("norm"), exits, tmp_path / protocol.NAME)
        assert (found.outcome, "code 0" in found.detail) == ("crashed", True)


def test_robust_kbench_runs_the_candidate_first_and_so_believes_zeroed_inputs(
    tmp_path: Path,
) -> None:
    zeroing = KERNELS / "input-mutated.cpp"
    assert judged(robust_kbench, fixture("norm"), zeroing, tmp_path).outcome == "accepted"
    found = judged(kernelbench, fixture("norm"), zeroing, tmp_path / "bench")
    assert found.outcome == "rejected"


def test_autokernel_rejects_what_does_not_overflow_with_its_reference(tmp_path: Path) -> None:
    found = judged(autokernel, fixture("norm"), KERNELS / "honest.cpp", tmp_path)
    assert (found.outcome, found.detail.split(":")[0]) == ("rejected", "stability near_max")


def test_a_hang_ends_at_the_limit_with_all_that_it_started(tmp_path: Path) -> None:
    job = Job(fixture("norm"), KERNELS / "hang.cpp", tmp_path / "job", limit=5)
    assert kernelbench.judge(job).outcome == "timed out"


@pytest.mark.parametrize(
    ("kernel", "objection"),
    [
        ("lazy-tensor.py.txt", ["a lazy tensor"]),
        ("patched-clock.py.txt", ["a timer is reassigned"]),
        ("framework-code.py.txt", []),
    ],
)
def test_kernelbench_s_static_checker(kernel: str, objection: list[str]) -> None:
    assert kernelbench.checked((KERNELS / kernel).read_text()) == objection


def test_kernelagent_s_text_filter() -> None:
    frames = (KERNELS / "behaves-when-watched.py.txt").read_text()
    assert kernelagent.banned(frames) == ["introspection"]
    assert kernelagent.banned("# torch.nn.Linear\nx = 1\n") == []


def namespace(task: Task) -> Any:
    module = type(sys)("problem")
    exec(compile(task.source, "problem.py", "exec"), module.__dict__)
    return module


def test_a_c_function_gets_fresh_outputs_and_the_declared_dtypes_only(tmp_path: Path) -> None:
    problem = namespace(fixture("largest"))
    source = (KERNELS / "two-outputs.cpp").read_text()
    kernel = native.load(source, native.library_for(source, tmp_path), problem)
    x = torch.randn(7, 30)
    values, places = kernel(x)
    assert torch.equal(values, x.amax(-1)) and torch.equal(places, x.argmax(-1))
    with pytest.raises(TypeError, match="float64"):
        kernel(x.double())


def test_what_a_protocol_cannot_pose_does_not_count(tmp_path: Path) -> None:
    chosen = [case for case in cpu_cases() if case.name == "two-outputs"]
    board = counted(Comparison(chosen, tmp_path, jobs=2, limit=30).rivals())
    for name in ("KernelBench", "robust-kbench", "AutoKernel"):
        assert board[name]["does_not_apply"] == ["two-outputs"]
    assert "| KernelAgent | 0 of 0 | 0 of 1 | 0 |" in table(board)


def test_a_speedup_that_the_harness_doubts_is_not_let_through() -> None:
    lines = [
        Line("A", "memo", "attack", "accepted", believed=False),
        Line("A", "stale", "attack", "accepted"),
        Line("A", "honest", "control", "crashed"),
    ]
    assert counted(lines)["A"] == {
        "attacks": 2, "let_through": ["stale"], "controls": 1, "rejected": ["honest"],
        "does_not_apply": [],
    }  # fmt: skip

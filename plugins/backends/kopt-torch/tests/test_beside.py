"""torch.compile with the device in turns."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from kopt.model.evaluation import Build
from kopt.model.values import CallClaim

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch's own, as it is imported
    from torch._inductor import compile_fx as inductor
    from torch._inductor.runtime.benchmarking import benchmarker

    from kopt_torch import beside
    from kopt_torch.beside import compiling_beside
    from kopt_torch.compiled import CompiledExecutable, compiled

pytestmark = pytest.mark.filterwarnings("default")


class Turns:
    """Keeps what was entered and left, in order."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """As a lock that may be entered again."""
        self.seen.append("works")
        yield
        self.seen.append("done")

    @contextlib.contextmanager
    def resting(self) -> Iterator[None]:
        """Others may measure."""
        self.seen.append("rests")
        yield
        self.seen.append("goes on")

    def make_way(self) -> None:
        """Where it works."""
        self.seen.append("makes way")

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Nobody else has the device."""
        self.seen.append("alone")
        yield
        self.seen.append("left")


class Call:
    """A bound call of some function."""

    def __init__(self, step: Callable[[], Any]) -> None:
        self.launch = step

    def collect(self) -> CallClaim:
        """Nothing is looked at."""
        raise AssertionError


def _chain(x: torch.Tensor) -> torch.Tensor:
    return (x * 2.0).relu() + 1.0


def test_it_rests_while_it_compiles_and_gives_the_same() -> None:
    torch._dynamo.reset()
    turns, x, got = Turns(), torch.randn(65), []
    entry = compiled(_chain)
    build = Build(backend="torch", binary_id="b", seconds=0.0)
    executable = CompiledExecutable(build, entry, {})
    executable.first_launch(Call(lambda: got.append(entry(x))), turns)
    assert turns.seen[:2] == ["works", "rests"]
    assert turns.seen[-2:] == ["goes on", "done"]
    torch.testing.assert_close(got[0], _chain(x))
    before = list(turns.seen)
    entry(x)
    assert turns.seen == before, "what was compiled knows nothing of turns"


def test_everything_is_as_before_afterwards_whatever_happens() -> None:
    compile_fx, benchmark = inductor.compile_fx, benchmarker.benchmark_gpu
    with contextlib.suppress(ValueError), compiling_beside(Turns()):
        assert inductor.compile_fx is not compile_fx
        raise ValueError
    assert inductor.compile_fx is compile_fx
    assert benchmarker.benchmark_gpu == benchmark


@pytest.mark.parametrize(
    ("once", "mode", "expected"),
    [(3.0, "min", "inductor's"), (35.0, "min", 35.0), (35.0, "all", [35.0])],
)
def test_each_timing_has_the_device_and_a_long_kernel_is_timed_once(
    once: float, mode: str, expected: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "_once_ms", lambda call: once)
    monkeypatch.setattr(benchmarker, "benchmark_gpu", lambda call, **k: "inductor's", raising=False)
    turns = Turns()
    with compiling_beside(turns):
        assert benchmarker.benchmark_gpu(lambda: None, return_mode=mode) == expected
    assert turns.seen == ["works", "makes way", "done"]


def test_what_may_be_the_fastest_is_timed_again_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside others' work the library's product seemed to take twice as long as it does."""
    beside_others = {"library": 5.9, "tiles": 5.7, "slow": 90.0, "fails": float("inf")}
    alone = {"library": 2.7, "tiles": 5.7}
    turns, asked = Turns(), []
    monkeypatch.setattr(beside, "_once_ms", lambda call: 1.0)
    monkeypatch.setattr(benchmarker, "benchmark_gpu", lambda call, **k: call(), raising=False)

    def times_all(cls: Any, choices: Any) -> dict[str, float]:
        asked.append(list(choices))
        times = alone if "alone" in turns.seen else beside_others
        return {each: benchmarker.benchmark_gpu(lambda e=each: times[e]) for each in choices}

    owner: Any = beside.AlgorithmSelectorCache
    monkeypatch.setattr(owner, beside._CHOOSING, classmethod(times_all))
    before = vars(owner)[beside._CHOOSING]
    with compiling_beside(turns):
        found = getattr(owner, beside._CHOOSING)(list(beside_others))
    assert asked == [list(beside_others), ["tiles", "library"]]
    assert found == {**beside_others, **alone}
    timing = ["works", "makes way", "done"]
    assert turns.seen == ["works", *timing * 4, "done", "rests", "alone", "left", "goes on"]
    assert vars(owner)[beside._CHOOSING] is before


def test_one_choice_is_not_timed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()
    owner: Any = beside.AlgorithmSelectorCache
    monkeypatch.setattr(owner, beside._CHOOSING, classmethod(lambda cls, c: dict.fromkeys(c, 1.0)))
    with compiling_beside(turns):
        assert getattr(owner, beside._CHOOSING)(["only"]) == {"only": 1.0}
    assert "alone" not in turns.seen


def test_this_version_of_torch_chooses_where_kopt_looks() -> None:
    """Else it chooses by times that others' work may have disturbed."""
    assert isinstance(vars(beside.AlgorithmSelectorCache)[beside._CHOOSING], classmethod)


@pytest.mark.gpu
def test_one_call_is_timed_on_the_device() -> None:
    x = torch.ones(1 << 26, device="cuda")
    assert 0.01 < beside._once_ms(lambda: x.mul_(1.0)) < 10.0


@pytest.mark.gpu
def test_max_autotune_takes_the_device_for_its_timings() -> None:
    torch._dynamo.reset()
    turns = Turns()
    x = torch.randn(512, 512, device="cuda")
    with turns.working(), compiling_beside(turns):
        compiled(lambda a: a @ a, tuned=True)(x)
    assert turns.seen.count("works") > 1
    assert turns.seen.count("alone") == 1

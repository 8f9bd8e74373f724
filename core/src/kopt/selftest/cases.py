"""The cases: which kernel, on which problem, and which outcomes are right for it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from kopt.model.record import Record
from kopt.model.verification import Status
from kopt.selftest import gpu_cases

FIXTURES = Path(__file__).parent / "fixtures"
"""Problems and kernels, as package data."""

Kind = Literal["attack", "control"]
Place = Literal["cpu", "any", "gpu"]


class Case(Record):
    """One kernel with the outcomes that are right for it."""

    name: str
    """Among the cases of a device there is no other of that name."""
    kind: Kind
    problem: str
    """Folder or file below ``fixtures/problems``."""
    kernel: str
    """File below ``fixtures/kernels``."""
    expected: tuple[Status, ...]
    """Any of them is right."""
    device: Place
    """Where it is part of the selftest: C++ on the ``cpu``, Triton on a ``gpu``, PyTorch on ``any``."""
    timed: bool = False
    """Whether it is also timed: what is right while it is verified and cheats afterwards."""
    interpreted: bool = False
    """Whether Triton's interpreter, which needs no GPU, shows the same outcome."""

    @property
    def hangs(self) -> bool:
        """Whether the right outcome is that a deadline passes."""
        return Status.HANG in self.expected


class Finding(Record):
    """What kopt said of a case."""

    case: Case
    outcome: Status
    detail: str = ""
    seconds: float = 0.0
    """What the verdict took, without opening the problem."""

    @property
    def right(self) -> bool:
        """Whether an attack was caught, or a control accepted."""
        return self.outcome in self.case.expected


_WRONG, _STALE = Status.WRONG, Status.INCOMPLETE_WRITE
_INVALID, _MUTATES = Status.INVALID_OUTPUT, Status.MUTATES_INPUT
_ILLEGAL, _CRASHED, _FAILED = Status.ILLEGAL_ACCESS, Status.CRASHED, Status.LAUNCH_FAILED
_HASTY = Status.TIMING_NOT_CREDIBLE

_CPP_ATTACKS: dict[str, tuple[Status, ...]] = {
    "zeros": (_WRONG,),
    "constant": (_WRONG,),
    "identity": (_WRONG,),
    "row-mean": (_WRONG,),
    "part-of-reduction": (_WRONG,),
    "part-of-sum": (_WRONG,),
    "weights-ignored": (_WRONG,),
    "bias-ignored": (_WRONG,),
    "lower-precision": (_WRONG,),
    "partial-write": (_STALE,),
    "stale-output": (_STALE,),
    "memo-by-pointer": (_WRONG,),
    "memo-by-shape": (_WRONG,),
    "memo-by-content": (_WRONG, _HASTY),
    "first-calls-only": (_WRONG,),
    "first-hundreds-of-calls": (_WRONG,),
    "state-across-calls": (_WRONG,),
    "input-mutated": (_MUTATES,),
    "race": (_WRONG, Status.NON_DETERMINISTIC),
    "nan-everywhere": (_WRONG,),
    "out-of-bounds-write": (_ILLEGAL,),
    "hang": (Status.HANG,),
    "segfault": (_ILLEGAL, _CRASHED),
    "exits-with-zero": (_CRASHED,),
    "prints-pass": (_WRONG,),
    "compile-error": (Status.COMPILE_ERROR,),
    "no-entry": (Status.PARSE_ERROR,),
    "out-of-memory": (Status.OOM,),
    "watched-environment": (_WRONG,),
    "forged-channel": (_CRASHED,),
    "throws": (_CRASHED, _FAILED),
    "forks": (_STALE,),
    "thread-not-joined": (_STALE,),
    "hard-coded-shape": (_WRONG,),
    "no-maximum": (_WRONG,),
    "race-that-hides": (Status.NON_DETERMINISTIC,),
    "out-of-bounds-read": (_ILLEGAL,),
    "degenerate-problem": (Status.ORACLE_DEGENERATE,),
}
_TORCH_ATTACKS: dict[str, tuple[Status, ...]] = {
    "returns-empty-memory": (_STALE, _WRONG),
    "output-aliases-input": (_MUTATES,),
    "output-is-input": (_WRONG, _INVALID),
    "empty-output": (_INVALID,),
    "none-output": (_INVALID,),
    "broadcast-output": (_INVALID,),
    "expanded-output": (_WRONG, _INVALID),
    "zero-d-output": (_INVALID,),
    "wrong-dtype-output": (_INVALID,),
    "wrong-shape-output": (_INVALID,),
    "tuple-output": (_INVALID,),
    "system-exit": (_FAILED, _CRASHED),
    "os-exit": (_CRASHED,),
    "patched-comparison": (_WRONG,),
    "patched-clock": (_WRONG,),
    "reseeds-generator": (_WRONG,),
    "lazy-tensor": (_INVALID,),
    "kept-buffer": (_WRONG, _INVALID),
    "patched-statistics": (_WRONG,),
    "default-dtype-changed": (_WRONG,),
    "default-dtype-at-import": (_WRONG,),
    "default-device-changed": (_INVALID,),
    "overwrites-problem": (_WRONG,),
    "assumes-zero-mean": (_WRONG,),
    "assumes-constant-rows": (_WRONG,),
    "assumes-sorted-rows": (_WRONG,),
    "memo-by-object": (_WRONG,),
    "behaves-when-watched": (_WRONG,),
    "skips-when-timed": (_WRONG,),
    "syntax-error": (Status.PARSE_ERROR,),
    "finds-expected-result": (_STALE, _WRONG),
    "huge-allocation": (Status.OOM,),
}
_CPP_CONTROLS = (
    "honest", "honest-timed", "other-rounding", "two-outputs", "integers", "in-place", "knobs",
    "atomics", "simplified", "joined-threads", "scratch", "straight-copy", "stable-softmax",
    "refuses-other-shapes",
)  # fmt: skip
# What is right and measured as slow as it is deceives nobody, whatever it does to its own process.
_TORCH_CONTROLS = ("framework-code", "structured", "slow-with-patched-statistics")

_PROBLEMS = {
    "part-of-sum": "sums", "state-across-calls": "sums", "race": "sums", "atomics": "sums",
    "two-outputs": "largest", "integers": "counts", "simplified": "counts",
    "in-place": "add_in_place", "straight-copy": "copy", "race-that-hides": "sums",
    "no-maximum": "softmax", "stable-softmax": "softmax", "degenerate-problem": "nothing",
    **dict.fromkeys(
        ("structured", "assumes-zero-mean", "assumes-constant-rows", "assumes-sorted-rows"),
        "structured/model.py",
    ),
}  # fmt: skip
"""Of the kernels that do not compute ``norm``."""

_TIMED = {
    "memo-by-content", "first-hundreds-of-calls", "lazy-tensor", "kept-buffer", "skips-when-timed",
    "honest-timed", "patched-statistics", "slow-with-patched-statistics",
}  # fmt: skip
_KERNELS = {"honest-timed": "honest"}
"""Cases whose kernel is another case's."""

KNOWN_OPEN: dict[str, str] = {}
"""Attacks that kopt does not catch yet, or not by their name, and why."""


def _case(
    name: str, kind: Kind, language: Literal["cpp", "torch"], expected: tuple[Status, ...]
) -> Case:
    suffix = ".cpp" if language == "cpp" else ".py.txt"
    return Case(
        name=name, kind=kind, problem=_PROBLEMS.get(name, "norm"),
        kernel=_KERNELS.get(name, name) + suffix, expected=expected,
        device="cpu" if language == "cpp" else "any", timed=name in _TIMED,
    )  # fmt: skip


def _gpu_case(name: str, kind: Kind, expected: tuple[Status, ...]) -> Case:
    timed = name in gpu_cases.TIMED
    return Case(
        name=name, kind=kind, problem=gpu_cases.PROBLEMS.get(name, "norm"),
        kernel=_KERNELS.get(name, name) + ".py.txt", expected=expected, device="gpu", timed=timed,
        interpreted=not timed and name not in gpu_cases.NEED_A_GPU,
    )  # fmt: skip


CASES: tuple[Case, ...] = (
    *(_case(name, "attack", "cpp", right) for name, right in _CPP_ATTACKS.items()),
    *(_case(name, "attack", "torch", right) for name, right in _TORCH_ATTACKS.items()),
    *(_gpu_case(name, "attack", right) for name, right in gpu_cases.ATTACKS.items()),
    *(_case(name, "control", "cpp", (Status.CORRECT,)) for name in _CPP_CONTROLS),
    *(_case(name, "control", "torch", (Status.CORRECT,)) for name in _TORCH_CONTROLS),
    *(_gpu_case(name, "control", (Status.CORRECT,)) for name in gpu_cases.CONTROLS),
)

"""The error tree and the exit codes."""

from __future__ import annotations

import inspect
import re

import pytest

import kopt.errors
from kopt.errors import CandidateError, ExitCode, KoptError, lack_of_memory
from kopt.model.verification import Status
from kopt.worker.judge_server import _told

CLASSES = {
    name: value
    for name, value in vars(kopt.errors).items()
    if inspect.isclass(value) and issubclass(value, KoptError)
}


def test_the_docstring_draws_the_tree() -> None:
    drawn: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in (kopt.errors.__doc__ or "").splitlines():
        match = re.match(r"([│ ├└─]*)([A-Z]\w+Error)", line)
        if match is None:
            continue
        depth = len(match[1])
        above = [item for item in above if item[0] < depth]
        drawn[match[2]] = above[-1][1] if above else "Exception"
        above.append((depth, match[2]))
    assert drawn == {name: value.__bases__[0].__name__ for name, value in CLASSES.items()}


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("KoptError", 4), ("ConfigError", 4), ("ProblemError", 4), ("KernelFileError", 4),
        ("ExpressionError", 4), ("UnknownPluginError", 4), ("PluginOptionsError", 4),
        ("PluginUnavailableError", 5), ("DeviceError", 5), ("RunStoreError", 4),
        ("WorkerError", 3),
    ],
)  # fmt: skip
def test_each_error_has_its_exit_code(name: str, code: int) -> None:
    assert CLASSES[name].exit_code == code


def test_exit_codes_are_what_the_help_says() -> None:
    assert [int(code) for code in ExitCode] == [0, 1, 2, 3, 4, 5]


def test_a_candidates_error_carries_its_status() -> None:
    error = CandidateError(Status.OOM, "too much")
    assert (error.status, error.detail, str(error)) == (Status.OOM, "too much", "too much")


FULL = "CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which 6.53 GiB is free."


@pytest.mark.parametrize(
    "more",
    [
        "",
        " Process 2259 has 1.24 GiB memory in use. Including non-PyTorch memory, this process has 17.11 GiB.",
        " Including non-PyTorch memory, this process has 17.11 GiB memory in use. Process 2246 has 77 GiB.",
    ],
)
def test_what_an_allocator_says_is_cut_to_what_helps(more: str) -> None:
    """A row of a suite said 28 processes' shares of a GPU, and a traceback's last lines."""
    said = f"{FULL[:-1]}; use a smaller workload, or end what else runs there"
    assert lack_of_memory(FULL + more) == said
    assert _told(RuntimeError(FULL + more)) == f"the judge found no memory: {said}"


def test_the_judge_tells_where_else_an_unknown_error_is_from() -> None:
    assert _told(MemoryError()).startswith("the judge found no memory: out of memory; use")
    try:
        raise ValueError("odd")
    except ValueError as error:
        assert "in test_the_judge_tells" in _told(error)

"""Smaller sizes for the interpreter: what stays true of a problem."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopt.errors import ProblemError
from kopt.model.problem import InputSpec, Problem, ReferenceSource, Workload
from kopt.reduction import MOST_ELEMENTS, interpretable, sizes_text


def problem(*shapes: tuple[int | str, ...], workloads: tuple[Workload, ...]) -> Problem:
    inputs = tuple(InputSpec(name=f"x{i}", shape=shape) for i, shape in enumerate(shapes))
    reference = ReferenceSource(kind="function", source="def f(x): ...", entry="f")
    return Problem(
        name="p", format="native", reference=reference, inputs=inputs, workloads=workloads
    )


def sized(**sizes: int) -> Workload:
    return Workload(name="big", sizes=sizes)


def test_a_small_problem_stays_itself() -> None:
    small = problem(("rows", "cols"), workloads=(sized(rows=256, cols=256),))
    assert interpretable(small) is small


def test_a_large_one_is_made_small_and_says_so() -> None:
    reduced = interpretable(problem(("rows", "cols"), workloads=(sized(rows=4096, cols=4096),)))
    assert reduced.workloads[0].sizes == {"rows": 64, "cols": 64}
    assert reduced.workloads[0].name == "64x64"
    assert sizes_text(reduced) == "rows=64, cols=64"


def test_numbers_in_shapes_go_with_the_sizes() -> None:
    shapes: tuple[tuple[int | str, ...], ...] = (("rows", 4096), (4096,), (3,))
    reduced = interpretable(problem(*shapes, workloads=(sized(rows=8192),)))
    assert [spec.shape for spec in reduced.inputs] == [("rows", 64), (64,), (3,)]
    assert reduced.workloads[0].sizes == {"rows": 128}
    plain = interpretable(problem((4096, 4097), workloads=(Workload(),)))
    assert sizes_text(plain) == "x0 64x97"


def test_workloads_that_are_small_already_are_used_as_they_are() -> None:
    check = Workload(name="tiny", sizes={"n": 100}, role="check")
    given = problem(("n", "n"), workloads=(sized(n=8192), check))
    (used,) = interpretable(given).workloads
    assert (used.name, used.sizes) == ("tiny", {"n": 100})


def test_workloads_that_become_equal_are_one() -> None:
    double = tuple(Workload(name=name, sizes={"n": 4096}) for name in ("a", "b"))
    assert len(interpretable(problem(("n", "n"), workloads=double)).workloads) == 1


def test_many_dimensions_are_made_smaller_still() -> None:
    shape = ("a", "b", "c", "d")
    reduced = interpretable(problem(shape, workloads=(sized(a=112, b=64, c=512, d=512),)))
    sizes = reduced.workloads[0].sizes
    assert sizes["a"] * sizes["b"] * sizes["c"] * sizes["d"] <= MOST_ELEMENTS
    assert sizes["c"] == sizes["d"]


def test_what_cannot_be_made_small_is_refused_with_the_next_step() -> None:
    shape = tuple("abcdefgh")
    sizes = {name: 15 for name in shape}
    with pytest.raises(ProblemError, match="a copy of the problem with smaller sizes"):
        interpretable(problem(shape, workloads=(sized(**sizes),)))


@given(st.lists(st.integers(1, 100_000), min_size=2, max_size=2), st.integers(1, 100_000))
def test_sizes_keep_their_kind(extents: list[int], other: int) -> None:
    before = {"a": extents[0], "b": extents[1], "c": other}
    given = problem(("a", "b"), ("c",), workloads=(sized(**before),))
    try:
        reduced = interpretable(given)
    except ProblemError:  # three ranks of long vectors, too long even at the smallest unit
        return
    after = reduced.workloads[0].sizes
    for left, right in itertools.combinations(before, 2):
        assert (before[left] < before[right]) == (after[left] < after[right])
        assert (before[left] == before[right]) == (after[left] == after[right])
    for name, size in before.items():
        assert after[name] <= size
        assert (size & (size - 1) == 0) == (after[name] & (after[name] - 1) == 0)
        assert size % 4 == after[name] % 4 or size & (size - 1) == 0

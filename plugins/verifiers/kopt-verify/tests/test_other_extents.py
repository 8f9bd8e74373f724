"""Which other extents a kernel is looked at with: new ones, and few elements where it is large."""

from __future__ import annotations

from math import prod

from hypothesis import given
from hypothesis import strategies as st

from kopt.model.kernel_file import parse_kernel
from kopt.model.problem import (
    ArgumentInfo,
    Problem,
    ReferenceSource,
    TensorInfo,
    WorkloadSignature,
)
from kopt_verify.beyond import (
    changeable,
    elements,
    elements_at,
    primes,
    resizings,
    room_for_primes,
    small_extents,
)
from kopt_verify.shapes import changes


def test_other_extents_are_new_and_small_where_there_is_no_room():
    extents = {"rows": 4096, "cols": 8192}
    small = primes(extents)
    assert len(set(small.values())) == 2 and small["rows"] < small["cols"] < 4096
    for room, least in ((0.5, 5), (10.0, 5)):
        found = list(resizings(extents, room=room))
        assert len(found) >= least
        assert all(set(each) == set(extents) and each != extents for each in found)
    for each in resizings(extents, room=0.5):
        assert sum(extent >= 4095 for extent in each.values()) <= 1


CUBES = ReferenceSource(
    kind="kernelbench",
    source=(
        "import torch\n\nclass Model(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.conv = torch.nn.Conv3d(3, 8, 3)\n"
        "    def forward(self, x):\n        return self.conv(x)\n\n"
        "def get_inputs():\n    return [torch.rand(4, 3, 24, 24, 24)]\n\n"
        "def get_init_inputs():\n    return []\n"
    ),
    entry="Model",
)
"""One extent is that of three axes."""


def test_other_extents_of_several_axes_do_not_fill_the_memory(open_trials):
    problem = Problem(name="cubes", format="kernelbench", reference=CUBES)
    opened = open_trials(problem)
    reference = opened.reference
    name = problem.workloads[0].name
    signature = reference.signature.workloads[name]
    now = reference.extents(name)
    assert now == {"4": 4, "3": 3, "24": 24}
    assert changeable(reference, name) == {"4": 4, "24": 24}, "three channels are the weight's too"
    assert elements_at(signature, now, now) == elements(reference, name)
    assert elements_at(signature, now, {"24": 48}) == 8 * elements(reference, name)
    assert elements_at(signature, now, primes(now)) > 1 << 26
    trial = opened.of(parse_kernel("def kernel_function(x):\n    return x\n", "torch"))
    found = [change.extents for change in changes(trial, name) if change.layout == "contiguous"]
    assert found and all(set(each) <= {"4", "24"} for each in found)
    few = small_extents(reference, name, enough=1 << 14)
    assert elements_at(signature, now, few) <= 1 << 14
    assert min(few.values()) >= 2, "one from a batch to the next is left"
    assert all(elements_at(signature, now, each) <= 1 << 22 for each in found)


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(2, 8192), min_size=1),
    st.integers(1, 1 << 40),
)
def test_primes_are_made_smaller_until_they_fit(extents, most):
    def fits(changed):
        return prod(changed.values()) <= most

    small = primes(extents, fits)
    assert set(small) == set(extents)
    if fits(primes(extents)):
        assert small == primes(extents)
    elif not fits(small):
        assert max(small.values()) < 20, "nothing smaller is left"
    order = sorted(extents, key=lambda name: (extents[name], name))
    assert [small[name] for name in order] == sorted(small.values())


def test_other_extents_of_a_large_problem_are_small(open_trials, monkeypatch):
    """They had as many elements as the problem's own: looks at 8 GB took 70 GB and seconds each."""
    monkeypatch.setattr("kopt_verify.beyond._MOST_ELEMENTS", {"cpu": 1 << 12})
    monkeypatch.setattr("kopt_verify.beyond._MOST_FEWER", {"cpu": 1 << 12})
    problem = Problem(name="cubes", format="kernelbench", reference=CUBES)
    opened = open_trials(problem)
    reference, name = opened.reference, problem.workloads[0].name
    signature, now = reference.signature.workloads[name], reference.extents(name)
    assert elements(reference, name) > 1 << 16
    trial = opened.of(parse_kernel("def kernel_function(x):\n    return x\n", "torch"))
    found = [change.extents for change in changes(trial, name) if change.layout == "contiguous"]
    assert len(found) >= 3
    assert all(elements_at(signature, now, each) <= 1 << 14 for each in found)


@given(st.integers(1, 1 << 30), st.integers(1, 1 << 40))
def test_looks_have_as_little_room_as_primes_fit_in(enough, total):
    tensor = TensorInfo(name="x", dtype="float32", shape=(16, 1000, 64))
    argument = ArgumentInfo(name="x", kind="tensor", tensor=tensor)
    signature = WorkloadSignature(
        arguments=(argument,), outputs=(tensor,), structure="tensor", compulsory_bytes=8
    )
    extents = {"16": 16, "1000": 1000}

    def needs(most):
        found = primes(extents, lambda changed: elements_at(signature, extents, changed) <= most)
        return elements_at(signature, extents, found)

    most = room_for_primes(signature, extents, enough=enough, total=total)
    assert enough <= most <= max(enough, total)
    if enough < most < total:
        assert needs(most) <= most and needs(most // 4) > most // 4

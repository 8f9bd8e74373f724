"""The accuracy rule in numbers."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kopt_verify.accuracy import Judgement, Yardstick, errors

SINGLE, HALF, BRAIN = 2.0**-24, 2.0**-11, 2.0**-8
FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
seeds = st.integers(0, 1 << 30)


def compare(result, reference, oracle, factor=None):
    judgement = Judgement("out0", factor)
    judgement.add(result, Yardstick(reference, oracle))
    return judgement.verdict()


def normal(seed: int, count: int = 2000) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, generator=generator, dtype=torch.float64)


def noise(seed: int, count: int = 2000) -> torch.Tensor:
    """Uniform between -1 and 1."""
    generator = torch.Generator().manual_seed(seed + 1)
    return torch.rand(count, generator=generator, dtype=torch.float64) * 2 - 1


# --- what it accepts and rejects ---


@settings(deadline=None, max_examples=40)
@given(seeds, st.sampled_from(FLOATS))
def test_the_reference_itself_is_exactly_as_good(seed, dtype):
    oracle = normal(seed)
    reference = oracle.to(dtype)
    found = compare(reference, reference, oracle)
    assert found.passed
    assert found.ratio == (None if dtype == torch.float64 else pytest.approx(1.0))


@settings(deadline=None, max_examples=40)
@given(seeds, st.floats(0.0, 4.0))
def test_a_few_units_of_honest_rounding_are_accepted(seed, units):
    oracle = normal(seed)
    result = (oracle * (1 + units * SINGLE * noise(seed))).float()
    assert compare(result, oracle.float(), oracle).passed


@settings(deadline=None, max_examples=40)
@given(seeds, st.sampled_from([torch.float16, torch.bfloat16]), st.integers(-20, 10))
def test_a_lower_precision_is_rejected_in_float32(seed, lower, exponent):
    oracle = normal(seed) * 2.0**exponent
    result = oracle.to(lower).float()
    found = compare(result, oracle.float(), oracle)
    assert not found.passed
    assert "limit" in found.evidence
    assert found.ratio > 1000


@settings(deadline=None, max_examples=20)
@given(seeds)
def test_inputs_rounded_as_tensor_cores_do_are_rejected_in_float32(seed):
    left, right = normal(seed, 64 * 64).view(64, 64), normal(seed + 7, 64 * 64).view(64, 64)
    left, right = left.float(), right.float()
    short = [(m.view(torch.int32) & ~0x1FFF).view(torch.float32) for m in (left, right)]
    oracle = left.double() @ right.double()
    assert compare(left @ right, left @ right, oracle).passed
    assert not compare(short[0] @ short[1], left @ right, oracle).passed


@settings(deadline=None, max_examples=20)
@given(seeds)
def test_bfloat16_is_rejected_in_float16_and_float32_inside_is_accepted(seed):
    values = normal(seed, 4000).view(40, 100).half()
    oracle = values.double().cumsum(1)
    reference = oracle.half()  # a good reference: rounded once
    assert compare(values.float().cumsum(1).half(), reference, oracle).passed
    assert not compare(oracle.bfloat16().half(), reference, oracle).passed


@settings(deadline=None, max_examples=30)
@given(seeds, st.integers(0, 1999), st.sampled_from([torch.float32, torch.float16]))
def test_one_wrong_element_is_enough(seed, index, dtype):
    oracle = normal(seed)
    result = oracle.to(dtype)
    result[index] += 0.2
    found = compare(result, oracle.to(dtype), oracle)
    assert not found.passed


@pytest.mark.parametrize("value", [0.0, 0.25, -1.0])
def test_constants_are_rejected(value):
    oracle = normal(3)
    assert not compare(torch.full((2000,), value), oracle.float(), oracle).passed


def test_missing_parts_and_moved_results_are_rejected():
    oracle = normal(5)
    reference = oracle.float()
    last = reference.clone()
    last[-1] = 0
    for wrong in (last, reference.roll(1), -reference, reference.flip(0), reference.abs()):
        assert not compare(wrong, reference, oracle).passed


# --- the limits, to the digit ---


def shifted(count: int, distance: float, own: float, dtype=torch.float32):
    """A result, a reference and an oracle that are apart by exactly so much, around one."""
    oracle = torch.ones(count, dtype=torch.float64)
    return (oracle + distance).to(dtype), (oracle + own).to(dtype), oracle


@pytest.mark.parametrize(
    ("count", "factor", "k"), [(2000, None, 2), (999, None, 3), (1000, None, 2), (2000, 5.0, 5)]
)
def test_k_times_the_references_rms_error_is_the_limit(count, factor, k):
    own = 2.0**-15
    at, beyond = shifted(count, k * own, own), shifted(count, k * own + 2.0**-23, own)
    assert compare(*at, factor).passed
    assert compare(*at, factor).ratio == pytest.approx(k)
    assert not compare(*beyond, factor).passed


@pytest.mark.parametrize(
    ("dtype", "floor"), [(torch.float32, 16 * SINGLE), (torch.float16, 2 * HALF)]
)
def test_where_the_reference_is_exact_a_few_units_are_the_limit(dtype, floor):
    step = {torch.float32: 2 * SINGLE, torch.float16: 2 * HALF}[dtype]
    assert compare(*shifted(2000, floor, 0.0, dtype)).passed
    assert not compare(*shifted(2000, floor + step, 0.0, dtype)).passed
    assert compare(*shifted(2000, floor, 0.0, dtype)).ratio is None


def test_the_largest_error_has_a_limit_of_its_own():
    oracle = torch.ones(100_000, dtype=torch.float64)
    for units, passed in ((64, True), (66, False)):
        result = oracle.float()
        result[17] += units * SINGLE
        assert compare(result, oracle.float(), oracle).passed is passed
    reference, result = oracle.float(), oracle.float()
    reference[3] += 2.0**-10  # the reference's own largest error
    for times, passed in ((8, True), (9, False)):
        result[3] = 1.0
        result[17] = 1.0 + times * 2.0**-10
        # Its rms error is that of one element too: only the factor decides about it.
        assert compare(result, reference, oracle, factor=100.0).passed is passed


# --- invariance ---


@settings(deadline=None, max_examples=40)
@given(seeds, st.integers(-30, 30), st.floats(0.0, 60.0))
def test_scaling_by_a_power_of_two_changes_nothing(seed, exponent, units):
    oracle = normal(seed)
    reference = (oracle * (1 + SINGLE * noise(seed + 3))).float()
    result = (oracle * (1 + units * SINGLE * noise(seed))).float()
    plain = compare(result, reference, oracle)
    by = 2.0**exponent
    scaled = compare(result * by, reference * by, oracle * by)
    assert scaled.passed == plain.passed
    assert scaled.ratio == pytest.approx(plain.ratio)


@settings(deadline=None, max_examples=30)
@given(seeds, st.floats(0.0, 60.0), st.lists(st.integers(1, 1999), max_size=5))
def test_rows_added_one_after_the_other_give_the_same_verdict(seed, units, cuts):
    oracle = normal(seed)
    reference = oracle.float()
    result = (oracle * (1 + units * SINGLE * noise(seed))).float()
    whole = compare(result, reference, oracle)
    judgement = Judgement("out0", None)
    ends = [0, *sorted(set(cuts)), 2000]
    for start, end in itertools.pairwise(ends):
        rows = slice(start, end)
        judgement.add(result[rows], Yardstick(reference[rows], oracle[rows]))
    parts = judgement.verdict()
    assert parts.passed == whole.passed
    assert parts.ratio == pytest.approx(whole.ratio)


@settings(deadline=None, max_examples=20)
@given(seeds, st.integers(1, 5000))
def test_chunks_do_not_change_the_errors(seed, count):
    values, oracle = normal(seed, count).float(), normal(seed + 1, count)
    found = errors(values, oracle)
    apart = (values.double() - oracle).abs()
    assert found.count == count
    assert found.largest == pytest.approx(float(apart.max()))
    assert found.rms == pytest.approx(math.sqrt(float(apart.square().mean())))


def test_chunks_larger_than_one_add_up(monkeypatch):
    values, oracle = normal(1, 1000).float(), normal(2, 1000)
    whole = errors(values, oracle)
    monkeypatch.setattr("kopt_verify.accuracy._CHUNK", {"cpu": 7})
    parts = errors(values, oracle)
    assert (parts.count, parts.largest) == (whole.count, whole.largest)
    assert parts.rms == pytest.approx(whole.rms)


# --- exact types ---


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from([torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]),
    st.sets(st.integers(0, 299), max_size=5),
    seeds,
)
def test_integers_are_compared_bit_by_bit(dtype, places, seed):
    generator = torch.Generator().manual_seed(seed)
    reference = torch.randint(0, 100, (300,), generator=generator).to(dtype)
    result = reference.clone()
    for place in places:
        result[place] += 1
    found = compare(result, reference, reference)
    assert found.passed is (not places)
    assert f"{len(places)} of 300 elements differ" in found.evidence
    assert found.ratio is None


def test_large_integers_are_not_rounded():
    reference = torch.tensor([2**53 + 1, 2**62])
    assert not compare(torch.tensor([2**53, 2**62]), reference, reference).passed


def test_bools_are_compared_bit_by_bit():
    reference = torch.tensor([True, False, True])
    assert compare(reference.clone(), reference, reference).passed
    assert not compare(~reference, reference, reference).passed


# --- NaN and infinities ---

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    ("special", "result", "passed"),
    [
        ([NAN], [NAN], True), ([INF], [INF], True), ([-INF], [-INF], True),
        ([NAN], [1.0], False), ([1.0], [NAN], False), ([INF], [-INF], False),
        ([INF], [1.0], False), ([1.0], [INF], False), ([INF], [NAN], False),
        ([NAN], [INF], False), ([NAN, 1.0], [1.0, NAN], False),
    ],
)  # fmt: skip
def test_positions_of_nan_and_infinities_are_the_oracles(dtype, special, result, passed):
    oracle = normal(9)
    reference, found = oracle.to(dtype), oracle.to(dtype)
    for index, (want, have) in enumerate(zip(special, result, strict=True)):
        oracle[index] = reference[index] = want
        found[index] = have
    assert compare(found, reference, oracle).passed is passed


def test_an_overflow_is_excused_where_the_reference_overflows_too():
    oracle = normal(9)
    oracle[0] = 1e6
    reference = oracle.half()
    assert bool(reference[0].isinf())
    assert compare(reference.clone(), reference, oracle).passed
    elsewhere = reference.clone()
    elsewhere[1] = INF
    assert not compare(elsewhere, reference, oracle).passed
    assert not compare(torch.full_like(reference, INF), reference, oracle).passed


def test_nan_everywhere_is_not_hidden_by_a_reference_that_has_one():
    oracle = normal(9)
    oracle[5] = NAN
    assert not compare(torch.full((2000,), NAN), oracle.float(), oracle).passed


def test_wrong_finite_values_beside_infinities_are_seen():
    oracle = normal(9)
    oracle[::2] = INF
    result = oracle.float()
    result[1::2] += 0.01
    assert not compare(result, oracle.float(), oracle).passed


def test_all_infinite_is_right_where_the_reference_is_so():
    oracle = torch.full((5,), INF, dtype=torch.float64)
    assert compare(oracle.float(), oracle.float(), oracle).passed
    assert not compare(-oracle.float(), oracle.float(), oracle).passed


@pytest.mark.parametrize("shape", [(0,), (0, 4)])
def test_nothing_is_right(shape):
    assert compare(torch.zeros(shape), torch.zeros(shape), torch.zeros(shape).double()).passed


def test_a_scalar_has_its_verdict():
    oracle = torch.tensor(2.0, dtype=torch.float64)
    assert compare(torch.tensor(2.0), torch.tensor(2.0), oracle).passed
    assert not compare(torch.tensor(2.1), torch.tensor(2.0), oracle).passed

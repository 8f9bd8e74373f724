"""The checksum sees every change."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kopt_torch.checksum import checksum

_LARGEST = 3 * 8192 + 17
_BYTES = torch.randint(0, 256, (_LARGEST,), dtype=torch.uint8, generator=torch.manual_seed(1))


@settings(max_examples=200, deadline=None)
@given(st.integers(1, _LARGEST), st.data())
def test_any_changed_byte_changes_it(length, data):
    payload = _BYTES[:length].clone()
    before = checksum(payload)
    assert checksum(payload) == before
    for index in data.draw(st.sets(st.integers(0, length - 1), min_size=1, max_size=8)):
        payload[index] ^= data.draw(st.integers(1, 255))
    assert checksum(payload) != before


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([1, 2, 4, 8]), st.sets(st.integers(0, 3000), min_size=1, max_size=2000))
def test_flipped_top_bits_change_it(width, elements):
    """The sign of a float is the bit that a sum of products loses most easily."""
    payload = _BYTES.clone()
    before = checksum(payload)
    for element in elements:
        payload[element * width + width - 1] ^= 0x80
    assert checksum(payload) != before


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.int64])
@pytest.mark.parametrize(
    "change",
    [
        torch.neg, torch.abs, lambda x: x.flip(0), lambda x: x.roll(1, 0), torch.zeros_like,
        lambda x: x.view(64, 64).t().contiguous().flatten(), lambda x: x.roll(1024, 0),
        lambda x: (x.view(torch.uint8) ^ 0xFF).view(x.dtype),
    ],
)  # fmt: skip
def test_changes_of_the_whole_change_it(dtype, change):
    values = (torch.randn(4096, generator=torch.manual_seed(2)) * 100).to(dtype)
    assert checksum(change(values).view(torch.uint8)) != checksum(values.view(torch.uint8))


def test_rows_that_change_places_change_it():
    rows = torch.randn(70, 1024, dtype=torch.float64)
    before = checksum(rows.view(torch.uint8).flatten())
    for one, other in ((0, 1), (1, 65), (2, 4), (63, 64), (0, 69)):
        moved = rows.clone()
        moved[[one, other]] = rows[[other, one]]
        assert checksum(moved.view(torch.uint8).flatten()) != before


def test_nothing_has_a_checksum_too():
    assert checksum(torch.zeros(0, dtype=torch.uint8)) == checksum(
        torch.zeros(0, dtype=torch.uint8)
    )

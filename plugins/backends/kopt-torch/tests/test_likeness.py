"""Results that are alike, looked at a piece at a time."""

import pytest
import torch

from kopt_torch import tensors
from kopt_torch.likeness import alike, close

N = 37


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(tensors, "PIECE", 8)


@pytest.mark.parametrize("at", [0, 7, 8, 31, 32, N - 1])
def test_one_element_of_any_piece_counts(at):
    right = torch.linspace(1, 2, N).reshape(N, 1)
    wrong = right.clone()
    wrong[at] = 9.0
    assert close(right, right.clone())
    assert not close(right, wrong)
    assert alike([right], [right * 1.001])
    assert not alike([right], [wrong])


def test_what_is_not_finite_is_no_difference():
    left = torch.tensor([1.0, float("nan"), float("inf")] * 8)
    assert alike([left], [left.clone()])
    assert close(left, left.clone())
    assert not torch.isfinite(left[1])  # nothing was changed in it


def test_float64_is_not_changed_either():
    left = torch.tensor([1.0, float("nan")], dtype=torch.float64)
    assert alike([left], [left])
    assert torch.isnan(left[1])


def test_shapes_and_integers():
    assert not close(torch.zeros(2, 3), torch.zeros(3, 2))
    assert not alike([torch.zeros(2)], [torch.zeros(3)])
    assert not alike([torch.zeros(2)], [])
    assert alike([torch.arange(20)], [torch.arange(20)])
    assert not alike([torch.arange(20)], [torch.arange(20) + 1])
    assert alike([torch.zeros(0)], [torch.zeros(0)])
    assert close(torch.zeros(0), torch.zeros(0))


def test_layouts_do_not_matter():
    right = torch.arange(36, dtype=torch.float32).reshape(6, 6)
    assert close(right, right.t().contiguous().t())
    assert [len(piece) for piece, _ in tensors.pieces(right, right.t())] == [8, 8, 8, 8, 4]

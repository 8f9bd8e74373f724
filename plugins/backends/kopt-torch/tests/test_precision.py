"""Whether a reference's convolutions are done in TF32: what it gives with TF32 forbidden says it."""

from __future__ import annotations

import pytest
import torch

from kopt.model.problem import OperatorCall
from kopt_torch.precision import convolves_in_tf32

CONVOLUTION = OperatorCall(name="aten.convolution.default", dtype="float32")


def rounded(values: torch.Tensor) -> torch.Tensor:
    """float32 with the 10 bits after the point that TF32 has."""
    return ((values.view(torch.int32) + 4096) & -8192).view(torch.float32)


def looked(results, exact, trace=(CONVOLUTION,)):
    allowed = []

    def again():
        allowed.append(torch.backends.cudnn.allow_tf32)
        return exact

    found = convolves_in_tf32(trace, results, again)
    assert torch.backends.cudnn.allow_tf32
    assert allowed in ([], [False])
    return found


def drawn() -> torch.Tensor:
    return torch.randn(1000, generator=torch.Generator().manual_seed(3))


def test_what_rounding_changes_is_seen():
    exact = drawn()
    assert looked([rounded(exact)], [exact]) is True
    assert looked([exact, rounded(exact)], [exact, exact]) is True


def test_another_order_of_summation_is_no_rounding():
    exact = drawn()
    assert looked([exact], [exact]) is False
    assert looked([exact * (1 + 2.0**-23)], [exact]) is False
    assert looked([torch.tensor([1, 2]), 3.0], [torch.tensor([1, 2]), 3.0]) is False
    nan = torch.full((3,), torch.nan)
    assert looked([nan], [nan]) is False


def test_only_float32_convolutions_are_looked_at():
    half = OperatorCall(name="aten.convolution.default", dtype="bfloat16")
    product = OperatorCall(name="aten.mm.default", dtype="float32")
    assert looked([drawn()], [drawn()], trace=(half, product)) is None


def test_nothing_runs_where_it_is_forbidden_anyway(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    assert convolves_in_tf32([CONVOLUTION], [], lambda: pytest.fail("it ran")) is False


def test_it_is_allowed_again_after_a_failure():
    def fails():
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError):
        convolves_in_tf32([CONVOLUTION], [], fails)
    assert torch.backends.cudnn.allow_tf32

"""What an exception of a launch becomes: its status, and words that help."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kopt.errors import CandidateError
from kopt.model.verification import Status

pytest.importorskip("triton")

from kopt_triton.failures import candidate_error


def caught(error, cause=None):
    error.__cause__ = cause
    return candidate_error(error, "", Path("/nowhere"))


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RuntimeError("CUDA error: an illegal memory access was encountered"), "illegal-access"),
        (RuntimeError("Triton Error [CUDA]: misaligned address"), "illegal-access"),
        (RuntimeError("Triton Error [CUDA]: invalid argument"), "launch-failed"),
        (RuntimeError("CUDA error: unspecified launch failure"), "launch-failed"),
        (RuntimeError("Triton Error [CUDA]: out of memory"), "oom"),
        (torch.OutOfMemoryError("Tried to allocate 16 TiB"), "oom"),
        (MemoryError(), "oom"),
        (KeyError("Keyword argument WARPS was specified but unrecognised"), "compile-error"),
        (RuntimeError("PassManager::run failed"), "compile-error"),
        (RuntimeError("Tensor.item() cannot be called on meta tensors"), "unsupported"),
        (ValueError("something else"), "launch-failed"),
    ],
)
def test_the_status_of_each_failure(error, status):
    found = caught(error)
    assert found.status == status
    assert type(error).__name__ in found.detail


def test_a_verdict_of_another_layer_is_kept():
    verdict = CandidateError(Status.MUTATES_INPUT, "it changed x")
    assert caught(verdict) is verdict


def test_a_wrapped_exception_is_said_again_with_its_status():
    wrapped = CandidateError(Status.LAUNCH_FAILED, "RuntimeError: misaligned address")
    assert caught(wrapped, RuntimeError("misaligned address")).status is Status.ILLEGAL_ACCESS

"""Device memory of closed input sets is free again, whoever had it open and however that ended."""

from __future__ import annotations

import gc

import pytest
import torch

from kopt.errors import DeviceError
from kopt.model.candidate import Candidate
from kopt.model.problem import InputSpec
from kopt_torch import cuda_segments
from kopt_torch.cuda_segments import Loan, write_off_lost

COUNTS = [1, 0, 2**64 - 2]


@pytest.fixture
def counts(tmp_path):
    """A file as PyTorch counts in."""
    path = tmp_path / "torch_1_2_0"
    path.write_bytes(bytes(64) + b"".join(count.to_bytes(8, "little") for count in COUNTS))
    return path


@pytest.mark.parametrize("number", range(len(COUNTS)))
def test_a_loan_is_lost_where_its_process_died_with_it(counts, number):
    assert Loan(counts, number, lambda: True).count() == COUNTS[number]
    assert not Loan(counts, number, lambda: True).is_lost()
    assert Loan(counts, number, lambda: False).is_lost() is (COUNTS[number] != 0)


def test_what_is_lost_is_written_off_and_nothing_else(counts, monkeypatch):
    collected = []
    monkeypatch.setattr(torch.cuda, "ipc_collect", lambda: collected.append(True))
    running, gone, returned = (
        Loan(counts, 0, lambda: True), Loan(counts, 2, lambda: False), Loan(counts, 1, lambda: False)
    )  # fmt: skip
    monkeypatch.setattr(cuda_segments, "_owed", [running, gone, returned])
    write_off_lost()
    assert (running.count(), gone.count(), returned.count()) == (1, 0, 0)
    assert cuda_segments._owed == [running]
    assert len(collected) == 1
    write_off_lost()
    assert len(collected) == 1


def test_counts_that_are_put_away_are_no_loss(counts):
    loan = Loan(counts, 0, lambda: False)
    counts.unlink()
    assert not loan.is_lost()
    loan.write_off()


def test_a_driver_that_shares_no_memory_any_more_is_told_of():
    class Unshared:
        def untyped_storage(self):
            return self

        def _share_cuda_(self):
            raise RuntimeError("CUDA error: operation not supported\nCUDA kernel errors might be")

    segment = cuda_segments.CudaSegment.__new__(cuda_segments.CudaSegment)
    segment.bytes = Unshared()
    with pytest.raises(
        DeviceError, match=r"operation not supported\).*KOPT_CUDA_IPC=off.*--device cpu"
    ) as caught:
        segment.announcement(lambda: True)
    assert "might be" not in str(caught.value)


@pytest.fixture
def gpu_trials(trials_on, problem):
    """Trials of ``f`` on inputs of 64 MB, as many as are asked for, in one process."""
    body = "def f(x):\n    return x + 1"
    large = problem(body, InputSpec(name="x", shape=(1 << 24,)))
    return trials_on(large, "cuda")


def candidate(number: int) -> Candidate:
    return Candidate(language="torch", source=f"def f(x):\n    return x + 1  # {number}", entry="f")


def taken() -> int:
    gc.collect()
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated() >> 20


@pytest.mark.gpu
def test_a_set_that_several_candidates_of_a_process_have_open_is_free_again(gpu_trials):
    several = [gpu_trials.of(candidate(number)) for number in range(3)]
    inputs = gpu_trials.reference.inputs("default", 1)
    before = taken()
    for trial in several:
        trial.run(inputs)
    for trial in several:
        trial.release(inputs)
    inputs.close()
    assert taken() == before - 2 * 64


@pytest.mark.gpu
def test_a_set_that_a_process_died_with_is_free_again(gpu_trials):
    trial = gpu_trials.of(candidate(0))
    with trial.twin() as twin:
        inputs = gpu_trials.reference.inputs("default", 1)
        before = taken()
        twin.run(inputs)
    inputs.close()
    assert taken() == before - 2 * 64


@pytest.mark.gpu
def test_a_set_that_a_process_keeps_is_kept_until_it_dies(gpu_trials):
    """What a candidate still sees must not become the memory of an expected result."""
    trial = gpu_trials.of(candidate(0))
    with trial.twin() as twin:
        inputs = gpu_trials.reference.inputs("default", 1)
        before = taken()
        twin.run(inputs)
        inputs.close()
        assert taken() == before
    gpu_trials.reference.inputs("default", 2).close()
    assert taken() == before - 2 * 64

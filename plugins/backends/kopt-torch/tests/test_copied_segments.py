"""Memory that no driver shares goes to the candidate and back: here with a CPU in the GPU's place."""

from __future__ import annotations

import pytest
import torch

from kopt.model.candidate import Candidate
from kopt.model.problem import InputSpec
from kopt.worker.trial import TimedTrial
from kopt_torch import copied_segments, inputs, tensors
from kopt_torch.copied_segments import CopiedSegment


@pytest.fixture
def copied_trials(trials_on, problem, monkeypatch):
    """Trials of ``f`` in a real process whose tensors are copies."""
    shared = tensors.SharedTensor
    monkeypatch.setattr(
        inputs,
        "SharedTensor",
        lambda shape, dtype, _, *layout: shared(shape, dtype, "cuda", *layout),
    )
    monkeypatch.setattr(tensors, "device_segment", lambda nbytes: CopiedSegment(nbytes, "cpu"))
    return trials_on(
        problem("def f(x):\n    return x + 1", InputSpec(name="x", shape=(64, 33))), "cpu"
    )


def of(trials, *lines):
    body = "\n    ".join(lines)
    source = f"import torch\n\nseen = {{}}\n\n\ndef f(x):\n    {body}\n"
    return trials.of(Candidate(language="torch", source=source, entry="f"))


def test_results_come_back_for_what_the_inputs_are_now(copied_trials):
    trial = of(copied_trials, "return x + 1")
    drawn = copied_trials.reference.inputs("default", 1)
    trial.run(drawn)
    assert torch.equal(drawn.outputs[0], drawn.tensors["x"] + 1)
    before = drawn.tensors["x"].clone()
    drawn.redraw(2)
    assert not torch.equal(drawn.tensors["x"], before)
    trial.run(drawn)
    assert torch.equal(drawn.outputs[0], drawn.tensors["x"] + 1)
    assert drawn.changed() == drawn.canaries_hurt() == []


def test_what_a_candidate_writes_into_its_inputs_and_beyond_them_is_seen(copied_trials):
    drawn = copied_trials.reference.inputs("default", 1)
    of(copied_trials, "return x.add_(1)").run(drawn)
    assert drawn.changed() == ["x"]
    drawn.restore()
    beyond = "torch.as_strided(x, (1,), (1,), x.storage_offset() + x.numel()).fill_(0)"
    of(copied_trials, beyond, "return x + 1").run(drawn)
    assert drawn.canaries_hurt() == ["x"]


def test_poison_stays_where_nothing_was_written(copied_trials):
    drawn = copied_trials.reference.inputs("default", 1)
    trial = of(copied_trials, "return x[:1] + 1")  # of another shape: not copied to the output
    trial.run(drawn)
    drawn.poison(0xFF)
    poisoned = drawn.outputs[0].clone()
    trial.run(drawn)
    assert torch.equal(drawn.outputs[0].view(torch.uint8), poisoned.view(torch.uint8))


def test_timed_calls_run_on_new_content_at_the_same_addresses(copied_trials):
    sets = [copied_trials.reference.inputs("default", seed) for seed in (1, 2)]
    honest = TimedTrial(of(copied_trials, "return x + 1"), sets)
    assert honest.block(4).wall_ms > 0
    for found, _ in (honest.fresh_block(4, 7), honest.nearly_same_block(4, 8)):
        assert torch.equal(found.outputs[0], found.tensors["x"] + 1)
    caching = "return seen.setdefault(x.data_ptr(), x + 1)"
    fooled = TimedTrial(of(copied_trials, caching), sets)
    fooled.block(4)
    found, _ = fooled.fresh_block(4, 9)
    assert not torch.equal(found.outputs[0], found.tensors["x"] + 1)


def test_inputs_that_timed_calls_change_are_seen_after_them(copied_trials):
    sets = [copied_trials.reference.inputs("default", seed) for seed in (1, 2)]
    timed = TimedTrial(of(copied_trials, "return x.add_(1)"), sets)
    timed.block(4)
    timed.fresh_block(4, 7)
    assert [each.changed() for each in sets] == [["x"], ["x"]]


def test_memory_of_a_set_that_is_closed_can_be_used_again(copied_trials):
    trial = of(copied_trials, "return x + 1")
    drawn = copied_trials.reference.inputs("default", 1)
    trial.run(drawn)
    trial.release(drawn)
    drawn.close()
    other = copied_trials.reference.inputs("default", 3)
    trial.run(other)
    assert torch.equal(other.outputs[0], other.tensors["x"] + 1)


class Refused:
    """A tensor whose memory the driver does not share."""

    def untyped_storage(self):
        return self

    def _share_cuda_(self):
        raise RuntimeError("CUDA error: operation not supported")


def test_memory_is_copied_where_the_driver_shares_none_or_somebody_says_so(monkeypatch):
    monkeypatch.setattr(torch, "empty", lambda *_, **__: Refused())
    assert copied_segments.shares_memory.__wrapped__() is False
    monkeypatch.undo()
    for value in ("off", "OFF"):
        monkeypatch.setenv("KOPT_CUDA_IPC", value)
        assert copied_segments.shares_memory.__wrapped__() is False


@pytest.mark.gpu
def test_the_same_on_a_gpu(trials_on, problem, monkeypatch):
    monkeypatch.setattr(tensors, "device_segment", CopiedSegment)
    large = problem("def f(x):\n    return x + 1", InputSpec(name="x", shape=(1 << 20,)))
    trials = trials_on(large, "cuda")
    sets = [trials.reference.inputs("default", seed) for seed in (1, 2)]
    trial = of(trials, "return x + 1")
    trial.run(sets[0])
    assert torch.equal(sets[0].outputs[0], sets[0].tensors["x"] + 1)
    found, _ = TimedTrial(trial, sets).fresh_block(4, 7)
    assert torch.equal(found.outputs[0], found.tensors["x"] + 1)
    of(trials, "return x.add_(1)").run(sets[0])
    assert sets[0].changed() == ["x"]

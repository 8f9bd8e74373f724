"""Questions: the same in a search, new for a winner, and no answer where a candidate could see it."""

from __future__ import annotations

from collections import Counter

import pytest

from kopt.errors import ProblemError
from kopt.model.kernel_file import parse_kernel
from kopt.model.verification import Status
from kopt.testing.problems import vector_add
from kopt.testing.trials import Trials
from kopt.testing.verifier import HONEST, cpp_add
from kopt_verify import Verify

WRONG = cpp_add("for (int64_t i = 0; i < n; ++i) out[i] = x[i];")


class Watched:
    """A real reference that keeps a list of what it was asked for."""

    def __init__(self, reference):
        self._reference = reference
        self.asked = []
        self.sets = []

    def __getattr__(self, name):
        return getattr(self._reference, name)

    def inputs(self, workload, seed, distribution="native"):
        self.asked.append(("inputs", seed, distribution))
        self.sets.append(self._reference.inputs(workload, seed, distribution))
        return self.sets[-1]

    def answers(self, inputs):
        if inputs.workload in self.signature.workloads:  # not those of other shapes
            self.asked.append(("answers", inputs.seed, inputs.distribution))
        return self._reference.answers(inputs)

    def sharpen(self, names):
        self._reference.sharpen(names)
        self.asked.clear()  # what the test of the oracle asked, which ends here
        self.sets.clear()

    @property
    def counts(self):
        return Counter(what for what, _, _ in self.asked)


@pytest.fixture
def watched(tmp_path):
    with Trials(vector_add(1024), tmp_path) as trials:
        trials.reference = Watched(trials.reference)
        yield trials


def verdict(verifier, trials, source=HONEST, depth="search"):
    return verifier.kopt_verify(trials.of(parse_kernel(source, "cpp"), depth=depth)).status


def test_a_search_asks_the_same_questions_and_computes_answers_once(watched):
    verifier = Verify(Verify.Options(seeds=2))
    assert verdict(verifier, watched) is Status.CORRECT
    once = list(watched.reference.asked)
    assert watched.reference.counts == {"inputs": 4, "answers": 4}  # two distributions
    for source, status in ((WRONG, Status.WRONG), (HONEST, Status.CORRECT)):
        assert verdict(verifier, watched, source) is status
    assert watched.reference.asked == once


def test_a_winner_is_asked_something_new_each_time(watched):
    verifier = Verify(Verify.Options(winner_seeds=3))
    verdict(verifier, watched)
    for _ in range(2):
        assert verdict(verifier, watched, depth="winner") is Status.CORRECT
    assert watched.reference.counts == {"inputs": 2 + 8 + 8, "answers": 2 + 9 + 9}
    seeds = [seed for what, seed, _ in watched.reference.asked if what == "inputs"]
    assert len(set(seeds)) == len(seeds)


def test_a_winners_inputs_are_given_back_and_a_searchs_are_kept(watched):
    verifier = Verify(Verify.Options())
    verdict(verifier, watched)
    kept = list(watched.reference.sets)
    verdict(verifier, watched, depth="winner")
    assert all(s.fd >= 0 for inputs in kept for s in inputs.segments)
    assert [inputs.segments for inputs in watched.reference.sets[len(kept) :]] == [[]] * 8


def test_large_questions_are_not_kept(watched, monkeypatch):
    monkeypatch.setattr("kopt_verify.standing._MEMORY_SHARE", 1 << 62)
    verifier = Verify(Verify.Options())
    for _ in range(2):
        assert verdict(verifier, watched) is Status.CORRECT
    assert watched.reference.counts == {"inputs": 4, "answers": 4}


def test_what_is_kept_stays_and_no_more_is_kept_where_others_need_the_memory(watched, monkeypatch):
    verifier = Verify(Verify.Options())
    verdict(verifier, watched)
    monkeypatch.setattr("kopt_verify.standing.leaves_room", lambda reference, workload: False)
    verdict(verifier, watched)
    assert watched.reference.counts == {"inputs": 2, "answers": 2}
    crowded = Verify(Verify.Options())
    for _ in range(2):
        verdict(crowded, watched)
    assert watched.reference.counts == {"inputs": 4, "answers": 4}, "anew each time"


def test_the_first_failure_ends_the_questions(watched):
    assert verdict(Verify(Verify.Options(seeds=3)), watched, WRONG) is Status.WRONG
    assert watched.reference.counts == {"inputs": 1, "answers": 1}


def test_half_an_answer_is_not_kept(watched):
    """A reference that fails in the middle must not leave half a yardstick for the next."""
    real = watched.reference.answers

    def failing(inputs):
        answer = next(real(inputs))
        yield type(answer)(
            slice(0, 1), [e[:1] for e in answer.expected], [o[:1] for o in answer.oracle]
        )
        raise ProblemError("out of memory")

    verifier = Verify(Verify.Options())
    watched.reference.answers = failing
    with pytest.raises(ProblemError):
        verdict(verifier, watched)
    watched.reference.answers = real
    nearly = cpp_add("for (int64_t i = 0; i < n; ++i) out[i] = i ? 0 : x[i] + y[i];")
    assert verdict(verifier, watched, nearly) is Status.WRONG


def test_a_candidate_sees_inputs_alone_and_answers_first(watched, monkeypatch):
    """The whole of what its process is told: its source, inputs and empty outputs, then to run."""
    trial = watched.of(parse_kernel(HONEST, "cpp"))
    events = []
    process = watched.bench.process
    told = process.order

    def order(op, timeout, fds=(), **fields):
        events.append(op)
        if op == "attach":
            segment = fields["segment"]["id"]
            owner = [s for s in watched.reference.sets if segment in {g.id for g in s.segments}]
            assert len(owner) == 1  # inputs or their empty outputs, nothing else is ever shared
        if op == "run":
            filled = [bytes(o.numpy().tobytes()) for o in watched.reference.sets[-1].outputs]
            assert all(set(content) in ({0xFF}, {0x37}) for content in filled)
        return told(op, timeout, fds, **fields)

    real = watched.reference.answers
    monkeypatch.setattr(process, "order", order)
    watched.reference.answers = lambda inputs: events.append("answers") or real(inputs)
    found = Verify(Verify.Options()).kopt_verify(trial)
    assert found.status is Status.CORRECT
    question = ["attach"] * 3 + ["bind", "run"]
    assert events == [
        *question, "run", "answers", "release",
        *question, "answers", "release",
    ]  # fmt: skip
    assert watched.bench.process.attached == set()


def test_the_seed_of_a_trial_decides_the_questions(watched):
    seeds = []
    for _ in range(2):
        verdict(Verify(Verify.Options()), watched)
        seeds += [seed for what, seed, _ in watched.reference.asked if what == "inputs"]
    assert len(set(seeds)) == 4  # trials have seeds of their own, and so have new verifiers


@pytest.mark.parametrize("options", [{"seeds": 0}, {"winner_seeds": -1}, {"seed": 3}])
def test_wrong_options_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Verify.Options(**options)

"""Candidate processes under attack: each end has its own name, and no word of theirs is evidence."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from kopt.errors import CandidateError, WorkerError
from kopt.model.candidate import Candidate
from kopt.model.reference import InputSet
from kopt.model.verification import Status
from kopt.testing.plain_problem import candidate as plain
from kopt.testing.plain_problem import right
from kopt.testing.plain_verifier import PlainVerifier
from kopt.testing.processes import eventually
from kopt.worker import family
from kopt.worker.pool import ProcessRecipe
from kopt.worker.process import CandidateProcess
from kopt.worker.trial import ProcessTrial

TrialOf = Callable[[Candidate], ProcessTrial]

SAY = """
import json, os, struct, sys

def say(body, fds=0, length=None):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = struct.pack("<IB", len(body) if length is None else length, fds)
    os.write(int(sys.argv[1]), head + body)

def number():
    frame = sys._getframe()
    while "order" not in frame.f_locals:
        frame = frame.f_back
    return frame.f_locals["order"]["n"]
"""


def failure(trial: ProcessTrial, inputs: InputSet) -> CandidateError:
    with pytest.raises(CandidateError) as caught:
        trial.run(inputs)
    return caught.value


def test_a_good_candidate(trial_of: TrialOf, inputs: InputSet) -> None:
    trial_of(right(1)).run(inputs)
    assert inputs.outputs[0].tolist() == [2.0 * value for value in inputs.tensors["x"]]


def test_a_release_looks_for_garbage_among_what_came_after_the_imports(
    trial_of: TrialOf, inputs: InputSet
) -> None:
    counts = "import gc; raise ValueError(f'{gc.get_freeze_count()} {len(gc.get_objects())}')"
    said = failure(trial_of(plain(counts)), inputs).detail.rpartition("ValueError: ")[2]
    frozen, left = map(int, said.split())
    assert frozen > 10 * left


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ("import ctypes; ctypes.string_at(8)", Status.ILLEGAL_ACCESS, "SIGSEGV"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGBUS)", Status.ILLEGAL_ACCESS, "SIGBUS"),
        ("import os; os.abort()", Status.CRASHED, "SIGABRT"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGFPE)", Status.CRASHED, "SIGFPE"),
        ("import os; os._exit(0)", Status.CRASHED, "code 0"),
        ("import os; os._exit(7)", Status.CRASHED, "code 7"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", Status.OOM, "SIGKILL"),
        ("import os; os.write(2, b'std::bad_alloc'); os.abort()", Status.OOM, "bad_alloc"),
        ("x = bytearray(1 << 40)", Status.OOM, "MemoryError"),
        ("y = [bytearray(256 << 20) for _ in range(64)]", Status.OOM, "MemoryError"),
        ("raise SystemExit(0)", Status.LAUNCH_FAILED, "SystemExit"),
        ("raise KeyboardInterrupt", Status.LAUNCH_FAILED, "KeyboardInterrupt"),
        ("x[:] = 'nonsense'", Status.LAUNCH_FAILED, "Error"),
        ("def f(): f()\n    f()", Status.LAUNCH_FAILED, "RecursionError"),
    ],
)
def test_every_death_has_its_cause(
    trial_of: TrialOf, inputs: InputSet, process: CandidateProcess, body: str, status: Status,
    said: str,
) -> None:  # fmt: skip
    error = failure(trial_of(plain(body.replace("\n    ", "\n"))), inputs)
    assert error.status == status
    assert said in error.detail
    assert process.tainted or not process.alive


def test_an_endless_loop_is_killed_at_its_deadline(
    trial_of: TrialOf, inputs: InputSet, process: CandidateProcess
) -> None:
    trial = trial_of(plain("while True: pass"))
    start = time.monotonic()
    assert failure(trial, inputs).status == Status.HANG
    assert 1.9 < time.monotonic() - start < 8.0
    assert not process.alive
    assert not process.home.exists()


def test_an_import_that_hangs(process: CandidateProcess) -> None:
    candidate = plain("pass", before="import time\ntime.sleep(60)\n")
    with pytest.raises(CandidateError) as caught:
        process.order("build", 0.5, candidate=candidate.to_json(), key=candidate.id)
    assert caught.value.status == Status.HANG


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("say({'ok': True, 'n': 1})", "not to this order"),
        ("say({'ok': True})", "not to this order"),
        ("say({'ok': True, 'n': number()})", "malformed"),
        ("say({'ok': True, 'n': number(), 'claim': 'PASS', 'build': None})", "malformed"),
        ("say({'ok': False, 'n': number(), 'status': 'correct', 'detail': 'PASS'})", "malformed"),
        ("say(b'PASS')", "not JSON"),
        ("say(b'[1, 2]')", "not an object"),
        ("say(b'[' * 100_000)", "not JSON"),
        ("say(b'{}', length=1 << 31)", "over the limit"),
        ("say({'ok': True, 'n': number()}, fds=3)", "descriptors"),
        ("os.close(int(sys.argv[1]))", "code 0"),
        ("os.closerange(0, 1000)", "code 0"),
    ],
)
def test_a_forged_answer_costs_its_candidate(
    trial_of: TrialOf, inputs: InputSet, process: CandidateProcess, said: str, why: str
) -> None:
    error = failure(trial_of(plain(said, before=SAY)), inputs)
    assert error.status == Status.CRASHED
    assert why in error.detail
    assert not process.alive


def test_a_forged_answer_before_the_real_one_is_noticed(
    trial_of: TrialOf, inputs: InputSet
) -> None:
    """Claiming to be done early leaves the real answer where the next order finds it."""
    claim = {"structure": "tensor", "outputs": []}
    forged = f"say({{'ok': True, 'n': number(), 'claim': {claim}, 'build': BUILD}})"
    body = "BUILD = {'backend': 'plain', 'seconds': 0.0}\n" + forged
    trial = trial_of(plain(body, before=SAY))
    trial.run(inputs)
    time.sleep(0.3)
    error = failure(trial, inputs)
    assert (error.status, "before it was asked" in error.detail) == (Status.CRASHED, True)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("print('PASS: all correct, 100x', flush=True)", Status.INCOMPLETE_WRITE),
        ("import os; os.write(2, b'correct' * 1000)\nout[:] = x", Status.WRONG),
        ("for i in range(len(x)): out[i] = x[i] = 2 * x[i]", Status.MUTATES_INPUT),
        ("for i in range(0, len(x), 2): out[i] = 2 * x[i]", Status.INCOMPLETE_WRITE),
    ],
)
def test_what_it_prints_is_no_evidence(trial_of: TrialOf, body: str, status: Status) -> None:
    verdict = PlainVerifier().kopt_verify(trial_of(plain(body)))
    assert verdict is not None
    assert verdict.status == status


def test_of_a_flood_of_output_the_end_is_kept(trial_of: TrialOf, inputs: InputSet) -> None:
    flood = (
        "import os\nfor _ in range(50): os.write(1, b'x' * 1_000_000)\nos.write(1, b'THE END')\n"
    )
    error = failure(trial_of(plain(flood + "os.abort()")), inputs)
    assert error.status == Status.CRASHED
    assert "THE END" in error.detail
    assert len(error.detail) < 2000


def test_its_files_cannot_hold_the_judge_up(trial_of: TrialOf, inputs: InputSet) -> None:
    """A pipe in the place of a file that the judge would read."""
    body = "import os\nfor name in os.listdir('.'):\n    os.rename(name, name + '-')\n"
    body += "os.mkfifo('output.log')\nos.abort()"
    assert failure(trial_of(plain(body)), inputs).status == Status.CRASHED


def test_a_child_that_keeps_the_connection_does_not_hide_the_death(
    trial_of: TrialOf, inputs: InputSet
) -> None:
    trial = trial_of(plain("import os, time\nif os.fork(): os._exit(0)\ntime.sleep(60)"))
    start = time.monotonic()
    error = failure(trial, inputs)
    assert (error.status, "code 0" in error.detail) == (Status.CRASHED, True)
    assert time.monotonic() - start < 1.9  # not the deadline


def test_a_group_dies_with_its_leader(
    trial_of: TrialOf, inputs: InputSet, process: CandidateProcess
) -> None:
    body = (
        "import os, time\n"
        "for session in (False, True):\n"
        "    if not os.fork():\n"
        "        if session: os.setsid()\n"
        "        time.sleep(600)\n"
        "while True: time.sleep(1)"
    )
    trial = trial_of(plain(body))
    leader = psutil.Process(process.pid)
    family: list[psutil.Process] = []
    watch = threading.Timer(1.0, lambda: family.extend([leader, *leader.children(recursive=True)]))
    watch.start()
    assert failure(trial, inputs).status == Status.HANG
    assert len(family) == 3
    assert not any(member.is_running() for member in family)


def test_a_stopped_process_does_not_block_the_judge(process: CandidateProcess) -> None:
    """Its socket is full: the order cannot even be sent."""
    os.kill(process.pid, signal.SIGSTOP)
    with pytest.raises(CandidateError) as caught:
        process.order("ping", 0.5, padding="x" * (4 << 20))
    assert caught.value.status == Status.HANG


def test_killed_from_outside_between_orders(process: CandidateProcess) -> None:
    os.kill(process.pid, signal.SIGKILL)
    assert eventually(lambda: not process.alive)
    with pytest.raises(CandidateError) as caught:
        process.order("ping", 5.0)
    assert caught.value.status == Status.OOM
    with pytest.raises(CandidateError, match="SIGKILL"):
        process.order("ping", 5.0)


def test_a_dead_one_answers_with_what_it_died_of(trial_of: TrialOf, inputs: InputSet) -> None:
    """Else whoever tidies up after a hang would make a crash of it."""
    trial = trial_of(plain("while True: pass"))
    assert failure(trial, inputs).status == Status.HANG
    with pytest.raises(CandidateError, match="within 2 s"):
        trial.release(inputs)


def test_a_fault_of_kopt_is_not_the_candidates(process: CandidateProcess) -> None:
    with pytest.raises(WorkerError, match="nobody"):
        process.order("load", 5.0, plugins=[["backend", "nobody:nothing", {}]], purpose="")
    assert process.tainted


def test_a_backend_that_cannot_copy_memory_is_told_what_it_lacks(
    trial_of: TrialOf, inputs: InputSet
) -> None:
    trial = trial_of(right(1))
    with pytest.raises(
        CandidateError, match="no fetch and store to copy it; use another"
    ) as caught:
        trial.order("fetch", key=trial.candidate.id, segments=[1])
    assert caught.value.status == Status.UNSUPPORTED


def test_an_order_that_was_begun_is_answered_before_the_next_one(recipe: ProcessRecipe) -> None:
    process = recipe.start()  # it loads its plugins, and nobody waits for it
    assert process.order("ping", 20.0)["ok"] is True
    process.begin("ping")
    assert process.finish(5.0)["ok"] is True
    process.kill()


def test_one_that_died_in_an_order_that_was_begun_says_so_from_then_on(
    recipe: ProcessRecipe,
) -> None:
    process = recipe.start()
    psutil.Process(process.pid).kill()
    with pytest.raises(CandidateError, match="SIGKILL during 'load'"):
        process.finish(5.0)
    with pytest.raises(CandidateError, match="SIGKILL during 'load'"):
        process.order("ping", 5.0)


def test_the_judge_does_not_end_while_another_thread_removes_a_home(
    recipe: ProcessRecipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home stayed behind where a judge ended while a process was being killed."""
    process = recipe.start()
    begun, remove = threading.Event(), shutil.rmtree

    def slowly(home: Path, **more: bool) -> None:
        begun.set()
        time.sleep(0.3)
        remove(home, **more)

    monkeypatch.setattr(shutil, "rmtree", slowly)
    monkeypatch.setattr(family, "_closed", False)  # as it was, afterwards
    monkeypatch.setattr(family, "living", {})  # other tests' live on
    killing = threading.Thread(target=process.kill)
    killing.start()
    assert begun.wait(20.0)
    assert process.home.exists()
    family.close()
    assert not process.home.exists()
    killing.join()


def test_no_secret_reaches_it(recipe: ProcessRecipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-hush")
    monkeypatch.setenv("HF_TOKEN", "hush")
    process = recipe.ready(recipe.start())
    environment = psutil.Process(process.pid).environ()
    process.kill()
    assert not [name for name, value in environment.items() if "hush" in value]
    assert environment["HOME"] == str(process.home)

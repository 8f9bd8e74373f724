"""Candidate processes that a fork server makes: as any other, but without imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from kopt.errors import CandidateError
from kopt.model.verification import Status
from kopt.testing.plain_problem import candidate
from kopt.worker import family, limits
from kopt.worker.forking import Adopted, Forker, ForkError
from kopt.worker.pool import ProcessPool, ProcessRecipe
from kopt.worker.process import CandidateProcess

if sys.platform != "linux":
    pytest.skip("only Linux lets a process adopt orphans", allow_module_level=True)


@pytest.fixture(scope="module", autouse=True)
def _adopting() -> Iterator[None]:
    """This process is the judge."""
    limits.adopt_orphans()
    yield
    limits._prctl(limits._PR_SET_CHILD_SUBREAPER, 0)
    limits._state["adopting"] = False


@pytest.fixture
def forker(recipe: ProcessRecipe) -> Iterator[Forker]:
    made = Forker(recipe.cache, recipe.plugins, "")
    yield made
    made.kill()


@pytest.fixture
def forking(recipe: ProcessRecipe, forker: Forker) -> ProcessRecipe:
    assert forker.obstacle == ""
    return replace(recipe, forker=forker)


@pytest.fixture
def forked(forking: ProcessRecipe) -> Iterator[CandidateProcess]:
    process = forking.ready(forking.start())
    yield process
    process.kill()


def test_it_is_a_child_of_this_process_in_a_session_of_its_own(forked, forker):
    assert forked.forked
    assert psutil.Process(forked.pid).ppid() == os.getpid()
    assert os.getsid(forked.pid) == forked.pid != os.getsid(forker.pid)
    assert os.getpgid(forked.pid) == forked.pid


def test_it_has_a_home_an_environment_and_a_log_of_its_own(forking, forked):
    other = forking.ready(forking.start())
    for process in (forked, other):
        source = "import os, sys; print(os.environ['HOME'], os.getcwd()); sys.stdout.flush()"
        process.order("build", 5.0, candidate=told(source), key="k")
        assert process.log_tail() == f"{process.home} {process.home}"
    assert other.home != forked.home
    other.kill()
    assert forked.alive


def told(source: str) -> dict[str, object]:
    """A candidate that does so when it is built."""
    return candidate("pass", before=source).to_json()


def test_no_secret_reaches_it(recipe, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-hush")
    forker = Forker(recipe.cache, recipe.plugins, "")
    process = replace(recipe, forker=forker).start()
    try:
        assert process.forked
        for pid in (forker.pid, process.pid):
            assert not [v for v in psutil.Process(pid).environ().values() if "hush" in v]
    finally:
        process.kill()
        forker.kill()


def test_none_inherits_what_the_others_are_served_on(forking, forked):
    def connections(pid: int) -> list[str]:
        names = [str(each.readlink()) for each in Path(f"/proc/{pid}/fd").iterdir()]
        return [name for name in names if name.startswith(("socket:", "pipe:"))]

    other = forking.ready(forking.start())
    here, there = connections(forked.pid), connections(other.pid)
    other.kill()
    assert len(here) == len(there) == 1
    assert here != there


@pytest.mark.parametrize("signal", ["kill", "terminate"])
def test_its_end_and_what_of_are_known(forked, signal):
    getattr(psutil.Process(forked.pid), signal)()
    with pytest.raises(CandidateError) as caught:
        forked.order("ping", 5.0)
    assert caught.value.status is (Status.OOM if signal == "kill" else Status.CRASHED)
    assert not forked.alive


def test_one_that_has_just_been_forked_can_be_killed(forking, forker):
    """It was not yet the leader of its group, by which it is killed, and was waited for for ever."""
    for _ in range(20):
        process = forking.start()
        assert os.getpgid(process.pid) == process.pid
        process.kill()
        assert not psutil.pid_exists(process.pid)


def test_a_hang_is_killed_with_what_it_started(forked):
    source = "import subprocess, time; subprocess.Popen(['sleep', '77']); time.sleep(60)"
    with pytest.raises(CandidateError) as caught:
        forked.order("build", 2.0, candidate=told(source), key="k")
    assert caught.value.status is Status.HANG
    assert not [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", "77"]]
    assert not psutil.pid_exists(forked.pid)


def test_an_exit_of_a_candidate_is_no_second_server(forked):
    with pytest.raises(CandidateError) as caught:
        forked.order("build", 5.0, candidate=told("import os; os._exit(3)"), key="k")
    assert "exited with code 3" in caught.value.detail


def test_it_dies_with_the_judge_and_so_does_the_server(recipe, tmp_path):
    script = tmp_path / "judge.py"
    script.write_text(f"""
import json, os, sys, time
from pathlib import Path
from kopt.worker import limits
from kopt.worker.forking import Forker
from kopt.worker.process import CandidateProcess
limits.adopt_orphans()
forker = Forker(Path({str(tmp_path)!r}), {[list(p) for p in recipe.plugins]!r}, "")
process = CandidateProcess(cache=Path({str(tmp_path)!r}), memory_limit=0, forker=forker)
print(json.dumps([forker.pid, process.pid, process.forked]), flush=True)
time.sleep(60)
""")
    judge = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE)
    assert judge.stdout is not None
    *pids, forked = json.loads(judge.stdout.readline())
    assert forked
    processes = [psutil.Process(pid) for pid in pids]
    judge.kill()
    judge.wait()
    judge.stdout.close()
    _, alive = psutil.wait_procs(processes, timeout=5.0)
    assert not alive


def test_one_whose_judge_died_before_it_was_adopted_ends(tmp_path):
    """It waited for ten seconds for a parent that was no more."""
    script = """
import socket
from kopt.worker import forkserver
forkserver._ADOPTION_SECONDS = 1e9
here, there = socket.socketpair()
here.close()
forkserver._await_adoption(-1, there.fileno())
"""
    done = subprocess.run([sys.executable, "-c", script], timeout=60.0, check=False)
    assert done.returncode == 1


def test_orphans_are_told_from_what_was_forked(forked):
    assert not family.reap_orphans()
    assert forked.alive


def test_a_server_that_died_is_done_without(forking, forker):
    psutil.Process(forker.pid).kill()
    process = forking.ready(forking.start())
    assert not process.forked
    assert process.order("ping", 5.0)["ok"] is True
    process.kill()
    assert forker.hopeless


def test_one_that_cannot_load_is_done_without_and_the_reason_is_kept(recipe):
    forker = Forker(recipe.cache, [("backend", "nobody:nothing", {})], "")
    try:
        assert "nobody" in forker.obstacle
        process = replace(recipe, forker=forker).start()
        assert not process.forked
        process.kill()
        with pytest.raises(ForkError), family.births:
            forker.fork(Path(), {}, 0, 0, 0)
    finally:
        forker.kill()


def test_a_wrapped_process_and_one_with_variables_of_its_own_are_not_forked(forking):
    for process in (forking.start(wrapper=["env"]), forking.start(environment={"A": "1"})):
        assert not process.forked
        process.kill()


def test_a_forked_one_that_does_not_open_is_replaced_by_one_that_is_not(forking, forker):
    process = forking.start()
    psutil.Process(process.pid).kill()
    other = forking.ready(process)
    assert not other.forked
    assert other.order("ping", 5.0)["ok"] is True
    other.kill()
    assert forker.hopeless


def test_a_pool_keeps_none_in_waiting_where_they_are_forked(forking, forker):
    pool = ProcessPool(forking, 1)
    pool.prestart(2)
    assert not pool._spares
    with pool.process() as process:
        assert process.forked
    with pool.process() as again:
        assert again is process
        forker.give_up("for a reason")
        again.tainted = True
    assert len(pool._spares) == 1
    pool._spares.pop().kill()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import threading, time; threading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
         "1 threads were left running"),
        ("device = open('/dev/ptmx')", "opened /dev/ptmx"),
        ("import numpy; numpy.ones((300, 300)) @ numpy.ones((300, 300))", ""),
    ],
    ids=["thread", "device", "OpenBLAS"],
)  # fmt: skip
def test_what_cannot_be_forked_is_found(code, words):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", f"{code}\nfrom kopt.worker.forkserver import obstacle\n"
         "print(obstacle())"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert words in done.stdout
    assert bool(words) == bool(done.stdout.strip())


def test_an_adopted_process_is_waited_for_as_a_child():
    pid = os.fork()
    if not pid:
        os._exit(7)
    adopted = Adopted(pid)
    assert adopted.wait(5.0) == 7 == adopted.poll()
    sleeper = subprocess.Popen(["sleep", "30"])
    adopted = Adopted(sleeper.pid)
    assert adopted.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        adopted.wait(0.05)
    sleeper.kill()
    assert adopted.wait(5.0) == -9
    sleeper.wait()

"""Judge and session's end of it: whoever dies, everybody else still gets a verdict."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from kopt.errors import CandidateError, ProblemError, WorkerError
from kopt.model.candidate import Candidate
from kopt.model.evaluation import Evaluation
from kopt.model.measurement import Interval, PairedSamples, WorkloadMeasurement
from kopt.model.verification import Status
from kopt.testing import records
from kopt.testing.plain_problem import candidate as plain
from kopt.testing.plain_problem import right
from kopt.testing.processes import eventually, marked
from kopt.worker import client
from kopt.worker.baselines import BaselineLostError
from kopt.worker.client import LocalEvaluator
from kopt.worker.confinement import SIGNALS_SINCE, landlock_version
from kopt.worker.device_lock import DeviceLock
from kopt.worker.judge import Judge
from kopt.worker.settings import JudgeSettings
from kopt.worker.stopwatch import Stopwatch

HIDE = """
import os, time

def hide():
    '''Start a process that has left group, session and parent.'''
    if os.fork():
        os.wait()
        while not os.path.exists({path!r}):
            time.sleep(0.01)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    with open({path!r} + ".part", "w") as file:
        file.write(str(os.getpid()))
    os.rename({path!r} + ".part", {path!r})
    time.sleep(600)
"""


def judge_of(marker: str) -> psutil.Process:
    (judge,) = [p for p in marked(marker) if "kopt.worker.judge_server" in p.cmdline()]
    return judge


def homes(tmp_path: Path) -> list[Path]:
    """Return the home folders of candidate processes that are still there."""
    return list((tmp_path / "tmp").glob("kopt-candidate-*"))


def kill_candidates(marker: str) -> None:
    children = judge_of(marker).children()
    assert children
    for child in children:
        child.kill()
    zombie = psutil.STATUS_ZOMBIE
    assert eventually(lambda: not any(c.is_running() and c.status() != zombie for c in children))


def by_id(evaluator: LocalEvaluator, candidates: Sequence[Candidate]) -> dict[str, Evaluation]:
    found = list(evaluator.evaluate(candidates))
    assert sorted(e.id for e in found) == sorted(c.id for c in candidates)
    return {evaluation.id: evaluation for evaluation in found}


def test_what_opening_a_problem_teaches(settings: JudgeSettings) -> None:
    evaluator = LocalEvaluator(settings)
    try:
        opening = evaluator.open()
    finally:
        evaluator.close()
    assert opening.fastest == "loop"
    assert opening.device.name == "plain"
    assert opening.baselines[0].measurement.latency_ms > 0
    assert opening.copy_ms["default"] > 0


def test_good_and_bad_side_by_side(evaluator: LocalEvaluator) -> None:
    goods = [right(number) for number in range(4)]
    bads = [
        (plain("pass"), Status.INCOMPLETE_WRITE),
        (plain("out[:] = x"), Status.WRONG),
        (plain("import os; os._exit(0)"), Status.CRASHED),
        (plain("while True: pass"), Status.HANG),
        (plain("print('PASS'); raise SystemExit(0)"), Status.LAUNCH_FAILED),
        (plain("pass", before="raise SystemExit(0)"), Status.LAUNCH_FAILED),
        (plain("pass", before="def"), Status.PARSE_ERROR),
        (Candidate(language="cobol", source="", entry="f"), Status.UNSUPPORTED),
    ]
    found = by_id(evaluator, [*goods, *(bad for bad, _ in bads)])
    assert all(found[c.id].measured and found[c.id].status == Status.CORRECT for c in goods)
    wrong = [found[bad.id] for bad, status in bads if found[bad.id].status != status]
    assert not wrong, [(e.candidate.source, e.status, e.detail) for e in wrong]
    assert not any(found[bad.id].measured for bad, _ in bads)


def test_the_reference_never_reaches_a_candidate(
    evaluator: LocalEvaluator, settings: JudgeSettings, tmp_path: Path
) -> None:
    """Objects, environment and arguments of its process are searched for the source."""
    secret = settings.problem.reference.source
    spy = plain(
        f"""
        import gc, os, sys
        mine = out.obj
        words = [repr(o) for o in gc.get_objects() if type(o).__name__ == 'Problem']
        words += [*sys.argv, *os.environ.values()]
        open({str(tmp_path / "seen")!r}, "w").write("\\n".join(words))
        out[:] = x
        """
    )
    (evaluation,) = evaluator.evaluate([spy])
    assert evaluation.status == Status.WRONG
    seen = (tmp_path / "seen").read_text()
    assert "name='double'" in seen
    assert secret not in seen
    assert repr(secret)[1:-1] not in seen


def test_the_build_deadline_starts_with_the_slot(settings: JudgeSettings) -> None:
    """Somebody else measures for longer than a build may take."""
    evaluator = LocalEvaluator(settings.model_copy(update={"build_seconds": 1.0}))
    device = evaluator.open().device
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with DeviceLock(settings.locks, device).exclusive():
            held.set()
            release.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(20)
    threading.Timer(2.5, release.set).start()
    found = by_id(evaluator, [right(1), right(2), right(3)])
    assert release.is_set()
    assert {e.status for e in found.values()} == {Status.CORRECT}
    thread.join()
    evaluator.close()


def test_a_hidden_grandchild_is_found(evaluator: LocalEvaluator, tmp_path: Path) -> None:
    path = tmp_path / "hidden"
    ends = ["import os; os.abort()", "import os; os._exit(0)", "while True: pass", "out[:] = x"]
    for end in ends:
        hostile = plain(f"hide()\n{end}", before=HIDE.format(path=str(path)))
        (evaluation,) = evaluator.evaluate([hostile])
        assert evaluation.status is not Status.CORRECT
        hidden = int(path.read_text())
        assert eventually(lambda pid=hidden: not psutil.pid_exists(pid), 5.0), end
        path.unlink()


def test_a_right_candidate_that_hides_a_child_costs_its_process_only(
    evaluator: LocalEvaluator, tmp_path: Path
) -> None:
    path = tmp_path / "hidden"
    body = "if not hidden: hidden.append(hide())\nfor i in range(len(x)): out[i] = 2 * x[i]"
    (evaluation,) = evaluator.evaluate(
        [plain(body, before=HIDE.format(path=str(path)) + "\nhidden = []\n")]
    )
    assert evaluation.status == Status.CORRECT
    assert eventually(lambda: not psutil.pid_exists(int(path.read_text())), 5.0)
    (again,) = evaluator.evaluate([right(1)])
    assert again.status == Status.CORRECT


def test_who_kills_the_judge_is_found_out(evaluator: LocalEvaluator) -> None:
    """Everybody of the batch is tried alone; only the one at fault pays, after one retry."""
    killer = plain("import os, signal, time; os.kill(os.getppid(), signal.SIGKILL); time.sleep(1)")
    goods = [right(number) for number in range(3)]
    found = by_id(evaluator, [goods[0], killer, *goods[1:]])
    assert all(found[good.id].measured for good in goods)
    assert found[killer.id].status == Status.INFRASTRUCTURE_ERROR
    assert "twice" in found[killer.id].detail
    (after,) = evaluator.evaluate([right(9)])
    assert after.measured


@pytest.mark.skipif(landlock_version() < SIGNALS_SINCE, reason="nothing confines signals here")
def test_a_confined_candidate_can_neither_kill_the_judge_nor_write_elsewhere(
    settings: JudgeSettings, tmp_path: Path, marker: str
) -> None:
    evaluator = LocalEvaluator(settings.model_copy(update={"confine": True}))
    try:
        evaluator.open()
        judge = judge_of(marker)
        found = by_id(evaluator, [
            killer := plain("import os; os.kill(os.getppid(), 9)"),
            writer := plain(f"open({str(tmp_path / 'note')!r}, 'w')"),
            reader := plain("import os; open(f'/proc/{os.getppid()}/mem', 'rb')"),
            right(1),
        ])  # fmt: skip
        for each in (killer, writer, reader):
            assert found[each.id].status is Status.LAUNCH_FAILED
            assert "ermi" in found[each.id].detail  # Permission denied, Operation not permitted
        assert found[right(1).id].measured
        assert judge_of(marker).pid == judge.pid
        assert not (tmp_path / "note").exists()
    finally:
        evaluator.close()


def test_a_judge_killed_from_outside_costs_nobody(evaluator: LocalEvaluator, marker: str) -> None:
    slow = plain("import time; time.sleep(0.2)\nfor i in range(len(x)): out[i] = 2 * x[i]")
    judge = judge_of(marker)
    threading.Timer(0.5, judge.kill).start()
    found = by_id(evaluator, [slow, right(1), right(2)])
    assert {e.status for e in found.values()} == {Status.CORRECT}
    assert judge_of(marker).pid != judge.pid


def test_a_judge_that_is_stuck_is_replaced(
    settings: JudgeSettings, marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_LEAVE_SECONDS", 1.0)
    monkeypatch.setattr(client, "_ORDERS_PER_EVALUATION", 1)
    evaluator = LocalEvaluator(settings.model_copy(update={"build_seconds": 2.0}))
    evaluator.open()
    stuck = judge_of(marker)
    stuck.suspend()
    (evaluation,) = evaluator.evaluate([right(1)])
    assert evaluation.measured
    assert not stuck.is_running()
    evaluator.close()


def test_a_baseline_that_dies_is_no_candidates_fault(
    evaluator: LocalEvaluator, marker: str
) -> None:
    (first,) = evaluator.evaluate([right(1)])
    assert first.measured
    kill_candidates(marker)  # the baseline's process is among them
    found = by_id(evaluator, [right(2), right(3)])
    assert all(e.measured for e in found.values()), [e.detail for e in found.values()]
    assert evaluator.confirm(right(2)).measured


def test_a_baseline_that_dies_before_a_confirmation(evaluator: LocalEvaluator, marker: str) -> None:
    kill_candidates(marker)
    assert evaluator.confirm(right(2)).measured


def test_confirm_and_verify(evaluator: LocalEvaluator) -> None:
    confirmed = evaluator.confirm(right(1))
    last = confirmed.verifications[0].stages[-1]
    assert (last.stage, last.outcome) == ("confirmation", "pass")
    assert all(name in last.evidence for name in confirmed.measurement.speedup)
    assert confirmed.measurement is not None
    assert confirmed.measurement.protocol == "confirm"
    verified = evaluator.verify(right(1))
    assert (verified.status, verified.measured) == (Status.CORRECT, False)
    assert evaluator.verify(plain("out[:] = x")).status == Status.WRONG


def test_what_a_backend_cannot_do_is_said(evaluator: LocalEvaluator) -> None:
    found = evaluator.compiled(right(1), "sm_90")
    assert (found.status, "ahead of time" in found.fault) == (Status.UNSUPPORTED, True)
    found = evaluator.compiled(right(1), "native", "ptx")
    assert (found.status, found.listings) == (Status.UNSUPPORTED, {})
    assert found.fault == "the plain backend has no listing 'ptx'; it has none"
    broken = evaluator.compiled(plain("pass", before="def"), "native")
    assert (broken.status is None, broken.build) == (False, None)


def test_a_build_for_this_machine_runs_nothing(evaluator: LocalEvaluator) -> None:
    found = evaluator.compiled(right(1), "native")
    assert (found.target, found.status, found.kernels, found.listings) == ("native", None, (), {})
    assert found.build is not None and found.build.backend == "plain"


def test_a_reference_that_fails(settings: JudgeSettings) -> None:
    problem = settings.problem
    source = problem.reference.model_copy(update={"source": "def double(x, out): out[0] = 1 / 0"})
    broken = problem.model_copy(update={"reference": source})
    evaluator = LocalEvaluator(settings.model_copy(update={"problem": broken}))
    with pytest.raises((ProblemError, WorkerError), match="division by zero"):
        evaluator.open()
    evaluator.close()


def test_closing_ends_a_candidate_that_runs(
    evaluator: LocalEvaluator, marker: str, tmp_path: Path
) -> None:
    hostile = plain("hide()\ntime.sleep(60)", before=HIDE.format(path=str(tmp_path / "hidden")))
    thread = threading.Thread(target=lambda: list(_until_closed(evaluator, hostile)))
    thread.start()
    assert eventually((tmp_path / "hidden").exists)
    start = time.monotonic()
    judge_of(marker).terminate()
    thread.join(30)
    evaluator.close()
    assert time.monotonic() - start < 30
    assert eventually(lambda: not marked(marker), 5.0)
    assert not homes(tmp_path)


def _until_closed(evaluator: LocalEvaluator, candidate: Candidate) -> Sequence[Evaluation]:
    return list(evaluator.evaluate([candidate]))


SESSION = """
import sys
from kopt.model.candidate import Candidate
from kopt.worker.baselines import BaselineLostError
from kopt.worker.client import LocalEvaluator
from kopt.worker.judge import Judge
from kopt.worker.settings import JudgeSettings
from kopt.worker.stopwatch import Stopwatch

evaluator = LocalEvaluator(JudgeSettings.model_validate_json(sys.argv[1]))
evaluator.open()
print("open", flush=True)
list(evaluator.evaluate([Candidate.model_validate_json(text) for text in sys.argv[2:]]))
"""


@pytest.mark.parametrize("opened", [False, True], ids=["opening", "evaluating"])
def test_a_session_that_is_killed_leaves_nobody(
    settings: JudgeSettings, marker: str, tmp_path: Path, opened: bool
) -> None:
    """Not even a candidate's child that has left group, session and parent."""
    hidden = tmp_path / "hidden"
    patient = settings.model_copy(update={"run_seconds": 60.0})
    hostile = plain("hide()\ntime.sleep(60)", before=HIDE.format(path=str(hidden)))
    arguments = [patient.model_dump_json(), hostile.model_dump_json(), right(1).model_dump_json()]
    session = subprocess.Popen([sys.executable, "-c", SESSION, *arguments], stdout=subprocess.PIPE)
    assert session.stdout is not None
    if opened:
        assert session.stdout.readline() == b"open\n"
        assert eventually(lambda: hidden.exists() and bool(hidden.read_text()))
    else:
        assert eventually(lambda: len(marked(marker)) > 2)
    os.kill(session.pid, signal.SIGKILL)
    session.communicate()
    assert eventually(lambda: not marked(marker), 10.0)
    assert not homes(tmp_path)


@pytest.mark.parametrize(
    ("opening_ms", "now_ms", "credible"), [(9.0, 2.0, True), (9.0, 8.0, False)]
)
def test_a_copy_timed_on_a_busy_machine_wrongs_no_kernel(
    opening_ms: float, now_ms: float, credible: bool
) -> None:
    """The floor is the faster of the copy at opening and one timed when it matters.

    That one is of a part where all of the bytes would fill the device beside what is timed.
    """
    moved, asked = 64 << 20, []
    watch = object.__new__(Stopwatch)  # its floor alone is asked
    watch.copy_ms = {"default": opening_ms}

    def copy_ms(nbytes: int) -> float:
        asked.append(nbytes)
        return now_ms * nbytes / moved

    watch.reference = SimpleNamespace(  # type: ignore[assignment]
        copy_ms=copy_ms, device=SimpleNamespace(memory_bytes=4 * moved)
    )
    pair = PairedSamples(
        baseline="eager", launches=1, baseline_launches=1, samples_ms=(1.0,),
        baseline_samples_ms=(1.0,), speedup=Interval(median=1.0, low=1.0, high=1.0),
    )  # fmt: skip
    found = WorkloadMeasurement(
        workload="default", weight=1.0, latency_ms=1.0, call_ms=1.0, bytes_moved=moved,
        pairs=(pair,),
    )  # fmt: skip
    if credible:
        watch._check_floor(found)
    else:
        with pytest.raises(CandidateError) as caught:
            watch._check_floor(found)
        assert caught.value.status is Status.TIMING_NOT_CREDIBLE
    assert watch.copy_ms["default"] == now_ms
    assert asked == [moved // 4]


@pytest.mark.parametrize(
    ("raised", "tries", "status"),
    [
        ([RuntimeError("CUDA out of memory")], 2, Status.CORRECT),
        ([WorkerError("a verifier failed"), MemoryError()], 2, Status.INFRASTRUCTURE_ERROR),
        ([], 1, Status.CORRECT),
    ],
)
def test_what_fails_in_the_judge_itself_is_tried_again_with_more_memory(raised, tries, status):
    """An allocation that failed while timing inputs were drawn went straight to the answer."""
    judge = object.__new__(Judge)  # its second try alone is asked
    given, asked = iter(raised), []
    judge._turn = threading.RLock()
    judge._bench = SimpleNamespace(unbind=lambda: asked.append("unbind"))  # type: ignore[assignment]
    judge.timing = SimpleNamespace(close=lambda: asked.append("close"))  # type: ignore[assignment]

    def once(candidate: Candidate, *, fresh: bool, timed: bool) -> Evaluation:
        asked.append("try")
        if (error := next(given, None)) is not None:
            raise error
        return records.measured(candidate, 2.0)

    judge._once = once  # type: ignore[method-assign]
    found = judge._retried(right(1), fresh=False)
    assert (found.status, asked.count("try")) == (status, tries)
    assert asked.count("unbind") == asked.count("close") == len(raised)


def test_a_lost_baseline_and_a_bad_problem_are_not_tried_again():
    for error in (BaselineLostError("died"), ProblemError("wrong")):
        judge = object.__new__(Judge)

        def once(*given: object, error: Exception = error, **more: object) -> Evaluation:
            raise error

        judge._once = once  # type: ignore[assignment]
        with pytest.raises(type(error)):
            judge._retried(right(1), fresh=False)


def test_what_one_left_in_its_process_is_not_held_against_the_next(
    settings: JudgeSettings,
) -> None:
    """A right candidate that replaces a builtin: in the same process honest ones fail."""
    evaluator = LocalEvaluator(settings.model_copy(update={"build_workers": 1}))
    doubles = "for i in range(len(x)):\n    out[i] = {} * (2.0 if x[i] > 0 else -2.0)"
    patch = "import builtins\nbuiltins.abs = lambda value: 0.0"
    spoils = plain(doubles.format("(x[i] * x[i]) ** 0.5"), before=patch)
    honest = plain(doubles.format("abs(x[i])"))
    try:
        evaluator.open()
        assert by_id(evaluator, [spoils])[spoils.id].status == Status.CORRECT
        assert by_id(evaluator, [honest])[honest.id].status == Status.CORRECT
    finally:
        evaluator.close()


def test_a_winner_is_built_anew_and_its_cache_is_gone_afterwards(
    evaluator: LocalEvaluator, settings: JudgeSettings, tmp_path: Path
) -> None:
    """What earlier candidates' processes may have written to is not read."""
    told = tmp_path / "told"
    source = f"""
        import os
        with open({str(told)!r}, "a") as file:
            print(os.environ["TRITON_CACHE_DIR"], file=file)
        for i in range(len(x)):
            out[i] = x[i] + x[i]
        """
    candidate = plain(source)
    assert by_id(evaluator, [candidate])[candidate.id].status == Status.CORRECT
    searched = set(told.read_text().split())
    told.unlink()
    assert evaluator.confirm(candidate).status == Status.CORRECT
    (confirmed,) = set(told.read_text().split())
    assert searched == {str(settings.cache / "triton")}
    assert Path(confirmed).parent.parent == settings.cache
    assert Path(confirmed).parent.name.startswith("anew-")
    assert not Path(confirmed).parent.exists()

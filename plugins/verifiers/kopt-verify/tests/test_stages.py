"""Each stage through a real candidate process: what passes, what fails, and under which status."""

from __future__ import annotations

import sys
import weakref

import pytest
import torch

from kopt.errors import CandidateError
from kopt.model.kernel_file import parse_kernel
from kopt.model.problem import InputSpec, Workload
from kopt.model.verification import Status
from kopt.testing.problems import function_problem, vector_add
from kopt.testing.verifier import HONEST, cpp_add, torch_add
from kopt_verify import Verify, stages
from kopt_verify.verifier import STAGES

LOOP = "for (int64_t i = 0; i < n; ++i)"
SUM = f"{LOOP} out[i] = x[i] + y[i];"


def outcomes(verdict):
    return {stage.stage: stage.outcome for stage in verdict.stages}


def failed(verdict):
    (stage,) = [stage for stage in verdict.stages if stage.outcome == "fail"]
    return stage.stage, stage.evidence


def test_an_honest_kernel_passes_every_stage_with_evidence(judge):
    verdict = judge(HONEST, depth="winner")
    assert verdict.status is Status.CORRECT
    assert outcomes(verdict) == dict.fromkeys(STAGES, "pass")
    evidence = {stage.stage: stage.evidence for stage in verdict.stages}
    assert evidence["parse"] == "entry vector_add"
    assert evidence["build"].startswith("cpp in ")
    assert evidence["smoke"].startswith("tensor, 1 output(s)")
    assert "bitwise equal" in evidence["poison"]
    assert "default/native out0" in evidence["accuracy"]
    assert "default/signed out0" in evidence["accuracy"]
    assert verdict.error_ratio == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("body", "stage", "status", "words"),
    [
        (f"{LOOP} out[i] = 0;", "accuracy", Status.WRONG, "default/native out0"),
        (f"{LOOP} out[i] = 0.3f;", "accuracy", Status.WRONG, "limit"),
        (f"{LOOP} out[i] = x[i];", "accuracy", Status.WRONG, "limit"),
        (f"{LOOP} out[i] = y[i] - x[i];", "accuracy", Status.WRONG, "limit"),
        (f"{LOOP} out[i] = x[i] + y[i] + 1e-4f;", "accuracy", Status.WRONG, "limit"),
        (f"{LOOP} out[i] = 0.0f / 0.0f;", "accuracy", Status.WRONG, "NaN"),
        ("", "poison", Status.INCOMPLETE_WRITE, "4096 of 4096 elements were not written"),
        ("for (int64_t i = 0; i + 1 < n; ++i) out[i] = x[i] + y[i];", "poison",
         Status.INCOMPLETE_WRITE, "1 of 4096 elements"),
        ("for (int64_t i = 0; i < n; i += 2) out[i] = x[i] + y[i];", "poison",
         Status.INCOMPLETE_WRITE, "2048 of 4096 elements"),
        (f"{SUM} x[n - 1] = -x[n - 1];", "poison", Status.MUTATES_INPUT, "the input x"),
        (f"{SUM} x[0] = 0; y[0] = 0;", "poison", Status.MUTATES_INPUT, "the input x, y"),
        # Reads what the last call left there.
        (f"{LOOP} out[i] += x[i] + y[i];", "accuracy", Status.WRONG, "NaN"),
        (f"{LOOP} out[i] = out[i] == out[i] ? out[i] : x[i] + y[i];", "poison",
         Status.INCOMPLETE_WRITE, "not written"),
        # Remembers the first answer that it gave.
        ("static float kept[4096]; static bool seen = false;\n"
         f"{LOOP} {{ if (!seen) kept[i] = x[i] + y[i]; out[i] = kept[i]; }}\n seen = true;",
         "accuracy", Status.WRONG, "default/signed"),
        # Right once, wrong afterwards.
        ("static int calls = 0; ++calls;\n"
         f"{LOOP} out[i] = (x[i] + y[i]) * (calls > 1 ? 1.001f : 1);", "accuracy", Status.WRONG,
         "limit"),
    ],
)  # fmt: skip
def test_wrong_kernels_fail_in_their_stage(judge, body, stage, status, words):
    verdict = judge(cpp_add(body))
    assert verdict.status is status
    name, evidence = failed(verdict)
    assert name == stage
    assert words in evidence
    assert [s.stage for s in verdict.stages] == list(STAGES)
    later = STAGES[STAGES.index(stage) + 1 :]
    assert all(outcomes(verdict)[name] == "not run" for name in later)


@pytest.mark.parametrize(
    ("body", "words"),
    [("out[n] = 1;", "outside of out0"), ("out[-1] = 1;", "outside of out0"),
     ("y[n + 2] = 1;", "outside of y"), ("x[-100] = 1;", "outside of x")],
)  # fmt: skip
def test_a_write_beside_a_tensor_fails_in_poison(open_trials, body, words):
    trial = open_trials(vector_add(77)).of(parse_kernel(cpp_add(f"{SUM} {body}"), "cpp"))
    verdict = Verify(Verify.Options()).kopt_verify(trial)
    assert verdict.status is Status.ILLEGAL_ACCESS
    stage, evidence = failed(verdict)
    assert stage == "poison"
    assert words in evidence


@pytest.mark.skipif(sys.platform != "linux", reason="guard pages are tested on Linux")
@pytest.mark.parametrize(
    "body",
    ["out[n] = 1;", "out[-1] = 1;", "y[n + 100] = 1;", "out[0] += 0 * ((volatile float*)x)[n];"],
)
def test_touching_a_page_beside_a_tensor_is_the_end(trials, body):
    with pytest.raises(CandidateError, match=r"SIGSEGV|SIGBUS") as caught:
        Verify(Verify.Options()).kopt_verify(
            trials.of(parse_kernel(cpp_add(f"{SUM} {body}"), "cpp"))
        )
    assert caught.value.status is Status.ILLEGAL_ACCESS


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ("(x + y)[:, None]", "shape (4096, 1)"),
        ("(x + y)[:-1]", "shape (4095,)"),
        ("(x + y).double()", "dtype float64"),
        ("(x + y).half()", "dtype float16"),
        ("(x + y).to('meta')", "device meta"),
        ("(x + y,)", "it returned tuple:1"),
        ("None", "it returned none"),
        ("'PASS'", "it returned other:str"),
    ],
)
def test_another_form_fails_in_smoke(judge, result, words):
    verdict = judge(torch_add(result), "torch")
    assert verdict.status is Status.INVALID_OUTPUT
    stage, evidence = failed(verdict)
    assert stage == "smoke"
    assert words in evidence
    assert outcomes(verdict)["accuracy"] == "not run"


def test_a_changed_input_hides_nothing_in_python_either(judge):
    assert judge(torch_add("x.add_(y)"), "torch").status is Status.MUTATES_INPUT
    assert judge(torch_add("x.copy_(x + y) + 0"), "torch").status is Status.MUTATES_INPUT


# --- what is right in another way ---


def test_differences_between_runs_within_bounds_are_accepted_and_said(judge):
    body = f"static int calls = 0; ++calls; {LOOP} out[i] = x[i] + y[i];\n"
    verdict = judge(cpp_add(body + "if (calls % 2) out[7] *= 1.0000001f;"))
    assert verdict.status is Status.CORRECT
    evidence = {stage.stage: stage.evidence for stage in verdict.stages}["poison"]
    assert evidence == "1 elements differ between two runs on the same inputs"


@pytest.mark.parametrize(("ending", "kept"), [("", 0), ("if (calls % 2) out[7] *= 1.0000001f;", 1)])
def test_copies_of_results_are_kept_where_runs_differ_only(judge, monkeypatch, ending, kept):
    """They take as much memory as the results, while the oracle is at work."""
    copies: list[weakref.ref[torch.Tensor]] = []
    alive: list[int] = []
    clone, accuracy = torch.Tensor.clone, stages._accuracy

    def cloned(tensor):
        copies.append(weakref.ref(copy := clone(tensor)))
        return copy

    def judged(trial, question, results):
        monkeypatch.undo()
        alive.append(sum(each() is not None for each in copies))
        return accuracy(trial, question, results)

    monkeypatch.setattr(torch.Tensor, "clone", cloned)
    monkeypatch.setattr(stages, "_accuracy", judged)
    body = f"static int calls = 0; ++calls; {LOOP} out[i] = x[i] + y[i];\n{ending}"
    assert judge(cpp_add(body)).status is Status.CORRECT
    assert alive == [kept]


def test_differences_between_runs_beyond_bounds_are_wrong_whichever_run_has_them(judge):
    for odd in (0, 1):
        body = f"static int calls = 0; ++calls; {LOOP} out[i] = x[i] + y[i];\n"
        assert judge(cpp_add(f"{body} if (calls % 2 == {odd}) out[7] += 0.5f;")).status is (
            Status.WRONG
        )


@pytest.mark.parametrize(
    "expression", ["float(double(x[i]) + y[i])", "y[i] + x[i]", "(x[i] + y[i]) * 1.0000002f"]
)
def test_other_roundings_are_accepted(judge, expression):
    assert judge(cpp_add(f"{LOOP} out[i] = {expression};")).status is Status.CORRECT


def test_a_winner_is_asked_more_often(judge):
    # A search calls three times: twice over the first inputs, once over the others.
    counting = f"static int calls = 0; ++calls; {SUM} if (calls > 4) out[0] += 1;"
    assert judge(cpp_add(counting)).status is Status.CORRECT
    # Another source, as a library that is loaded already goes on counting.
    assert judge(cpp_add(f"{counting} // again"), depth="winner").status is Status.WRONG


# --- workloads, several outputs, in place, whole numbers ---


def spec(name, *shape, **more):
    return InputSpec(name=name, shape=shape, **more)


def test_check_workloads_are_judged_too(open_trials):
    problem = function_problem(
        "def double(x):\n    return x * 2\n", "double", (spec("x", "n"),),
        workloads=(
            Workload(name="timed", sizes={"n": 64}),
            Workload(name="odd", sizes={"n": 61}, role="check"),
        ),
    )  # fmt: skip
    trials = open_trials(problem)
    fixed = "def kernel_function(x):\n    return x * 2 if x.numel() == 64 else x * 2.01\n"
    verdict = Verify(Verify.Options()).kopt_verify(trials.of(parse_kernel(fixed, "torch")))
    assert verdict.status is Status.WRONG
    assert "odd/native" in failed(verdict)[1]
    honest = "def kernel_function(x):\n    return x + x\n"
    assert (
        Verify(Verify.Options()).kopt_verify(trials.of(parse_kernel(honest, "torch"))).status
        is Status.CORRECT
    )


CPP_IN_PLACE = """// /// kopt
// entry = "accumulate"
// arguments = ["x", "y", "x.numel"]
// ///
#include <cstdint>
extern "C" void accumulate(float* x, float* y, int64_t n) { BODY }
"""


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (f"{LOOP} x[i] += y[i];", Status.CORRECT),
        (f"{LOOP} x[i] = y[i];", Status.WRONG),
        ("", Status.WRONG),
        ("for (int64_t i = 1; i < n; ++i) x[i] += y[i];", Status.WRONG),
        (f"{LOOP} {{ x[i] += y[i]; y[i] = 0; }}", Status.MUTATES_INPUT),
        (f"{LOOP} x[i] += y[i]; x[-1] = 0;", Status.ILLEGAL_ACCESS),
        # Works once: the second call finds what the first one left.
        (f"static bool done = false; if (!done) {LOOP} x[i] += y[i]; done = true;", Status.WRONG),
    ],
)
def test_an_operator_in_place_is_judged_on_its_argument(open_trials, body, status):
    problem = function_problem(
        "def accumulate(x, y):\n    x.add_(y)\n", "accumulate", (spec("x", 256), spec("y", 256)),
        mutates=("x",),
    )  # fmt: skip
    candidate = parse_kernel(CPP_IN_PLACE.replace("BODY", body), "cpp")
    verdict = Verify(Verify.Options()).kopt_verify(open_trials(problem).of(candidate))
    assert verdict.status is status


TOP = """// /// kopt
// entry = "top"
// arguments = ["x", "out0", "out1", "x.shape[0]", "x.shape[1]"]
// ///
#include <cstdint>
extern "C" void top(const float* x, float* value, int64_t* index, int64_t rows, int64_t cols) {
    for (int64_t r = 0; r < rows; ++r) {
        int64_t best = 0;
        for (int64_t c = 1; c < cols; ++c) if (x[r * cols + c] > x[r * cols + best]) best = c;
        value[r] = x[r * cols + best];
        index[r] = best WRONG;
    }
}
"""


@pytest.mark.parametrize(
    ("wrong", "status"),
    [("", Status.CORRECT), ("+ 1", Status.WRONG), ("& 3", Status.WRONG)],
)
def test_every_output_is_judged(open_trials, wrong, status):
    problem = function_problem("def top(x):\n    return x.max(-1)\n", "top", (spec("x", 16, 33),))
    candidate = parse_kernel(TOP.replace("WRONG", wrong), "cpp")
    verdict = Verify(Verify.Options()).kopt_verify(open_trials(problem).of(candidate))
    assert verdict.status is status
    if wrong:
        assert "out1" in failed(verdict)[1]


# --- a candidate that ends, and the next one ---

SYSTEM = "#include <cstdint>\n#include <cstdlib>\n#include <unistd.h>"


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        ("*(volatile int*)8 = 1;", Status.ILLEGAL_ACCESS),
        ("abort();", Status.CRASHED),
        ("_exit(0);", Status.CRASHED),
        ("exit(0);", Status.CRASHED),
    ],
)
def test_a_death_costs_that_candidate_only(trials, ending, status):
    verifier = Verify(Verify.Options())
    honest = parse_kernel(HONEST, "cpp")
    assert verifier.kopt_verify(trials.of(honest)).status is Status.CORRECT
    # It spoils its inputs first: the questions are kept, and the next candidate must get them whole.
    deadly = cpp_add(f"x[0] += 1; y[5] = 3; {ending}")
    deadly = deadly.replace("#include <cstdint>", SYSTEM)
    with pytest.raises(CandidateError) as caught:
        verifier.kopt_verify(trials.of(parse_kernel(deadly, "cpp")))
    assert caught.value.status is status
    assert "'run'" in caught.value.detail
    assert verifier.kopt_verify(trials.of(honest)).status is Status.CORRECT


def test_a_hang_is_a_hang(trials, monkeypatch):
    verifier = Verify(Verify.Options())
    hanging = trials.of(parse_kernel(cpp_add('x[0] += 1; for (;;) asm volatile("");'), "cpp"))
    monkeypatch.setattr(hanging, "_run_seconds", 0.5)
    with pytest.raises(CandidateError) as caught:
        verifier.kopt_verify(hanging)
    assert caught.value.status is Status.HANG
    assert verifier.kopt_verify(trials.of(parse_kernel(HONEST, "cpp"))).status is Status.CORRECT

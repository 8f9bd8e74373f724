"""``kopt.optimize`` in a program: functions of the script itself, by value, to a finished run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kopt
from kopt.testing.caches import shared_cache

pytest.importorskip("kopt_torch")
pytest.importorskip("kopt_cpp")

ONE = kopt.Budget(trials=1)
SCRIPT = '''
"""Run as __main__: nothing of this file can be imported by another process."""

import json

import torch

import kopt

EPSILON = 1e-6


def scale(x):
    return torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPSILON)


def rms_norm(x, weight):
    return x * scale(x) * weight


if __name__ == "__main__":
    run = kopt.optimize(
        FUNCTION, INPUTS, budget=kopt.Budget(trials=3), options={"backend.torch": {"compile": False}},
        runs_dir="runs", device="cpu",
    )
    print(json.dumps({
        "status": run.status, "trials": run.trials, "baselines": sorted(run.baselines),
        "problem": run.problem.name, "kind": run.problem.reference.kind,
        "best": run.best and run.best.candidate.language, "folder": str(run.folder),
        "source": run.source_path and run.source_path.read_text()[:12],
    }))
'''
_INPUTS = "[torch.randn(96, 64), torch.randn(64)]"


def run_script(folder: Path, function="rms_norm", inputs=_INPUTS) -> dict[str, object]:
    """Run the script in a folder of its own and return what it printed last."""
    script = SCRIPT.replace("FUNCTION", function).replace("INPUTS", inputs)
    (folder / "program.py").write_text(script)
    environment = {**os.environ, "KOPT_CACHE_DIR": str(shared_cache(folder))}
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=folder, env=environment, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_function_of_a_script_is_optimised(tmp_path):
    found = run_script(tmp_path)
    assert found["status"] in {"improved", "not-improved"}  # so small a problem may go either way
    assert found["trials"] == {"correct": 3}
    assert found["baselines"] == ["eager", "eager-pooled"]
    assert (found["problem"], found["kind"]) == ("rms_norm", "pickled")
    assert found["best"] == "cpp"
    assert found["source"] == "// /// kopt\n"
    assert Path(str(found["folder"])).parent == tmp_path / "runs"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["program.py", "runs"]


def test_inputs_by_name_and_a_lambda(tmp_path):
    found = run_script(
        tmp_path, "lambda x, *, weight: x * scale(x) * weight",
        "{'x': torch.randn(32, 64), 'weight': torch.randn(64)}",
    )  # fmt: skip
    assert found["kind"] == "pickled"
    assert found["trials"] == {"correct": 3}


def test_a_module_is_optimised_with_its_parameters(tmp_path):
    found = run_script(tmp_path, "torch.nn.LayerNorm(64)", "[torch.randn(48, 64)]")
    assert found["trials"] == {"correct": 3}
    assert found["best"] == "cpp"


@pytest.mark.parametrize(
    ("function", "inputs", "words"),
    [
        (lambda x: x, None, "needs inputs"),
        (lambda x: missing(x), (3,), "NameError: name 'missing'"),  # noqa: F821
        (lambda x: x.add_(1), (3,), "mutates = ['x']"),
        (lambda x: x + x.new_empty(3).uniform_(), (3,), "random numbers"),
        (lambda x: x.to("meta"), (0,), "empty"),
    ],
)
def test_wrong_use_is_a_kopt_error_with_a_next_step(tmp_path, monkeypatch, function, inputs, words):
    import torch

    monkeypatch.setenv("KOPT_CACHE_DIR", str(shared_cache(tmp_path)))
    sample = None if inputs is None else [torch.zeros(inputs)]
    with pytest.raises(kopt.KoptError) as caught:
        kopt.optimize(function, sample, runs_dir=tmp_path, device="cpu", budget=ONE)
    assert words in str(caught.value)


class Counter:
    """Counts what it is asked, and says what the probe's listing holds."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    @kopt.hookimpl
    def kopt_profile(self, evaluation, probe):
        self.asked.append(evaluation.id)
        (listing,) = probe.listing("asm").values()
        note = f"{listing.count(chr(10))} lines"
        return kopt.Profile(profiler="counter", candidate=evaluation.id, notes=(note,))


class Opinion:
    """Judges by what it is told, and notes it."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, ...]] = []

    @kopt.hookimpl
    def kopt_judge(self, evaluation, profiles):
        self.seen.append(tuple(profile.profiler for profile in profiles))
        return kopt.Diagnosis(judge="opinion", bottleneck="memory", evidence=(evaluation.id,))


def test_parents_are_profiled_and_judged_and_it_is_written_down(tmp_path, monkeypatch):
    import torch

    monkeypatch.setenv("KOPT_CACHE_DIR", str(shared_cache(tmp_path)))
    counter, opinion = Counter(), Opinion()
    run = kopt.optimize(
        torch.nn.LayerNorm(64), [torch.randn(48, 64)], runs_dir=tmp_path, device="cpu",
        backend="cpp", budget=kopt.Budget(trials=5), profilers=[counter], judges=[opinion],
        options={"backend.torch": {"compile": False}},
    )  # fmt: skip
    lines = (run.folder / "journal.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    diagnosed = [entry["data"] for entry in entries if entry["kind"] == "diagnosed"]
    assert diagnosed
    assert len(counter.asked) == len(set(counter.asked)), "a parent is profiled once"
    assert {each["parent"] for each in diagnosed} == set(counter.asked)
    assert set(opinion.seen) == {("kopt", "counter")}
    for each in diagnosed:
        own, counted = each["profiles"]
        assert {metric["name"] for metric in own["metrics"]} >= {"latency_us", "compulsory_bytes"}
        assert counted["notes"][0].endswith(" lines")
        assert each["diagnoses"][0]["evidence"] == [each["parent"]]
    assert not [entry for entry in entries if entry["kind"] == "plugin-failed"]

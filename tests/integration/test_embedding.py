"""``kopt.optimize`` in a program: functions of the script itself, by value, to a finished run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kopt

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
    environment = {**os.environ, "KOPT_CACHE_DIR": str(folder / "cache")}
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
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "program.py", "runs"]


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

    monkeypatch.setenv("KOPT_CACHE_DIR", str(tmp_path / "cache"))
    sample = None if inputs is None else [torch.zeros(inputs)]
    with pytest.raises(kopt.KoptError) as caught:
        kopt.optimize(function, sample, runs_dir=tmp_path, device="cpu", budget=ONE)
    assert words in str(caught.value)

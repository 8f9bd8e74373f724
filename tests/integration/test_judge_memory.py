"""How much memory a judge takes for a problem that fills its device, in multiples of the inputs.

The problem is as large to the device that it is told of as inputs of 4 GiB are to 23.5, and what is
computed at a time is as small to the problem. All that the judge's process has of tensors counts,
shared ones too: on a GPU both are the device's memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from kopt.model.kernel_file import parse_kernel
from kopt.model.problem import Problem, ReferenceSource
from kopt.worker.settings import JudgeSettings

ROWS, COLS = 1024, 2048
INPUT = 4 * ROWS * COLS
TIMES = (4 << 30) // INPUT
"""By how much the problem is smaller than what it stands for."""
TORCH = ("backend", "kopt-torch:torch", {"compile": False})
VERIFY = ("verifier", "kopt-verify:verify", {})
JUDGE = f"""
import json, os, sys

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import kopt_verify.stages
from kopt.model.candidate import Candidate
from kopt.worker.judge import Judge
from kopt.worker.settings import JudgeSettings
from kopt_torch import checksum, domains, machine, preflight, sharp, slices, stress, tensors
from kopt_verify import accuracy, beyond, conditioning, sampling


class Held(TorchDispatchMode):
    most, known = 0, {{}}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {{}}))
        for leaf in tree_leaves([args, result]):
            if isinstance(leaf, torch.Tensor) and not isinstance(leaf, FakeTensor):
                storage = leaf.untyped_storage()
                if storage.device.type == "cpu":
                    self.known[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self.known = {{k: each for k, each in self.known.items() if not each[0].expired()}}
        self.most = max(self.most, sum(nbytes for _, nbytes in self.known.values()))
        return result

    def since(self):
        most, self.most = self.most, 0
        return most / {INPUT}


for module, name in (
    (slices, "CHUNK_BYTES"), (preflight, "CHUNK_BYTES"), (tensors, "PIECE"), (sharp, "_CHUNK"),
    (stress, "_AT_A_TIME"), (domains, "_AT_A_TIME"), (slices, "_FEW_ELEMENTS"),
    (conditioning, "_PIECE"), (conditioning, "_MOST_ELEMENTS"), (kopt_verify.stages, "_CHUNK"),
):
    setattr(module, name, getattr(module, name) // {TIMES})
for by_device in (
    accuracy._CHUNK, checksum._CHUNK_ROWS, sampling._BYTES, beyond._MOST_ELEMENTS, beyond._MOST_FEWER
):
    by_device["cpu"] = by_device["cuda"] // {TIMES}
found = machine.find_device
told = {{"memory_bytes": int(23.5 * 2**30) // {TIMES}, "cache_bytes": (60 << 20) // {TIMES}}}
machine.find_device = lambda kind: found(kind).model_copy(update=told)

given = json.load(sys.stdin)
candidate = Candidate.model_validate(given["candidate"])
with Held() as held:
    judge = Judge(JudgeSettings.model_validate(given["settings"]))
    judge.open()
    said = {{"open": held.since()}}
    for depth, evaluate in (("search", judge.evaluate), ("winner", judge.confirm)):
        evaluation = evaluate(candidate)
        said[depth] = held.since()
        assert evaluation.status == "correct", evaluation.detail
sys.stdout.write(json.dumps(said))
sys.stdout.flush()
os._exit(0)
"""

CUMSUM = f"""
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.cumsum(x, dim=1)

def get_inputs():
    return [torch.rand({ROWS}, {COLS})]
"""
TWO_WAYS = """
import itertools, torch
calls = itertools.count()

def kernel_function(x):
    return torch.cumsum(x, dim=1).mul_(1 + next(calls) % 2 * 2**-23)
"""
"""Right, in other bits at every other call: both are judged."""
HINGE = f"""
import torch

class Model(torch.nn.Module):
    def forward(self, predictions, targets):
        return torch.mean(torch.clamp(1 - predictions * targets, min=0))

def get_inputs():
    targets = torch.randint(0, 2, ({COLS},)).float() * 2 - 1
    return [torch.rand({ROWS}, {COLS}), targets]
"""
IN_PARTS = """
import torch

def kernel_function(predictions, targets):
    parts = [(1 - rows * targets).clamp(min=0).sum() for rows in predictions.split(64)]
    return torch.stack(parts).sum() / predictions.numel()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "kernel", "most"),
    [(CUMSUM, TWO_WAYS, 3.8), (HINGE, IN_PARTS, 3.1)],
    ids=["as large a result", "a number"],
)
def test_a_judge_takes_a_few_times_the_inputs(source, kernel, most, tmp_path):
    """Inputs, outputs, one copy of those and a slice; an elementwise reference takes two of its own."""
    reference = ReferenceSource(kind="kernelbench", source=source, entry="Model")
    settings = JudgeSettings(
        problem=Problem(name="large", format="kernelbench", reference=reference), device="cpu",
        judge_plugins=(TORCH, VERIFY), candidate_plugins=(TORCH,),
        cache=tmp_path / "cache", locks=tmp_path / "locks", build_workers=1, build_seconds=60.0,
        run_seconds=60.0, seed=0,
    )  # fmt: skip
    given = {"settings": settings.to_json(), "candidate": parse_kernel(kernel, "torch").to_json()}
    done = subprocess.run(
        [sys.executable, "-c", JUDGE], input=json.dumps(given), capture_output=True, text=True,
        timeout=300, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    held = json.loads(done.stdout)
    assert all(times <= most for times in held.values()), held

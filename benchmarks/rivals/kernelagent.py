"""KernelAgent's verification worker: a test file that exits with 0, then a benchmark that checks nothing."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from rivals import clocks
from rivals.jobs import Job, Verdict

if TYPE_CHECKING:
    from types import ModuleType

NAME = "KernelAgent"
VERSION = "meta-pytorch/KernelAgent a3001c7 (2026-05-04)"
LANGUAGES = ("cpp", "torch")

_TOLERANCE = 1e-3
"""Of its test prompt; its shipped tests, in bfloat16, take 1e-2."""
_TAIL = "\nkernel_function = rival_kernel\n"
_TEST = """\
import sys

from rivals.kernelagent import test_kernel

if __name__ == "__main__":
    sys.exit(0 if test_kernel() else 1)
"""

_BANNED: dict[str, str] = {
    "torch.nn": r"\bimport\s+torch\.nn\b|\bfrom\s+torch\s+import\s+nn\b|\btorch\.nn\.",
    "torch.nn.functional": r"\bF\.[A-Za-z_]+\(",
    "a convolution": r"\btorch\.conv",
    "an activation or pooling": (
        r"\btorch\.(relu|sigmoid|tanh|softmax|gelu|mish|hardtanh|max_pool|avg_pool)\w*\("
    ),
    "a module": r"\bclass\s+\w+\s*\(\s*nn\.Module|\.forward\(",
    "torch.ops.aten": r"\btorch\.ops\.aten\b",
    "a matrix product": r"\.(matmul|mm|bmm|einsum)\s*\(",
    "introspection": (
        r"\bimport\s+inspect\b|\binspect\.(stack|currentframe|getouterframes)\s*\("
        r"|\bsys\._getframe\s*\(|\.f_(locals|globals)\b|\b(globals|locals)\s*\("
    ),
}


def banned(source: str) -> list[str]:
    """Return what its text filter objects to, outside comments and docstrings."""
    code = re.sub(r'"{3}[\s\S]*?"{3}|\'{3}[\s\S]*?\'{3}|#.*', "", source)
    return [name for name, pattern in _BANNED.items() if re.search(pattern, code)]


def judge(job: Job) -> Verdict:
    """Filter the text, run the test, and believe its exit code; then time."""
    source = job.kernel(_TAIL)
    if objections := banned(source):
        return Verdict("rejected", f"text filter: {', '.join(objections)}")
    job.write("kernel.py", source)
    job.write("test_kernel.py", _TEST)
    ended = job.run("test_kernel.py")
    if ended.code is None:
        return ended.verdict
    if ended.code != 0:
        last = (ended.said.strip().splitlines() or [""])[-1]
        return Verdict("rejected", f"the test exits with {ended.code}; {last}"[:200])
    if job.timed:
        job.run("rivals.kernelagent")
    result = job.folder / "benchmark.json"
    speedup = json.loads(result.read_text(encoding="utf-8")) if result.is_file() else None
    return Verdict("accepted", "the test exits with 0", speedup)


def test_kernel() -> bool:
    """Compare one unseeded draw, the reference first, as the tests shipped with its examples do."""
    problem = _module("problem")
    kernel_function = _module("kernel").kernel_function
    inputs = problem.get_inputs()
    given = [value.clone() for value in inputs] if problem.MUTATES else inputs
    with torch.no_grad():
        expected = problem.Model()(*inputs)
        result = kernel_function(*given)
    if problem.MUTATES:
        changed = [problem.INPUTS.index(name) for name in problem.MUTATES]
        pairs = [(inputs[i], given[i]) for i in changed]
    elif isinstance(expected, tuple):
        pairs = list(zip(expected, result, strict=True))
    else:
        pairs = [(expected, given[0] if result is None else result)]
    agree = all(_agree(wanted, found) for wanted, found in pairs)
    print("PASS" if agree else "FAIL")
    return agree


def _agree(wanted: torch.Tensor, found: torch.Tensor) -> bool:
    """Compare as those tests do: a scalar with the other's mean, in the reference's dtype."""
    if wanted.dim() == 0 and found.dim() > 0:
        found = found.mean()
    elif found.dim() == 0 and wanted.dim() > 0:
        wanted = wanted.mean()
    if wanted.dtype != found.dtype:
        found = found.to(wanted.dtype)
    return bool(torch.allclose(wanted, found, rtol=_TOLERANCE, atol=_TOLERANCE))


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(f"{name}.py"))
    if spec is None or spec.loader is None:
        raise ImportError(f"{name}.py is not in {Path.cwd()}")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Time kernel and reference on one draw; what they return is not looked at."""
    problem = _module("problem")
    kernel_function = _module("kernel").kernel_function
    inputs = problem.get_inputs()
    own = clocks.budget_ms(kernel_function, inputs)
    reference = clocks.fixed_ms(problem.Model(), inputs, 25, 100, cold=True)
    Path("benchmark.json").write_text(json.dumps(reference / own), encoding="utf-8")

"""Kernels that declare nothing, tuned: every variant is built by Triton itself, for sm_90."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import kopt
from kopt.hooks import Hooks
from kopt.model.device import Target
from kopt.model.evaluation import Evaluation
from kopt.model.history import History
from kopt.model.kernel_file import parse_kernel, settled_source
from kopt.stages.proposing import propose
from kopt.testing import problems, records
from kopt_triton import TritonBackend

pytest.importorskip("triton")

IMPORTS = "import torch\nimport triton\nimport triton.language as tl\n\n"

SCALE = (
    IMPORTS
    + """
@triton.jit
def scale_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

def kernel_function(x):
    out = torch.empty_like(x)
    n = x.numel()
    scale_kernel[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
    return out
"""
)

MATMUL = (
    IMPORTS
    + """
BLOCK_K = 32

{decorator}@triton.jit
def matmul_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a + rm[:, None] * K + (k + rk)[None, :])
        y = tl.load(b + (k + rk)[:, None] * N + rn[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + rm[:, None] * N + rn[None, :], acc.to(tl.float16))

def kernel_function(a, b):
    M, K = a.shape
    N = b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    {launch}
    return c
"""
)
LITERAL = """BM = 32
    grid = (triton.cdiv(M, BM), triton.cdiv(N, 64))
    matmul_kernel[grid](a, b, c, M, N, K, BM, BN=64, BK=BLOCK_K, num_warps=4, num_stages=2)"""
AUTOTUNED = """grid = lambda meta: (M // meta["BM"], N // meta["BN"])
    matmul_kernel[grid](a, b, c, M, N, K)"""
CONFIGURATIONS = """@triton.autotune(
    configs=[
        triton.Config({'BM': 64, 'BN': 64, 'BK': 32}, num_stages=2, num_warps=4),
        triton.Config({'BM': 128, 'BN': 64, 'BK': 64}, num_stages=3, num_warps=8),  # large
        triton.Config({'BM': 32, 'BN': 32, 'BK': 32}, num_warps=2),
    ],
    key=['M', 'N', 'K'],
)
"""
HALF = ((512, 512), torch.float16)


@dataclass
class Context:
    """A build context for a GPU that is not there."""

    folder: Path
    architecture: str = "sm_90"
    device: Any = None
    argument_names: tuple[str, ...] = ()

    def scratch(self) -> Path:
        """Return a folder for the candidate's module."""
        return self.folder


def tunable(source: str):
    candidate = parse_kernel(source, "triton")
    found = Hooks.load([], [("backend", TritonBackend())]).kopt_tunables(candidate)
    assert found is not None
    return candidate.with_knobs(found)


def compiled(candidate, folder: Path, call):
    executable = TritonBackend().kopt_build(candidate, Context(folder))
    return executable.ahead_of_time(call)


def test_each_variant_compiles_for_a_gpu_that_is_not_there(tmp_path, shapes_only):
    candidate = tunable(SCALE)
    call = shapes_only(*[((1 << 20,), torch.float32)] * 2)
    seen = set()
    for block, warps in itertools.product((256, 1024, 4096), (1, 4, 8)):
        chosen = candidate.with_values("test", BLOCK=block, num_warps=warps)
        (kernel,) = compiled(chosen, tmp_path, call)
        assert (kernel.constants["BLOCK"], kernel.num_warps) == (str(block), warps)
        seen.add(chosen.id)
    assert len(seen) == 9
    (kernel,) = compiled(candidate, tmp_path, call)
    assert (kernel.constants["BLOCK"], kernel.num_warps) == ("1024", 4)


def test_blocks_under_names_and_options_reach_the_kernel(tmp_path, shapes_only):
    candidate = tunable(MATMUL.format(decorator="", launch=LITERAL))
    assert set(candidate.knobs) == {"BM", "BN", "BK", "num_warps", "num_stages"}
    chosen = candidate.with_values("test", BM=64, BN=128, BK=16, num_warps=8, num_stages=4)
    (kernel,) = compiled(chosen, tmp_path, shapes_only(HALF, HALF, HALF))
    wanted = {"BM": "64", "BN": "128", "BK": "16"}
    assert {name: kernel.constants[name] for name in wanted} == wanted
    assert (kernel.num_warps, kernel.num_stages) == (8, 4)


def test_an_autotuned_kernel_imports_without_a_gpu_and_has_one_configuration(tmp_path, shapes_only):
    candidate = tunable(MATMUL.format(decorator=CONFIGURATIONS, launch=AUTOTUNED))
    assert candidate.knobs["config"].choices == ("all", 0, 1, 2)
    call = shapes_only(HALF, HALF, HALF)
    assert len(compiled(candidate, tmp_path, call)) == 3
    for index, (bm, warps) in enumerate([("64", 4), ("128", 8), ("32", 2)]):
        (kernel,) = compiled(candidate.with_values("test", config=index), tmp_path, call)
        assert (kernel.constants["BM"], kernel.num_warps) == (bm, warps)


def test_a_variant_is_interpreted_as_it_was_chosen(tmp_path, memory):
    """Where the grid did not follow the block, most of the result would be missing."""
    x = torch.randn(3000)
    for block in (256, 4096):
        chosen = tunable(SCALE).with_values("test", BLOCK=block, num_warps=8)
        executable = TritonBackend().kopt_build(chosen, Context(tmp_path, architecture="native"))
        call = memory.call(x, outputs=[torch.zeros(3000)])
        bound = executable.bind(call, memory)
        bound.launch()
        bound.collect()
        assert torch.equal(memory.read(call.outputs[0]), 2 * x)


class Once:
    """A strategy that proposes one kernel in the first round."""

    def __init__(self, source: str) -> None:
        self._candidate = parse_kernel(source, "triton")

    @kopt.hookimpl
    def kopt_propose(self, parent):
        """Propose it."""
        return [] if parent else [self._candidate]


def speed(candidate) -> float:
    """Return an invented speedup: best at 512 and two warps."""
    chosen = candidate.chosen
    return 8 - abs(math.log2(chosen["BLOCK"] / 512)) - abs(math.log2(chosen["num_warps"] / 2))


def rounds(history: History, device) -> list[str]:
    """Play rounds until nothing new is proposed; return all ids in their order."""
    autotune = pytest.importorskip("kopt_autotune").Autotune()
    plugins = [("backend", TritonBackend()), ("strategy", Once(SCALE)), ("strategy", autotune)]
    hooks, ids = Hooks.load([], plugins), [each.id for each in history]
    while len(ids) < 100:
        found = propose(
            hooks, problems.row_sum(), problems.row_sum_signature(),
            Target(language="triton", device=device), [(history.best(), [])], history,
        )  # fmt: skip
        if not found:
            assert hooks.failures == []
            return ids
        for candidate in found:
            ids.append(candidate.id)
            history.add(records.measured(candidate, speed(candidate)))
    raise AssertionError("it never ends")


def test_a_kernel_that_declares_nothing_is_tuned_and_a_resumed_run_goes_on_the_same():
    history = records.history(())
    ids = rounds(history, records.gpu())
    best = history.best().candidate
    assert best.chosen == {"BLOCK": 512, "num_warps": 2}
    kept = settled_source(best)
    assert "cdiv(n, 512),)](x, out, n, BLOCK=512, num_warps=2)" in kept
    assert settled_source(parse_kernel(kept, "triton")) == kept
    told = [Evaluation.model_validate_json(each.model_dump_json()) for each in history]
    for past in (told[:1], told[:5], told[:9]):
        assert rounds(records.history(past), records.gpu()) == ids

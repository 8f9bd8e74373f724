"""Convolutions in CUDA C++: proposed for shapes, run by the emulator against float64, compiled."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterable
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kopt.model.expressions import evaluate
from kopt_cuda.compiling import LOG, compile_cubin
from kopt_cuda.plan import plan_of
from kopt_cuda.resources import resources_of
from kopt_cuda.toolchain import find_toolchain
from kopt_starters.families.convolution import ConvolutionFamily

HERE = Path(__file__)
CHECK = SimpleNamespace(**runpy.run_path(str(HERE.with_name("checking.py"))))
ON_CPU = SimpleNamespace(**runpy.run_path(str(HERE.with_name("cuda_on_cpu.py"))))
CUDA = CHECK.TARGET.model_copy(update={"language": "cuda"})


def proposed(
    graph_of: Callable[..., Any],
    idea: str,
    body: str,
    x: Any,
    w: Any,
    dtype: str = "bfloat16",
    architecture: str = "sm_90",
) -> list[Any]:
    """Return the kernels whose idea has these words for a convolution of x, w and perhaps b."""
    graph = graph_of(
        f"def reference(x, w, b): return {body}", dtype=dtype, x=x, w=w, b=_bias(body, w)
    )
    device = CUDA.device.model_copy(update={"architecture": architecture})
    found = ConvolutionFamily().propose(graph, CUDA.model_copy(update={"device": device}))
    return [each for each in found if idea in each.idea]


def _bias(body: str, w: Any) -> tuple[int]:
    return (w[1] if "transpose" in body else w[0],)


def dtypes_of(cases: Iterable[str]) -> list[tuple[str, str]]:
    """Return each case in float32, and in one of the dtypes of two bytes."""
    cases = list(cases)
    two_bytes = zip(cases, cycle(["bfloat16", "float16"]), strict=False)
    return [*two_bytes, *((body, "float32") for body in cases)]


def check(candidate: Any, body: str, x: Any, w: Any, dtype: str, **knobs: int) -> None:
    """Compare what a kernel makes of drawn arguments with float64."""
    generator = torch.Generator().manual_seed(2)
    given = {
        name: torch.randn(shape, generator=generator).to(getattr(torch, dtype))
        for name, shape in {"x": x, "w": w, "b": _bias(body, w)}.items()
    }
    # In float32 of what TF32 keeps of both factors.
    wide = {n: (each if n == "b" else _in_tf32(each)).double() for n, each in given.items()}
    exact = eval(body, {"F": torch.nn.functional} | wide)
    if "None" in body:
        del given["b"]
    (got,) = ON_CPU.run(candidate, [(exact.shape, given["x"].dtype)], given, **knobs)
    CHECK.assert_accurate(got, exact, 8 if dtype == "float32" else 4)


def _in_tf32(value: torch.Tensor) -> torch.Tensor:
    if value.dtype != torch.float32:
        return value
    return (value.view(torch.int32) + 0x1000 & ~0x1FFF).view(torch.float32)


def compiled(candidate: Any, architecture: str, folder: Path) -> tuple[Any, int, str]:
    """Return what a kernel takes at its defaults, its bytes of shared memory, and the compiler's log."""
    toolchain = find_toolchain()
    if toolchain is None:
        pytest.skip("no compiler for CUDA C++")
    plan = plan_of(candidate)
    knobs = [f"-D{name}={value}" for name, value in candidate.chosen.items()]
    compile_cubin(toolchain, candidate.source, architecture, [*plan.flags, *knobs], [], folder)
    log = (folder / LOG).read_text()
    (used,) = resources_of(log).values()
    (call,) = plan.launch
    return used, evaluate(call.shared, candidate.chosen), log

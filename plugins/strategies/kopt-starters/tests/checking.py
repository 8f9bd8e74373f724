"""Runs a family's kernels in Triton's interpreter, and compiles them for GPUs that are not here."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kopt.model.device import Device, Target
from kopt_triton.ahead import compile_ahead
from kopt_triton.architectures import named
from kopt_triton.interpreter import interpreting

GPU = Device(
    kind="cuda", name="test", architecture="sm_90", units=132, memory_bytes=80 << 30,
    cache_bytes=50 << 20,
)  # fmt: skip
TARGET = Target(language="triton", device=GPU)
UNIT = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}


def entry_of(candidate: Any, source: str | None = None) -> Any:
    """Return the function that a candidate's source, or another one, defines as its entry."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"kernel_{candidate.structure}.py"
        path.write_text(source or candidate.source)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for value in vars(module).values():  # the text is read while the file is there
            getattr(value, "src", None)
        return getattr(module, candidate.entry)


def interpreted(candidate: Any, *arguments: Any, **values: Any) -> Any:
    """Return a candidate's result on CPU tensors, with knobs as chosen unless given.

    Only a test that asks for TF32 gets it.
    """
    exact = {name: "tf32x3" for name, value in candidate.chosen.items() if value == "tf32"}
    settings = {**candidate.chosen, **exact, **values}
    text = candidate.source.replace("PRECISION='tf32'", "PRECISION='tf32x3'")
    function = entry_of(candidate, text)
    with interpreting(), torch.no_grad(), np.errstate(all="ignore"):
        return function(*arguments, **settings)


def compiled(
    candidate: Any, arguments: Iterable[Any], *, architecture: Any = None, **values: Any
) -> list[Any]:
    """Return the kernels of a call, compiled for sm_90 or another; raises where one does not fit."""
    function, found = entry_of(candidate), {}
    given = [a.to("meta") if isinstance(a, torch.Tensor) else a for a in arguments]
    settings, wanted = {**candidate.chosen, **values}, architecture or named("sm_90")
    compile_ahead(lambda call, opened: lambda: function(*given, **settings), None, wanted, found)
    return list(found.values())


def assert_accurate(got: torch.Tensor, exact: torch.Tensor, units: float = 8) -> None:
    """Compare with a result in float64: error in units of roundoff of the largest value."""
    assert got.shape == exact.shape
    kept = exact.isfinite()
    assert torch.equal(got.isnan(), exact.isnan())
    assert torch.equal(got.double()[~kept & ~exact.isnan()], exact[~kept & ~exact.isnan()])
    scale = float(exact[kept].abs().max()) if kept.any() else 0.0
    error = float((got.double() - exact)[kept].abs().max()) if kept.any() else 0.0
    assert error <= units * UNIT[got.dtype] * scale, f"{error} against {scale}"

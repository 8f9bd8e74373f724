"""Compiles a family's C++ candidates and calls them as kopt would."""

from __future__ import annotations

import ctypes
import subprocess
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from kopt.model.device import Device, Target
from kopt.model.expressions import evaluate, unmet

FLAGS = ["-std=c++17", "-O3", "-march=native", "-fopenmp", "-fno-math-errno"]
FLAGS += ["-fno-trapping-math", "-Wall", "-Werror", "-shared", "-fPIC"]
CPU = Device(
    kind="cpu", name="test", architecture="x86_64", units=2, memory_bytes=1 << 33,
    cache_bytes=1 << 25,
)  # fmt: skip
TARGET = Target(language="cpp", device=CPU)


def built(folder: Path, candidate: Any, **values: Any) -> Any:
    """Return a function of a candidate's arguments by name that fills ``out``."""
    path = folder / f"{candidate.id}{len(list(folder.iterdir()))}.cpp"
    path.write_text(candidate.source)
    defines = [f"-D{name}={value}" for name, value in {**candidate.chosen, **values}.items()]
    library = path.with_suffix(".so")
    command = ["g++", *FLAGS, *defines, str(path), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    function = getattr(ctypes.CDLL(str(library)), candidate.entry)

    def call(out: torch.Tensor, **arguments: Any) -> torch.Tensor:
        names = {**arguments, "out": out}
        seen = {name: _seen(value) for name, value in names.items()}
        assert unmet(candidate.settings.get("requires", []), seen) is None
        given = [evaluate(text, seen) for text in candidate.settings["arguments"]]
        function(*map(_as_c, given))
        return out

    return call


def _seen(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    assert value.is_contiguous()
    shape = tuple(value.shape)
    return SimpleNamespace(shape=shape, ndim=len(shape), numel=prod(shape), at=value.data_ptr())


def _as_c(value: Any) -> Any:
    if isinstance(value, SimpleNamespace):
        return ctypes.c_void_p(value.at)
    return ctypes.c_int64(value) if isinstance(value, int) else ctypes.c_double(value)


def assert_as_exact(got: torch.Tensor, own: torch.Tensor, exact: torch.Tensor) -> None:
    """Hold a result to twice PyTorch's own error against float64, as the verifier would.

    Two units of roundoff are allowed in any case: a few results may be right by luck.
    """
    assert got.shape == exact.shape
    kept = exact.isfinite()
    assert torch.equal(got.isnan(), exact.isnan())
    assert torch.equal(got.double()[~kept & ~exact.isnan()], exact[~kept & ~exact.isnan()])
    error, allowed, scale = (
        float(each[kept].double().square().mean().sqrt()) if kept.any() else 0.0
        for each in (got - exact, own - exact, exact)
    )
    assert error <= max(2 * allowed, 2.0**-23 * scale), f"{error} against {allowed}"

"""A C++ kernel of the selftest as a Python function: compiled as kopt compiles it, outputs from torch.empty."""

from __future__ import annotations

import ctypes
import hashlib
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from kopt.model.expressions import evaluate
from kopt.model.kernel_file import parse_kernel
from kopt_cpp.backend import CppBackend
from kopt_cpp.compiler import compile_shared, find_compiler

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kopt.model.candidate import Candidate


def load(source: str, library: Path, task: Any) -> Callable[..., Any]:
    """Return the kernel as a function of the task's inputs, as a torch extension would offer it.

    ``task`` is the module of a problem file. Raises what a build or a load raises.
    """
    candidate = parse_kernel(source, "cpp")
    if not library.is_file():
        _build(candidate, library)
    function = ctypes.CDLL(str(library))[candidate.entry]
    function.restype = None
    arguments = candidate.settings["arguments"]
    forms: dict[tuple[torch.Size, ...], Any] = {}

    def call(*inputs: torch.Tensor) -> Any:
        _check(task, inputs)
        shapes = tuple(value.shape for value in inputs)
        if shapes not in forms:
            forms[shapes] = task.rival_reference(
                *map(torch.zeros_like, inputs)
            )  # of zeros: no answer
        outputs = _fresh(forms[shapes])
        names = _names(task.INPUTS, inputs, outputs) | candidate.chosen
        function(*(_c_value(evaluate(text, names)) for text in arguments))
        return _as(forms[shapes], outputs)

    return call


def library_for(source: str, builds: Path) -> Path:
    """Return where the library of a source belongs."""
    return builds / f"{hashlib.sha256(source.encode()).hexdigest()[:16]}.so"


def _build(candidate: Candidate, library: Path) -> None:
    compiler = find_compiler()
    if compiler is None:
        raise RuntimeError("no C++ compiler; install one, as with `apt install g++`")
    flags = [*CppBackend.Options().flags, *(["-fopenmp"] if compiler.openmp else [])]
    flags += [f"-D{name}={value}" for name, value in candidate.chosen.items()]
    own = library.with_suffix(f".{os.getpid()}")
    text = library.with_name(f"{library.stem}-{os.getpid()}.cpp")
    text.write_text(candidate.source, encoding="utf-8")
    compile_shared(compiler, text, own, flags)
    own.rename(library)


def _check(task: Any, inputs: tuple[torch.Tensor, ...]) -> None:
    """Raise TypeError for a dtype that the kernel does not read, as TORCH_CHECK would."""
    for name, value in zip(task.INPUTS, inputs, strict=True):
        wanted = getattr(torch, task.DTYPES[name])
        if value.dtype != wanted or not value.is_contiguous():
            raise TypeError(f"{name} is {value.dtype}; the kernel reads contiguous {wanted}")


def _fresh(form: Any) -> list[torch.Tensor]:
    forms = form if isinstance(form, tuple) else [] if form is None else [form]
    return [torch.empty(part.shape, dtype=part.dtype) for part in forms]


def _as(form: Any, outputs: list[torch.Tensor]) -> Any:
    if form is None:
        return None
    return tuple(outputs) if isinstance(form, tuple) else outputs[0]


def _names(
    names: list[str], inputs: tuple[torch.Tensor, ...], outputs: list[torch.Tensor]
) -> dict[str, Any]:
    known = {name: _seen(value) for name, value in zip(names, inputs, strict=True)}
    known |= {f"out{index}": _seen(value) for index, value in enumerate(outputs)}
    return known | ({"out": known["out0"]} if outputs else {})


def _seen(value: torch.Tensor) -> SimpleNamespace:
    return SimpleNamespace(
        shape=tuple(value.shape), stride=value.stride(), ndim=value.ndim, numel=value.numel(),
        itemsize=value.element_size(), address=value.data_ptr(),
    )  # fmt: skip


def _c_value(value: Any) -> Any:
    if isinstance(value, SimpleNamespace):
        return ctypes.c_void_p(value.address)
    return ctypes.c_double(value) if isinstance(value, float) else ctypes.c_int64(int(value))

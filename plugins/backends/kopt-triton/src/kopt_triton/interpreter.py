"""Run the kernels of a module in Triton's interpreter, on CPU tensors, for correctness only."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from kopt.errors import CandidateError
from kopt.model.verification import Status
from kopt_triton.cuda_stand_in import replaced

BFLOAT16 = (
    "bfloat16 cannot be checked without a GPU: Triton's interpreter computes it wrongly; "
    "run on a GPU, check the same kernel in float16 or float32, or compile it ahead of time"
)


def _refuse_bfloat16(kernel: JITFunction, values: list[Any]) -> None:
    if any(getattr(value, "dtype", None) is torch.bfloat16 for value in values):
        raise CandidateError(Status.UNSUPPORTED, BFLOAT16)
    if "bfloat16" in kernel.src and any(
        isinstance(node, ast.Attribute | ast.Name)
        and (node.attr if isinstance(node, ast.Attribute) else node.id) == "bfloat16"
        for node in ast.walk(ast.parse(kernel.src))
    ):
        raise CandidateError(Status.UNSUPPORTED, f"kernel {kernel.fn.__name__}: {BFLOAT16}")


def _run(self: JITFunction, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
    _refuse_bfloat16(self, [*args, *kwargs.values()])
    # Options such as num_warps mean nothing here.
    kwargs = {name: value for name, value in kwargs.items() if name in self.arg_names}
    interpreter.InterpretedFunction(self.fn).run(*args, grid=grid, warmup=warmup, **kwargs)


def _call(self: JITFunction, *args: Any, **kwargs: Any) -> Any:
    # A kernel calls another one: on a GPU it would be inlined.
    _refuse_bfloat16(self, [])
    return interpreter.InterpretedFunction(self.fn)(*args, **kwargs)


def _bind(self: JITFunction, owner: Any, cls: Any = None) -> Any:
    # The library's functions are also methods of tl.tensor, as x.sum(0).
    return functools.partial(self, owner) if isinstance(owner, tl.tensor) else self


def _first_configuration(self: Autotuner, *args: Any, **kwargs: Any) -> Any:
    # Nothing may be timed here, so the first configuration stands for all.
    self.nargs = dict(zip(self.arg_names, args, strict=False))
    chosen = self.prune_configs(kwargs)[0]
    everything = {**self.nargs, **kwargs, **chosen.all_kwargs()}
    if chosen.pre_hook is not None:
        chosen.pre_hook(everything)
    return self.fn.run(*args, **kwargs, **chosen.all_kwargs())


def _patch_tensor(original: Callable[..., None], tensor: type, *scope: Any) -> None:
    original(tensor, *scope)
    # Triton's own version is int(array of one element), which newer versions of NumPy refuse;
    # without it no range() has a bound that is known at run time only.
    setattr(tensor, "__index__", lambda self: int(self.handle.data.item()))  # noqa: B010


@contextmanager
def _language_restored() -> Iterator[None]:
    """Undo what the interpreter leaves patched in ``triton.language``, or nothing compiles after."""
    names = ("tensor", "dtype", "tensor_descriptor_base")
    classes = [getattr(tl.core, name) for name in names if hasattr(tl.core, name)]
    saved = [(space, dict(vars(space))) for space in (tl, tl.core, tl.math, *classes)]
    try:
        yield
    finally:
        for space, before in saved:
            for name, value in list(vars(space).items()):
                if name == "__annotations__":
                    continue
                if name not in before:
                    delattr(space, name)
                elif before[name] is not value:
                    setattr(space, name, before[name])


@contextmanager
def interpreting() -> Iterator[None]:
    """Make every launch inside run in the interpreter.

    Kernels stay what they are and can be compiled afterwards: only what launching them does is
    exchanged, so it reaches library functions, closures and autotuned kernels alike.
    """
    patch_tensor = functools.partial(_patch_tensor, interpreter._patch_lang_tensor)
    with (
        _language_restored(),
        replaced(interpreter, "_patch_lang_tensor", patch_tensor),
        replaced(JITFunction, "run", _run),
        replaced(JITFunction, "__call__", _call),
        replaced(JITFunction, "__get__", _bind),
        replaced(Autotuner, "run", _first_configuration),
    ):
        yield
